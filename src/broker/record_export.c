/* SPDX-License-Identifier: Apache-2.0 */
/* Starts carrel-export where settings name a target for records or heads, and hears from it how far
 * it has got. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/record_export.h"

enum {
    STOP_MS = 3000,
    MOST_ARGS = 24,
};

/* Root's, as a rule: opened here and handed over. */
static int open_secret(const char *path, const char *setting, int *ret, struct err *err)
{
    *ret = open(*path ? path : "/dev/null", O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (*ret < 0)
        return err_set(err, ERR_IO, errno, "open '%s' (setting '%s')", path, setting);
    return 0;
}

static char *const *prepare(struct helper *h, struct arena *arena, int fds[HELPER_FDS],
                            struct err *err)
{
    const struct settings *s = &h->broker->settings;
    const char **argv = arena_alloc(arena, MOST_ARGS * sizeof(*argv));
    const char *const pairs[][2] = {
        {"--to", s->export},
        {"--index", *s->export ? s->export_index : ""},
        {"--ca", s->export_ca},
        {"--heads-to", s->audit_sink_url},
        {"--report-fd", "3"},
        {"--auth-fd", *s->export_auth ? "4" : ""},
        {"--heads-auth-fd", *s->audit_sink_auth ? "5" : ""},
    };
    size_t n = 0;

    if (!argv) {
        err_set(err, ERR_LIMIT, ENOMEM, "start carrel-export");
        return NULL;
    }
    if (open_secret(s->export_auth, "export_auth", &fds[0], err) < 0 ||
        open_secret(s->audit_sink_auth, "audit_sink_auth", &fds[1], err) < 0)
        return NULL;
    h->extra_count = 2;
    argv[n++] = "carrel-export";
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (!*pairs[i][1])
            continue;
        argv[n++] = pairs[i][0];
        argv[n++] = pairs[i][1];
    }
    if (s->export_gzip)
        argv[n++] = "--gzip";
    return (char *const *)(uintptr_t)argv;
}

static void heard(struct helper *h, const char *bytes, size_t n)
{
    uint64_t seq;

    if (n != sizeof(seq))
        return;
    memcpy(&seq, bytes, sizeof(seq));
    h->broker->exported = seq;
}

void export_start(struct broker *b)
{
    if (!*b->settings.export && !*b->settings.audit_sink_url)
        return;
    b->exporter = helper_make(b, "carrel-export");
    b->exporter.program = b->export_program;
    b->exporter.uid = b->export_uid;
    b->exporter.prepare = prepare;
    b->exporter.heard = heard;
    helper_begin(&b->exporter);
}

void export_stop(struct broker *b)
{
    if (b->exporter.broker)
        helper_stop(&b->exporter, SIGTERM, STOP_MS);
}
