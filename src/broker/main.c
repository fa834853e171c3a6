/* SPDX-License-Identifier: Apache-2.0 */
/* carrel serve: reads the settings, opens the state and the sockets, starts the front, and turns
 * the loop until it is told to stop. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/line.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/state_dir.h"
#include "broker/broker.h"
#include "broker/egress.h"
#include "broker/files.h"
#include "broker/files_asleep.h"
#include "broker/front_process.h"
#include "broker/listen.h"
#include "broker/plans.h"
#include "broker/record.h"
#include "broker/record_export.h"
#include "broker/record_heads.h"
#include "broker/record_recover.h"
#include "broker/secrets.h"
#include "broker/state.h"
#include "broker/store_mounts.h"
#include "broker/templates.h"
#include "broker/tls.h"
#include "policy/units.h"

#ifndef CARREL_VERSION
#define CARREL_VERSION "unknown"
#endif

enum {
    FAILED = 125,
    NOBODY_ELSE = 0x6ffffffe, /* a uid far from any that is given out */
    SINK_ELSE = NOBODY_ELSE - 1,
    EXPORT_ELSE = NOBODY_ELSE - 2,
    EGRESS_ELSE = NOBODY_ELSE - 3,
    MOVER_ELSE = NOBODY_ELSE - 4,
    TLS_ELSE = NOBODY_ELSE - 5,
    POOL_IDLE_MS = 600000,
};

static int say(const struct err *err)
{
    char text[512];

    fprintf(stderr, "carrel: %s\n", err_text(err, text, sizeof(text)));
    return FAILED;
}

static int help(void)
{
    puts("usage: carrel serve [--state DIR] [--listen ADDRESS:PORT] [--socket FILE]\n"
         "                    [--tls-self-signed] [--config FILE] [--set KEY=VALUE]...\n\n"
         "Runs the daemon, which serves workspaces and commands over HTTP. The daemon stores\n"
         "everything in DIR; the key that allows everything is in DIR/admin.key. On the Unix\n"
         "socket, root and the user of the daemon need no key.\n\n"
         "  --state DIR         store everything in DIR\n"
         "  --listen A:P        serve at this numeric address and port; '' for none\n"
         "                      beyond loopback only on the command line, and once there is an\n"
         "                      admin.key\n"
         "  --socket FILE       serve at this Unix socket; '' for none\n"
         "  --tls-self-signed   serve HTTPS too, with a certificate of this machine's own, at\n"
         "                      tls_listen or 127.0.0.1:7443, for the names of 'domain'\n"
         "  --config FILE       read settings: lines of KEY = VALUE; # begins a comment\n"
         "  --set KEY=VALUE     change one of these settings:\n");
    settings_describe(stdout);
    puts("\nexamples:\n"
         "  carrel serve --state ~/desks\n"
         "  carrel serve --state /srv/carrel --listen 127.0.0.1:8080 --set idle=30m\n"
         "  carrel serve --config /etc/carrel/serve.conf\n"
         "  carrel serve --state ~/desks --tls-self-signed --set domain=desks.internal\n"
         "  curl -H \"Authorization: Bearer $(cat ~/desks/admin.key)\" "
         "http://127.0.0.1:7070/v1/workspaces");
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : FAILED;
}

struct options {
    const char *config;
    bool help;
    bool version;
    bool listen; /* on the command line */
};

/* "--state DIR" or "--state=DIR". */
static const char *value_of(const char *option, char **argv, int *at)
{
    size_t n = strlen(option);

    if (strncmp(argv[*at], option, n) != 0)
        return NULL;
    if (argv[*at][n] == '=')
        return argv[*at] + n + 1;
    return argv[*at][n] == '\0' && argv[*at + 1] ? argv[++*at] : NULL;
}

