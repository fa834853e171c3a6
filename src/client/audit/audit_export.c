/* SPDX-License-Identifier: Apache-2.0 */
/* carrel audit export: becomes carrel-export, on the files of a state directory; or, for a daemon
 * that is named by CARREL_SOCKET or CARREL_URL, keeps a copy of its record and exports that. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/programs.h"
#include "cli/cli.h"
#include "client/audit/audit_verify.h"

enum {
    LOOK_S = 1, /* for new records */
    OPEN_DIRS = 16,
};

static int become(const struct audit_options *o, const char *program, const char *record,
                  const char *spool)
{
    const char *argv[24] = {"carrel-export", "--record", record, "--spool", spool};
    const char *const pairs[][2] = {
        {"--to", o->to}, {"--index", o->index}, {"--auth", o->auth}, {"--ca", o->ca}};
    size_t n = 5;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (!pairs[i][1])
            continue;
        argv[n++] = pairs[i][0];
        argv[n++] = pairs[i][1];
    }
    if (o->gzip)
        argv[n++] = "--gzip";
    if (!o->follow)
        argv[n++] = "--once";
    execv(program, (char *const *)(uintptr_t)argv);
    return cli_fail("carrel-export cannot be started");
}

/* --- a copy of a daemon's record --- */

struct copy {
    int fd;
    uint64_t last;  /* the number of the newest record */
    char begin[32]; /* of the line that is coming: {"seq":N, */
    size_t n;
    bool failed;
};

static size_t take(void *context, const char *bytes, size_t n)
{
    struct copy *c = context;

    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            c->begin[c->n] = '\0';
            c->n = 0;
            if (strncmp(c->begin, "{\"seq\":", 7) == 0)
                c->last = strtoull(c->begin + 7, NULL, 10);
        } else if (c->n < sizeof(c->begin) - 1) {
            c->begin[c->n++] = bytes[i];
        }
    }
    c->failed |= write(c->fd, bytes, n) != (ssize_t)n;
    return n;
}

/* What is new. */
static int fetch(struct daemon *daemon, struct copy *c, struct err *err)
{
    struct call call;
    char path[64];

    snprintf(path, sizeof(path), "/v1/audit/raw?after=%ju", (uintmax_t)c->last);
    if (call_open(&call, daemon, err) < 0)
        return -1;
    call.accept = "application/x-ndjson";
    call.take = take;
    call.context = c;
    int r = call_wait(&call, "GET", path, err);
    call_close(&call);
    return r == 0 && c->failed ? err_set(err, ERR_IO, errno, "keep the record to export it") : r;
}

static int forget(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

static int go_on(struct daemon *daemon, struct copy *c, pid_t pid, bool follow, struct err *err)
{
    int status = 0;

    while (waitpid(pid, &status, follow ? WNOHANG : 0) == 0) {
        (void)sleep(LOOK_S); /* one thread here; NOLINT(concurrency-mt-unsafe) */
        if (fetch(daemon, c, err) < 0) {
            (void)kill(pid, SIGTERM);
            (void)waitpid(pid, &status, 0);
            return client_fail(err);
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int export_copy(const struct audit_options *o, const char *program, struct daemon *daemon,
                       const char *dir, struct err *err)
{
    char record[WHERE_PATH + 32];
    char file[WHERE_PATH + 64];
    char spool[WHERE_PATH + 32];

    snprintf(record, sizeof(record), "%s/audit", dir);
    snprintf(file, sizeof(file), "%s/000000001.jsonl", record);
    snprintf(spool, sizeof(spool), "%s/export", dir);
    if (mkdir(record, 0700) < 0 || mkdir(spool, 0700) < 0)
        return cli_fail("the directory for the copy of the record cannot be made");
    scoped_fd int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    struct copy copy = {.fd = fd};
    if (fd < 0 || fetch(daemon, &copy, err) < 0)
        return fd < 0 ? cli_fail("the copy of the record cannot be made") : client_fail(err);
    pid_t pid = fork();
    if (pid < 0)
        return cli_fail("carrel-export cannot be started");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
        _exit(become(o, program, record, o->spool ? o->spool : spool));
    }
    (void)signal(SIGINT, SIG_IGN); /* it ends by that, and what is ours is then cleared away */
    return go_on(daemon, &copy, pid, o->follow, err);
}

static int export_daemon(const struct audit_options *o, const char *program, struct err *err)
{
    const char *tmp = where_env("TMPDIR");
    struct daemon daemon = {0};
    char dir[WHERE_PATH];

    if (daemon_open(&daemon, NULL, err) < 0)
        return client_fail(err);
    snprintf(dir, sizeof(dir), "%.4000s/carrel-export.XXXXXX", tmp ? tmp : "/tmp");
    int status = mkdtemp(dir) ? export_copy(o, program, &daemon, dir, err)
                              : cli_fail("a place for the copy of the record cannot be made");
    /* One thread here; NOLINTNEXTLINE(concurrency-mt-unsafe) */
    (void)nftw(dir, forget, OPEN_DIRS, FTW_DEPTH | FTW_PHYS);
    daemon_close(&daemon);
    return status;
}

int audit_export_verb(const struct audit_options *o, struct err *err)
{
    char dir[WHERE_PATH];
    char program[WHERE_PATH];
    char record[WHERE_PATH + 8];
    char spool[WHERE_PATH + 8];

    if (!o->to)
        return cli_fail("no target given: carrel audit export --to TARGET");
    if (!program_find("carrel-export", program, sizeof(program)))
        return cli_fail("carrel-export, a part of Carrel, is missing; reinstall Carrel");
    if (!o->common.state && (where_env("CARREL_URL") || where_env("CARREL_SOCKET")))
        return export_daemon(o, program, err);
    if (where_state(o->common.state, dir, sizeof(dir), err) < 0)
        return client_fail(err);
    snprintf(record, sizeof(record), "%s/audit", dir);
    snprintf(spool, sizeof(spool), "%s%s", o->spool ? o->spool : dir, o->spool ? "" : "/export");
    return become(o, program, record, spool);
}
