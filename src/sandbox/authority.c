/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/authority.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "policy/network_inner.h"
#include "sandbox/netnames.h"
#include "sys/process.h"

enum {
    ANSWER = 1 << 20,
    WAIT_MS = 10000,
    MOST_ENV = NETWORK_MOST + 16,
    PLACEHOLDER = 96,
};

const char *authority_of_host(void)
{
    static const char *const known[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (access(known[i], R_OK) == 0)
            return known[i];
    }
    return NULL;
}

/* As Debian and Fedora have it. */
const char *authority_java_of_host(void)
{
    static const char *const known[] = {"/etc/ssl/certs/java/cacerts",
                                        "/etc/pki/ca-trust/extracted/java/cacerts"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (access(known[i], R_OK) == 0)
            return known[i];
    }
    return NULL;
}

/* --- the program that makes it --- */

/* In the child of a process that may have threads: system calls only. */
static _Noreturn void become_maker(int program, int in, int out, const char *const *argv)
{
    static const char *const env[] = {"LC_ALL=C.UTF-8", NULL};
    sigset_t none;

    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || process_close_from(3, CLOSE_AT_EXEC) < 0)
        _exit(120);
    (void)syscall(SYS_execveat, program, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

static int read_answer(int fd, struct buf *ret)
{
    uint64_t due = now_ms() + WAIT_MS;
    char piece[4096];

    for (;;) {
        struct pollfd word = {.fd = fd, .events = POLLIN};
        uint64_t now = now_ms();
        if (now >= due || poll(&word, 1, (int)(due - now)) < 0)
            return -1;
        ssize_t n = read(fd, piece, sizeof(piece));
        if (n == 0)
            return buf_done(ret);
        if (n < 0)
            return -1;
        buf_add(ret, piece, (size_t)n);
        explicit_bzero(piece, (size_t)n);
    }
}

static int run_maker(const char *path, const char *const *argv, struct buf *ret, struct err *err)
{
    const char *store = authority_java_of_host();
    int ends[2];
    scoped_fd int program = process_high_fd(open(path, O_PATH | O_CLOEXEC));
    scoped_fd int java = process_high_fd(open(store ? store : "/dev/null", O_RDONLY | O_CLOEXEC));

    if (program < 0 || java < 0)
        return err_set(err, ERR_NOT_FOUND, errno,
                       "open '%s', the part of Carrel that makes connections; reinstall Carrel",
                       path);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, ERR_LIMIT, errno, "make a pipe");
    scoped_fd int in = process_high_fd(ends[0]);
    scoped_fd int out = process_high_fd(ends[1]);
    pid_t pid = in >= 0 && out >= 0 ? fork() : -1;
    if (pid == 0)
        become_maker(program, java, out, argv);
    if (pid < 0)
        return err_set(err, ERR_LIMIT, errno, "start carrel-egress");
    scope_close(&out);
    int status = 0;
    int r = read_answer(in, ret);
    if (r < 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return r < 0 || status != 0
               ? err_set(err, ERR_KERNEL, 0,
                         "carrel-egress could not make the authority of the sandbox, which rules "
                         "with methods, paths, secrets or tls=inspect need")
               : 0;
}

/* --- what it says --- */

static int take_answer(struct run *run, const struct buf *answer, struct err *err)
{
    const char *end = answer->p ? memchr(answer->p, '\n', answer->n) : NULL;
    size_t n = end ? (size_t)(end + 1 - answer->p) : 0;
    const char *next = end ? memchr(end + 1, '\n', answer->n - n) : NULL;

    if (!next)
        return err_set(err, ERR_KERNEL, 0, "carrel-egress made no authority");
    run->authority_key = arena_copy(&run->arena, answer->p, n - 1);
    run->authority_java = arena_copy(&run->arena, end + 1, (size_t)(next - end) - 1);
    n = (size_t)(next + 1 - answer->p);
    run->authority_cert = arena_copy(&run->arena, next + 1, answer->n - n);
    return run->authority_key && run->authority_cert && run->authority_java
               ? 0
               : err_set(err, ERR_LIMIT, 0, "out of memory");
}

int authority_get(struct run *run, const struct network_rule *rules, size_t count, struct err *err)
{
    const char **argv = arena_alloc(&run->arena, (count + 3) * sizeof(*argv));
    scoped_buf struct buf answer;
    size_t n = 0;

    buf_init(&answer, ANSWER);
    if (!argv)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    argv[n++] = "carrel-egress";
    argv[n++] = "--authority";
    for (size_t i = 0; i < count; i++) {
        if (rules[i].inspect)
            argv[n++] = arena_copy(&run->arena, rules[i].name, strlen(rules[i].name));
    }
    if (n == 2)
        return 0;
    if (run->dry) {
        run->authority_key = "";
        run->authority_java = "";
        run->authority_cert = "(made when the sandbox is)\n";
        return 0;
    }
    int r = run_maker(netnames_program(run->spec), argv, &answer, err);
    if (r == 0)
        r = take_answer(run, &answer, err);
    if (answer.p)
        explicit_bzero(answer.p, answer.n);
    return r;
}

/* --- inside --- */

const char *const *authority_env(const struct run *run, struct arena *arena)
{
    static const char *const bundles[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                          "GIT_SSL_CAINFO", "AWS_CA_BUNDLE"};
    static const char *const none[] = {NULL};
    const char *dir = run->spec->base ? AUTHORITY_SYSTEM_DIR : AUTHORITY_DIR;
    const char **env = arena_alloc(arena, (MOST_ENV + 1) * sizeof(*env));
    struct network_rule rule;
    char placeholder[PLACEHOLDER];
    struct err err;
    size_t n = 0;

    if (!env || !run->authority_cert)
        return none;
    for (size_t i = 0; i < sizeof(bundles) / sizeof(bundles[0]); i++)
        env[n++] = arena_printf(arena, "%s=/%s/" AUTHORITY_BUNDLE, bundles[i], dir);
    env[n++] = arena_printf(arena, "NODE_EXTRA_CA_CERTS=/%s/" AUTHORITY_FILE, dir);
    for (size_t i = 0; run->spec->net_rules[i] && n < MOST_ENV; i++) {
        if (network_parse_rule(run->spec->net_rules[i], &rule, &err) < 0 || !rule.secret)
            continue;
        network_placeholder(network_inner(&rule, rule.secret), placeholder, sizeof(placeholder));
        env[n] = arena_printf(arena, "%s=%s", network_inner(&rule, rule.env), placeholder);
        n += env[n] != NULL;
    }
    return env;
}