static int parse_one(struct settings *s, struct options *options, char **argv, int *at,
                     struct err *err)
{
    static const char *const keys[] = {"state", "listen", "socket"};
    char option[16];
    const char *value;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(option, sizeof(option), "--%s", keys[i]);
        value = value_of(option, argv, at);
        if (value) {
            options->listen |= strcmp(keys[i], "listen") == 0;
            return settings_set(s, keys[i], value, err);
        }
    }
    if (strcmp(argv[*at], "--tls-self-signed") == 0)
        return settings_set(s, "tls_self_signed", "yes", err);
    if ((value = value_of("--config", argv, at))) {
        options->config = value;
        return 0;
    }
    if ((value = value_of("--set", argv, at)))
        return settings_set_pair(s, value, err);
    options->help |= strcmp(argv[*at], "--help") == 0 || strcmp(argv[*at], "-h") == 0;
    options->version |= strcmp(argv[*at], "--version") == 0;
    if (options->help || options->version)
        return 0;
    return err_set(err, ERR_INVALID, 0,
                   "'%.64s' is not an option, or lacks its value; see 'carrel serve --help'",
                   argv[*at]);
}

static int read_settings(struct settings *s, struct options *options, char **argv, struct err *err)
{
    settings_init(s);
    /* `carrel` passes its verb on. */
    for (int i = argv[0] && argv[1] && strcmp(argv[1], "serve") == 0 ? 2 : 1; argv[i]; i++) {
        if (parse_one(s, options, argv, &i, err) < 0)
            return -1;
        if (options->help || options->version)
            return 0;
    }
    if (options->config && settings_read_file(s, options->config, err) < 0)
        return -1;
    if (!settings_is_given(s, "state") && state_dir_default(s->state, sizeof(s->state)) < 0)
        return err_set(err, ERR_INVALID, 0, "HOME is not set; give --state DIR");
    return 0;
}

/* As root whoever the setting names, or nobody else's uid; rootless us. Never root, and never two
 * of them the same: what one may, another may not. */
static int choose_helper(const struct broker *b, const char *user, const char *setting,
                         uid_t otherwise, uid_t *ret, struct err *err)
{
    uint64_t number;

    *ret = geteuid() == 0 ? otherwise : geteuid();
    if (!*user)
        return 0;
    if (geteuid() != 0)
        return err_set(err, ERR_DENIED, 0, "only root can use the setting '%s'", setting);
    if (units_parse_count(user, UINT32_MAX - 1, &number) == 0) {
        *ret = (uid_t)number;
    } else {
        const struct passwd *found =
            getpwnam(user); /* no threads yet; NOLINT(concurrency-mt-unsafe) */
        if (!found)
            return err_set(err, ERR_NOT_FOUND, 0, "there is no user '%s' (setting '%s')", user,
                           setting);
        *ret = found->pw_uid;
    }
    if (*ret == 0 || *ret == b->front_uid)
        return err_set(err, ERR_DENIED, 0,
                       "the setting '%s' must name a user that is neither root nor the front's",
                       setting);
    return 0;
}

static int choose_helpers(struct broker *b, struct err *err)
{
    const struct settings *s = &b->settings;

    if (choose_helper(b, s->audit_sink_user, "audit_sink_user", SINK_ELSE, &b->sink_uid, err) < 0 ||
        choose_helper(b, s->export_user, "export_user", EXPORT_ELSE, &b->export_uid, err) < 0)
        return -1;
    b->egress_uid = geteuid() == 0 ? EGRESS_ELSE : geteuid();
    b->mover_uid = geteuid() == 0 ? MOVER_ELSE : geteuid();
    b->tls_uid = geteuid() == 0 ? TLS_ELSE : geteuid();
    b->tls_gid = geteuid() == 0 ? TLS_ELSE : getegid();
    if (geteuid() == 0 && b->sink_uid == b->export_uid)
        return err_set(err, ERR_DENIED, 0,
                       "'audit_sink_user' and 'export_user' must be two: one has the key, the "
                       "other talks to the network");
    return 0;
}

/* As root the front is somebody else; rootless it is us. */
static int choose_front(struct broker *b, struct err *err)
{
    const char *user = b->settings.user;
    uint64_t number;

    b->front_uid = geteuid();
    b->front_gid = getegid();
    if (geteuid() != 0)
        return *user ? err_set(err, ERR_DENIED, 0,
                               "only root can run the front as another user (setting 'user')")
                     : 0;
    b->front_uid = b->front_gid = NOBODY_ELSE;
    if (!*user)
        return 0;
    if (units_parse_count(user, UINT32_MAX - 1, &number) == 0) {
        b->front_uid = (uid_t)number;
        b->front_gid = (gid_t)number;
        return 0;
    }
    const struct passwd *found = getpwnam(user); /* no threads yet; NOLINT(concurrency-mt-unsafe) */
    if (!found)
        return err_set(err, ERR_NOT_FOUND, 0, "there is no user '%s' (setting 'user')", user);
    if (found->pw_uid == 0)
        return err_set(err, ERR_DENIED, 0, "the front must not run as root (setting 'user')");
    b->front_uid = found->pw_uid;
    b->front_gid = found->pw_gid;
    return 0;
}

