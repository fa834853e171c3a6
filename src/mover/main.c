/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-mover VERB [OPTIONS]: see mover.h. Descriptor 3 is the store's configuration. */
#include "mover/mover.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "sys/landlock.h"

enum {
    CONFIG = 3,
    FAILED = 1,
    MOST_EXCLUDES = 128,
    MOST_PLACES = 32,
};

static const struct {
    const char *verb;
    int (*run)(struct mover *m, json_t **ret, struct err *err);
} jobs[] = {
    {"check", job_check},
    {"mirror", job_mirror},
    {"hydrate", job_hydrate},
    {"mount", job_mount},
};

void mover_tell(json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);

    json_decref(line);
    if (text && fd_write_all(STDOUT_FILENO, text, strlen(text)) == 0)
        ignore(fd_write_all(STDOUT_FILENO, "\n", 1) == 0); /* nobody listens */
    free(text);
}

static int read_all(int fd, char **ret, struct err *err)
{
    char *text = malloc(STORE_TEXT + 1);
    size_t n = 0;

    while (text && n < STORE_TEXT) {
        ssize_t got = pread(fd, text + n, STORE_TEXT - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (!text)
        return err_set(err, ERR_LIMIT, ENOMEM, "read the store's configuration");
    text[n] = '\0';
    *ret = text;
    return 0;
}

/* "RCLONE_CONFIG_STORE_KEY=value": in the environment, and not in a file that a symlink in the tree
 * could lead to while it is read. */
static int make_environment(struct mover *m, struct err *err)
{
    /* Of a mount the first directory is this program's own (broker/mover_process.c). */
    const char *const first[] = {m->serves ? "PATH=/tmp/bin" : "PATH=/usr/local/bin:/usr/bin:/bin",
                                 "LC_ALL=C.UTF-8", "HOME=/nonexistent", "RCLONE_CONFIG="};
    size_t n = sizeof(first) / sizeof(first[0]);
    char **all = calloc(n + STORE_KEYS + 1, sizeof(*all));

    if (!all)
        return err_set(err, ERR_LIMIT, ENOMEM, "write rclone's configuration");
    m->environment = all;
    for (size_t i = 0; i < n; i++)
        all[i] = (char *)(uintptr_t)first[i];
    for (size_t i = 0; i < m->conf.count; i++) {
        const struct store_key_value *kv = &m->conf.keys[i];
        char key[STORE_PATH];
        size_t k = 0;
        for (; kv->key[k] && k < sizeof(key) - 1; k++)
            key[k] = kv->key[k] >= 'a' && kv->key[k] <= 'z' ? (char)(kv->key[k] - 'a' + 'A')
                                                            : kv->key[k];
        key[k] = '\0';
        if (asprintf(&all[n++], "RCLONE_CONFIG_STORE_%s=%s", key, kv->value) < 0)
            return err_set(err, ERR_LIMIT, ENOMEM, "write rclone's configuration");
    }
    return 0;
}

/* The tree to read, what is kept to write, and what a program needs that talks to the network. Not
 * /proc: with what is secret in its environment, nothing may lead there from the tree. */
static int confine(const struct mover *m, struct err *err)
{
    static const struct landlock_place shared[] = {
        {.path = "/usr/bin", .runs = true},
        {.path = "/usr/local/bin", .runs = true, .may_lack = true},
        {.path = "/usr/lib", .runs = true},
        {.path = "/lib", .runs = true, .may_lack = true},
        {.path = "/lib64", .runs = true, .may_lack = true},
        {.path = "/usr/lib64", .runs = true, .may_lack = true},
        {.path = "/etc/resolv.conf", .may_lack = true},
        {.path = "/etc/hosts", .may_lack = true},
        {.path = "/etc/nsswitch.conf", .may_lack = true},
        {.path = "/etc/host.conf", .may_lack = true},
        {.path = "/etc/gai.conf", .may_lack = true},
        {.path = "/etc/localtime", .may_lack = true},
        {.path = "/etc/ld.so.cache", .may_lack = true},
        {.path = "/etc/ssl/certs", .may_lack = true},
        {.path = "/etc/ssl/openssl.cnf", .may_lack = true},
        {.path = "/etc/ca-certificates", .may_lack = true},
        {.path = "/etc/pki", .may_lack = true},
        {.path = "/usr/share/ca-certificates", .may_lack = true},
        {.path = "/usr/local/share/ca-certificates", .may_lack = true},
        {.path = "/usr/share/zoneinfo", .may_lack = true},
        {.path = "/run/systemd/resolve", .may_lack = true},
        {.path = "/dev/urandom"},
        {.path = "/dev/null", .writes = true},
    };
    struct landlock_place places[MOST_PLACES];
    size_t n = sizeof(shared) / sizeof(shared[0]);
    unsigned port = store_conf_port(&m->conf);
    const uint16_t ports[] = {53, (uint16_t)port};

    memcpy(places, shared, sizeof(shared));
    if (*m->tree)
        places[n++] =
            (struct landlock_place){.path = m->tree, .writes = m->fills, .makes = m->fills};
    if (*m->state)
        places[n++] = (struct landlock_place){.path = m->state, .writes = true, .makes = m->serves};
    if (*m->program)
        places[n++] = (struct landlock_place){.path = m->program, .runs = true};
    if (m->serves) {
        places[n++] = (struct landlock_place){.path = "/tmp/bin", .runs = true};
        places[n++] = (struct landlock_place){.path = "/tmp/connections"};
        places[n++] = (struct landlock_place){
            .path = "/proc/self/fd/7", .writes = true, .makes = true, .unasked = true};
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_set(err, ERR_KERNEL, errno, "give up privileges");
    int r = landlock_confine(places, n, ports, port ? 2 : LANDLOCK_ANY_PORT);
    return r < 0 && r != -ENOSYS ? err_set(err, ERR_KERNEL, -r, "enter a Landlock domain") : 0;
}

static int prepare(struct mover *m, struct err *err)
{
    if (read_all(CONFIG, &m->conf_text, err) < 0)
        return -1;
    (void)close(CONFIG);
    if (store_conf_parse(m->conf_text, &m->conf, err) < 0 || rclone_find(m, err) < 0)
        return -1;
    if (*m->state) {
        m->state_fd = open(m->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (m->state_fd < 0)
            return err_set(err, ERR_IO, errno, "open what is kept of the mirror");
    }
    if (confine(m, err) < 0 || make_environment(m, err) < 0)
        return -1;
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
               ? 0
               : err_set(err, ERR_LIMIT, ENOMEM, "open libcurl");
}

static int parse(struct mover *m, char **argv, const char **excludes, struct err *err)
{
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"--workspace", &m->workspace}, {"--daemon", &m->daemon}, {"--tree", &m->tree},
                 {"--rclone", &m->program},      {"--cache", &m->cache},   {"--state", &m->state}};

    size_t n = 0;

    for (int i = 2; argv[i]; i++) {
        const char **to = NULL;
        if (strcmp(argv[i], "--take-over") == 0) {
            m->take_over = true;
            continue;
        }
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            if (strcmp(argv[i], texts[k].name) == 0)
                to = texts[k].to;
        }
        if (strcmp(argv[i], "--exclude") == 0 && n < MOST_EXCLUDES)
            to = &excludes[n++];
        if (!to || !argv[i + 1])
            return err_set(err, ERR_INVALID, 0, "'%.64s' is not an option", argv[i]);
        *to = argv[++i];
    }
    return 0;
}

/* A path in it may be no text, or be cut within a letter. */
static const char *make_text(char *text)
{
    size_t n = strlen(text);
    uint32_t unused;

    for (size_t at = 0, bytes; at < n; at += bytes) {
        bytes = utf8_next(text + at, n - at, &unused);
        if (bytes == 0)
            text[at] = '?';
        bytes += bytes == 0;
    }
    return text;
}

static int tell_failure(const struct mover *m, const struct err *err)
{
    char text[512];

    (void)err_text(err, text, sizeof(text));
    if (m->serves) {
        ignore(dprintf(STDOUT_FILENO, "X %s\n", text) > 0); /* nobody listens */
        return FAILED;
    }
    mover_tell(json_pack("{s:{s:s, s:s}}", "error", "code", m->code ? m->code : "store_failed",
                         "message", make_text(text)));
    return FAILED;
}

int main(int argc, char **argv)
{
    static const char *excludes[MOST_EXCLUDES + 1];
    static struct mover m = {.workspace = "",
                             .daemon = "",
                             .tree = "",
                             .program = "",
                             .cache = "0",
                             .state = "",
                             .exclude = excludes,
                             .state_fd = -1};
    struct err err = {.code = ERR_NONE};
    json_t *done = NULL;
    int r = -1;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    const char *name = argc ? strrchr(argv[0], '/') : NULL;
    if (argc && strncmp(name ? name + 1 : argv[0], "fusermount", 10) == 0)
        return mount_hand_over(argv);
    if (argc < 2) {
        fputs("carrel-mover is a part of carrel serve\n", stderr);
        return FAILED;
    }
    m.fills = strcmp(argv[1], "hydrate") == 0;
    m.serves = strcmp(argv[1], "mount") == 0;
    if (parse(&m, argv, excludes, &err) < 0 || prepare(&m, &err) < 0)
        return tell_failure(&m, &err);
    err_set(&err, ERR_INVALID, 0, "'%.64s' is not a job", argv[1]);
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        if (strcmp(argv[1], jobs[i].verb) == 0)
            r = jobs[i].run(&m, &done, &err);
    }
    if (r < 0)
        return tell_failure(&m, &err);
    mover_tell(json_pack("{s:o}", "done", done));
    return 0;
}
