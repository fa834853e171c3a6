/* SPDX-License-Identifier: Apache-2.0 */
/* What a store can do, tried with an object that is removed again. */
#include <string.h>

#include "mover/mover.h"

static const char probe[] = ".carrel/probe";
static const char content[] = "carrel\n";

static int try_write(struct mover *m, struct err *err)
{
    scoped_buf struct buf found;

    buf_init(&found, 0);
    if (rclone_write(m, probe, content, sizeof(content) - 1, err) < 0)
        return err_wrap(err, "write an object");
    int r = rclone_read(m, probe, &found, err);
    if (r < 0)
        return err_wrap(err, "read an object");
    if (r == 0 || found.n != sizeof(content) - 1 || memcmp(found.p, content, found.n) != 0)
        return err_set(err, ERR_IO, 0, "the store does not have what was written to it");
    return 0;
}

/* While there is one: true where the store says that there is. */
static bool has_conditions(struct mover *m)
{
    struct err unused;

    return s3_is(m) && s3_create(m, probe, content, sizeof(content) - 1, &unused) == 0;
}

static json_t *features(struct mover *m)
{
    struct arena arena;
    struct err unused;
    scoped_buf struct buf text;

    arena_init(&arena, 4096);
    buf_init(&text, 0);
    const char *const args[] = {"backend", "features", rclone_place(m, &arena, ""), NULL};
    int r = args[2] ? rclone_run(m, args, -1, &text, &unused) : -1;
    arena_clear(&arena);
    json_t *all = r == 0 && buf_done(&text) == 0 ? json_loads(text.p, 0, NULL) : NULL;
    json_t *wanted = json_object_get(all, "Features");
    json_t *ret = json_pack("{s:b, s:O?}", "metadata",
                            json_is_true(json_object_get(wanted, "ReadMetadata")) ||
                                json_is_true(json_object_get(wanted, "WriteMetadata")),
                            "hashes", json_object_get(all, "Hashes"));
    json_decref(all);
    return ret;
}

int job_check(struct mover *m, json_t **ret, struct err *err)
{
    if (try_write(m, err) < 0)
        return -1;
    bool conditions = has_conditions(m);
    if (rclone_remove(m, probe, err) < 0)
        return err_wrap(err, "delete an object");
    if (owner_claim(m, err) < 0)
        return -1;
    *ret = json_pack("{s:b, s:b, s:b, s:s, s:o*}", "writes", 1, "reads", 1, "deletes", 1,
                     "ownership", conditions ? "conditional" : "read back", "can", features(m));
    return 0;
}