/* What is opened later never lands on 0, 1 or 2; and what this process knows stays in it. */
static void prepare_process(void)
{
    const struct rlimit none = {0, 0};
    struct rlimit files;
    sigset_t signals;

    int fd;
    do {
        fd =
            open("/dev/null", O_RDWR); /* kept if it is one of them; NOLINT(android-cloexec-open) */
    } while (fd >= 0 && fd <= 2);
    scope_close(&fd);
    (void)setrlimit(RLIMIT_CORE, &none);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)umask(022);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* ulimit -f: a file that may not grow is an error, told */
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: all have it so */
}

/* In a chroot the kernel refuses user namespaces; root can do something about it, but only for the
 * whole process: so before there are threads. */
static void leave_chroot_if_need_be(void)
{
    int status = 0;

    if (geteuid() != 0)
        return;
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) < 0 && errno == EPERM ? 1 : 0);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || !WEXITSTATUS(status))
        return;
    if (carrel_leave_chroot() < 0)
        log_warning("chroot", "then", "trying without leaving it", NULL);
}

/* Beside this program, or where it was installed. */
static int find_part(const char *name, char *path, size_t size)
{
    static const char *const places[] = {"", "../libexec/carrel/"};
    ssize_t n = readlink("/proc/self/exe", path, size - 128);

    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s%s", places[i], name);
        if (access(path, X_OK) == 0)
            return 0;
    }
    path[0] = '\0';
    return -1;
}

/* Opened now: the user that it runs as may not be able to reach it. */
static int open_part(const char *name, int *ret, struct err *err)
{
    char path[4096];

    if (find_part(name, path, sizeof(path)) < 0)
        return err_set(err, ERR_NOT_FOUND, 0, "%s, a part of Carrel, is missing; reinstall Carrel",
                       name);
    *ret = open(path, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? err_set(err, ERR_IO, errno, "open '%s'", path) : 0;
}

static int find_parts(struct broker *b, struct err *err)
{
    const struct {
        const char *name;
        int *to;
    } parts[] = {{"carrel-front", &b->front_program},   {"carrel-files", &b->files_program},
                 {"carrel-plan", &b->plan_program},     {"carrel-sink", &b->sink_program},
                 {"carrel-export", &b->export_program}, {"carrel-egress", &b->egress_program},
                 {"carrel-mover", &b->mover_program},   {"carrel-tls", &b->tls_program}};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (open_part(parts[i].name, parts[i].to, err) < 0)
            return -1;
    }
    (void)find_part("carrel-egress", b->egress_path, sizeof(b->egress_path));
    (void)find_part("carrel-init", b->init_path, sizeof(b->init_path)); /* else the engine looks */
    return 0;
}

static void open_pool(struct broker *b)
{
    struct carrel_pool_options options = {
        .like = {.level = CARREL_LEVEL_NS, .init_path = *b->init_path ? b->init_path : NULL},
        .size = (unsigned)(b->settings.pool > 64 ? 64 : b->settings.pool),
        .idle_ms = POOL_IDLE_MS,
    };
    struct carrel_error error;

    if (options.size == 0)
        return;
    if (carrel_pool_open(&options, &b->pool, &error) < 0) {
        b->pool = NULL;
        log_warning("pool_failed", "error", error.message, "then",
                    "every sandbox is made when it is asked for", NULL);
    }
}

