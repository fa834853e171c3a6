/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine makes of a tenant's bytes when it tells of denials: the arguments of system
 * calls, and error output, cut into pieces anyhow. The texts must be printable, and must end; only
 * the calls that the kernel refuses may go on. */
#include "fuzz.h"

#include <string.h>
#include <sys/syscall.h>

#include "sandbox/denial/denial.h"
#include "sandbox/denial/denied.h"
#include "sandbox/run.h"

static void must_be_printable(const char *text, size_t size)
{
    size_t n = strnlen(text, size);

    MUST(n > 0 && n < size);
    for (size_t i = 0; i < n; i++)
        MUST(text[i] >= ' ' && text[i] <= '~');
}

static void check(const struct carrel_denial *d)
{
    must_be_printable(d->what, sizeof(d->what));
    must_be_printable(d->rule, sizeof(d->rule));
    must_be_printable(d->fix, sizeof(d->fix));
}

static void fuzz_call(const uint8_t *data, size_t size)
{
    struct seccomp_data call = {0};
    struct carrel_denial one;

    if (size < 4 + sizeof(call.args))
        return;
    memcpy(&call.nr, data, 4);
    call.nr = data[3] & 1 ? SYS_mknodat : call.nr & 0x1ff;
    memcpy(call.args, data + 4, sizeof(call.args));
    bool goes_on = denied_call_answer(&call) == 0;
    MUST(!goes_on || call.nr == SYS_mknodat || call.nr == SYS_socket
#ifdef SYS_mknod
         || call.nr == SYS_mknod
#endif
    );
    denied_call(&call, &one);
    check(&one);
}

static void fuzz_output(struct run_view run, const uint8_t *data, size_t size)
{
    struct denials d;
    struct carrel_result result = {0};
    size_t piece = size ? 1 + data[0] % 64 : 1;

    denials_init(&d, run);
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        char *copy = malloc(n);
        MUST(copy);
        memcpy(copy, data + at, n);
        denials_scan(&d, copy, n);
        free(copy);
    }
    denials_take(&d, &result);
    denials_clear(&d);
    MUST(result.denial_count <= CARREL_MAX_DENIALS);
    for (size_t i = 0; i < result.denial_count; i++)
        check(&result.denials[i]);
    free(result.denials);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run run;
    static const struct carrel_mount mounts[] = {{.source = "/data"}};
    struct carrel_spec spec = {.mounts = mounts, .mount_count = 1};

    if (size == 0)
        return 0;
    run.spec = &spec;
    run.net = CARREL_NET_NONE;
    spec.workspace = data[0] & 2 ? "/w" : NULL;
    spec.limits.disk_bytes = data[0] & 4 ? 1U << 20 : 0;
    if (data[0] & 1)
        fuzz_call(data + 1, size - 1);
    else
        fuzz_output(run_view_of(&run), data + 1, size - 1);
    return 0;
}
