/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: any bytes. What is read is written again as the same bytes, with the same hash, and
 * has no path that leads out of a tree. */
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plan/core/plan.h"

static void must_stay_inside(const char *path)
{
    struct err err;

    MUST(!path || plan_check_path(path, strlen(path), &err) == 0);
}

static void must_be_written_again(const struct plan *plan, const uint8_t *data, size_t size,
                                  const unsigned char hash[PLAN_HASH])
{
    unsigned char again[PLAN_HASH];
    struct err err;
    int fd = memfd_create("again", MFD_CLOEXEC);
    uint8_t *bytes = malloc(size + 1);

    MUST(fd >= 0 && bytes);
    MUST(plan_write(plan, fd, again, &err) == 0);
    MUST(pread(fd, bytes, size + 1, 0) == (ssize_t)size);
    MUST(memcmp(bytes, data, size) == 0 && memcmp(hash, again, PLAN_HASH) == 0);
    free(bytes);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char hash[PLAN_HASH];
    struct plan plan;
    struct err err = {0};
    int fd = memfd_create("manifest", MFD_CLOEXEC);

    MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    if (plan_read(&plan, fd, hash, &err) == 0) {
        for (size_t i = 0; i < plan.count; i++) {
            const struct plan_operation *o = &plan.operations[i];
            must_stay_inside(o->path);
            must_stay_inside(o->from);
            must_stay_inside(o->link);
            MUST(o->kind == PLAN_DELETE || (o->mode & 07000) == 0);
            MUST(o->kind == PLAN_DELETE || plan_find_final(&plan, o->path) == o);
        }
        must_be_written_again(&plan, data, size, hash);
        plan_clear(&plan);
    } else {
        MUST(err.msg[0] && err.code != ERR_NONE);
    }
    (void)close(fd);
    return 0;
}