static int record_start(struct broker *b, struct err *err)
{
    char details[192];

    snprintf(details, sizeof(details),
             "{\"version\":\"%s\",\"previous\":\"%s\"" AUDIT_SIGNED "%ju}", CARREL_VERSION,
             b->was_killed ? "was killed, with every sandbox" : "stopped",
             (uintmax_t)b->heads_through);
    struct audit_record record = {.actor = "broker",
                                  .workspace = "",
                                  .request = "",
                                  .operation = AUDIT_START,
                                  .result = "ok",
                                  .details = details};
    /* First what was left open: a start that dies in between leaves it to the next one. */
    if ((b->was_killed && record_recover(b, err) < 0) || record_add(b, &record, NULL, err) < 0)
        return -1;
    b->began = true;
    record_write(b); /* in the file before anybody is answered: who looks finds this start */
    heads_first(b);
    return 0;
}

static void say_listening(const struct broker *b)
{
    char tcp[128];
    char tls[128];
    char path[128];
    char key[sizeof(b->settings.state) + 16];

    listen_describe(b, tcp, sizeof(tcp), path, sizeof(path));
    listen_describe_tls(b, tls, sizeof(tls));
    snprintf(key, sizeof(key), "%s/admin.key", b->settings.state);
    log_info("listening", "address", *tcp ? tcp : NULL, "socket", *path ? path : NULL, "key", key,
             *tls ? "https" : NULL, tls, NULL);
}

/* Before anything is made: a start that is refused does not pass for a first one. */
static bool has_key(const struct broker *b)
{
    char path[sizeof(b->settings.state) + 16];

    snprintf(path, sizeof(path), "%s/admin.key", b->settings.state);
    return access(path, F_OK) == 0;
}

static int serve(struct broker *b, const struct options *options, struct err *err)
{
    bool may_go_beyond = b->settings.insecure_listen || (options->listen && has_key(b));

    /* The parts are found by where this program is, which a chroot that was left does not tell. */
    if (choose_front(b, err) < 0 || choose_helpers(b, err) < 0 || find_parts(b, err) < 0)
        return -1;
    leave_chroot_if_need_be();
    /* As root also the front's user is kept out. Rootless the engine needs its own /proc files. */
    if (geteuid() == 0)
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (listen_check(b, may_go_beyond, err) < 0 || state_open(b, err) < 0 ||
        settings_complete(&b->settings, err) < 0 || egress_check_settings(b, err) < 0 ||
        tls_check(b, err) < 0 || secrets_begin(b, err) < 0)
        return -1;
    if (listen_open(b, err) < 0 || tls_begin(b, err) < 0)
        return -1;
    int r = events_open(&b->events);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "make a loop");
    if (record_open(b, err) < 0 || heads_start(b, err) < 0 || record_start(b, err) < 0)
        return -1;
    if (b->was_killed)
        log_warning("previous_was_killed", "then", "its sandboxes ended with it", NULL);
    session_sweep();
    open_pool(b);
    if (plans_recover_all(b, err) < 0)
        return -1;
    cache_begin(b);
    say_listening(b);
    if (front_start(b, err) < 0)
        return -1;
    tls_start(b);
    store_mounts_resume(b);
    files_prepare(b);
    asleep_prepare(b);
    export_start(b);
    r = broker_run(b, err);
    asleep_close(b);
    files_close(b);
    if (b->pool)
        carrel_pool_close(b->pool);
    events_close(b->events);
    return r;
}

int main(int argc, char **argv)
{
    static struct broker broker = {.state = -1,
                                   .lock = -1,
                                   .socket = -1,
                                   .front_program = -1,
                                   .files_program = -1,
                                   .sink_program = -1,
                                   .export_program = -1,
                                   .plan_program = -1,
                                   .egress_program = -1,
                                   .mover_program = -1,
                                   .mount_room = {.ns = -1},
                                   .tls_program = -1,
                                   .tls_listening = -1,
                                   .tls_door = -1,
                                   .front_door = -1,
                                   .front_watch = {.fd = -1},
                                   .socket_watch = {.fd = -1},
                                   .audit_watch = {.fd = -1}};
    struct options options = {.config = NULL};
    struct err err = {.code = ERR_NONE};

    (void)argc;
    prepare_process();
    if (read_settings(&broker.settings, &options, argv, &err) < 0)
        return say(&err);
    if (options.help)
        return help();
    if (options.version) {
        puts("carrel " CARREL_VERSION);
        return 0;
    }
    if (serve(&broker, &options, &err) < 0) {
        state_close(&broker, false);
        return say(&err);
    }
    return 0;
}
