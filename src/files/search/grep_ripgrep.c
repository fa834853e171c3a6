/* SPDX-License-Identifier: Apache-2.0 */
/* The search by ripgrep, as a child in the directory that is searched. It says
 *
 *   ./path NUL number ":" text "\n"     a match ("-" instead of ":": a line near one)
 *
 * and which of that is wanted is decided here. The child never outlives the call: it is killed with
 * the thread that started it, and waited for. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "files/core/search.h"
#include "files/search/grep.h"
#include "policy/glob.h"
#include "sys/process.h"

enum {
    MOST_ARGUMENTS = 320,
    MOST_GLOBS = 256, /* that are told to it; the others only decide here */
    STACK = 65536,
    BLOCK = 1 << 18,
    MOST_WORDS = 900,
    MOST_PATH = 1 << 20,
    MOST_MEMORY = 512 << 20,
    AT_ONCE = 4, /* of them; what they take is counted to nobody */
    LOOK_MS = 100,
    NOT_STARTED = 127,
};

struct child {
    pid_t pid;
    int out;
    int err;
};

/* --- starting it --- */

struct start {
    const char *program;
    const char *const *arguments;
    int dir;
    int in;
    int out;
    int err;
};

/* On a stack of its own in the memory of the server: system calls and nothing else. */
static int child_main(void *argument)
{
    static char *const no_environment[] = {NULL};
    const struct start *start = argument;
    struct rlimit memory = {MOST_MEMORY, MOST_MEMORY};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || fchdir(start->dir) < 0 ||
        dup2(start->in, 0) < 0 || dup2(start->out, 1) < 0 || dup2(start->err, 2) < 0 ||
        setrlimit(RLIMIT_DATA, &memory) < 0 || process_close_from(3, CLOSE_NOW) < 0)
        return NOT_STARTED;
    (void)execve(start->program, (char *const *)(uintptr_t)start->arguments, no_environment);
    return NOT_STARTED;
}

static pid_t start_child(struct start *start)
{
    char *stack = malloc(STACK);
    sigset_t all;
    sigset_t before;

    if (!stack)
        return -ENOMEM;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before); /* no handler runs on that stack */
    pid_t pid = clone(child_main, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, start);
    int error = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(stack);
    return pid < 0 ? -error : pid;
}

static int begin(struct grep *g, const char *program, const char *const *arguments,
                 struct child *ret)
{
    scoped_fd int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    scoped_fd int dir =
        open(g->single ? "/" : g->call->m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int out[2];
    int err[2];

    if (dir < 0)
        return -errno;
    if (nothing < 0)
        return -ENOSYS;
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) < 0) {
        int error = errno;
        (void)close(out[0]);
        (void)close(out[1]);
        return -error;
    }
    struct start start = {program, arguments, dir, g->single ? g->file : nothing, out[1], err[1]};
    ret->pid = start_child(&start);
    (void)close(out[1]);
    (void)close(err[1]);
    ret->out = out[0];
    ret->err = err[0];
    (void)fcntl(ret->out, F_SETPIPE_SZ, BLOCK);
    return ret->pid < 0 ? -ENOSYS : 0;
}

/* --- what it says --- */

struct saying {
    struct grep *g;

    enum {
        PATH,
        NUMBER,
        TEXT
    } at;
    struct buf path; /* as it was said; and the one before */
    struct buf last;
    struct buf text;
    struct grep_line line;
    bool wanted;
    bool begun;
    bool enough;
};

/* Beside matches it has a remark about a file in which, after some matches, a NUL was found: one
 * line without a NUL, in front of the next path. */
static const char *without_remarks(const char *path)
{
    static const char remark[] = ": WARNING: stopped searching binary file after match (found ";
    const char *found;

    while ((found = strstr(path, remark)) != NULL) {
        const char *next = strstr(found, "\n./");
        if (!next)
            break;
        path = next + 1;
    }
    return path;
}

static void new_file(struct saying *s)
{
    const char *path = without_remarks(s->path.p);

    if (s->begun)
        grep_end_file(s->g);
    path += strncmp(path, "./", 2) == 0 ? 2 : 0;
    s->begun = false;
    s->wanted = grep_wants(s->g, path, false);
    if (s->wanted) {
        s->begun = grep_begin_file(s->g, s->g->single ? "" : path);
        s->enough = !s->begun;
    }
    s->last.n = 0;
    buf_add(&s->last, s->path.p, s->path.n);
}

static const char *say_path(struct saying *s, const char *at, const char *end)
{
    const char *nul = memchr(at, '\0', (size_t)(end - at));

    buf_add(&s->path, at, (size_t)((nul ? nul : end) - at));
    if (!nul || buf_done(&s->path) < 0) {
        s->enough = s->enough || s->path.failed;
        return end;
    }
    if (s->last.n != s->path.n || memcmp(s->last.p, s->path.p, s->path.n) != 0)
        new_file(s);
    s->path.n = 0;
    s->line = (struct grep_line){0};
    s->at = NUMBER;
    return nul + 1;
}

static const char *say_number(struct saying *s, const char *at)
{
    if (*at >= '0' && *at <= '9') {
        s->line.number = s->line.number * 10 + (uint64_t)(*at - '0');
    } else {
        s->line.is_match = *at == ':';
        s->at = TEXT;
    }
    return at + 1;
}

static const char *say_text(struct saying *s, const char *at, const char *end)
{
    const char *to = memchr(at, '\n', (size_t)(end - at));
    size_t n = (size_t)((to ? to : end) - at);
    size_t room = GREP_MOST_TEXT - s->text.n;

    s->line.cut = s->line.cut || n > room;
    if (s->wanted && (s->text.n > 0 || !to))
        buf_add(&s->text, at, n < room ? n : room);
    if (!to)
        return end;
    bool gathered = s->text.n > 0;
    s->line.text = gathered ? s->text.p : at;
    s->line.n = gathered ? s->text.n : n < room ? n : room;
    if (s->wanted && !grep_line(s->g, &s->line))
        s->enough = true;
    s->text.n = 0;
    s->at = PATH;
    return to + 1;
}

static void say(struct saying *s, const char *at, size_t n)
{
    const char *end = at + n;

    while (at < end && !s->enough) {
        if (s->at == PATH)
            at = say_path(s, at, end);
        else
            at = s->at == NUMBER ? say_number(s, at) : say_text(s, at, end);
    }
    s->enough = s->enough || s->text.failed || s->last.failed;
}

/* --- listening to it --- */

/* False: it has ended. */
static bool hear_words(const struct child *child, struct buf *words)
{
    char bytes[1024];
    ssize_t n = read(child->err, bytes, sizeof(bytes));

    if (n > 0 && words->n < MOST_WORDS)
        buf_add(words, bytes, (size_t)n);
    return n > 0;
}

/* True: it has said all. */
static bool listen_to(const struct child *child, struct saying *s, struct buf *words, char *bytes)
{
    struct pollfd fds[3] = {{.fd = child->out, .events = POLLIN},
                            {.fd = child->err, .events = POLLIN},
                            {.fd = s->g->call->stream}};

    while (!s->enough && (fds[0].fd >= 0 || fds[1].fd >= 0)) {
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            break;
        if (fds[2].revents & (POLLHUP | POLLERR))
            break;
        if (fds[0].fd >= 0 && fds[0].revents) {
            ssize_t n = read(child->out, bytes, BLOCK);
            if (n > 0)
                say(s, bytes, (size_t)n);
            else if (n == 0 || errno != EINTR)
                fds[0].fd = -1;
        }
        if (fds[1].fd >= 0 && fds[1].revents && !hear_words(child, words))
            fds[1].fd = -1;
    }
    if (s->begun)
        grep_end_file(s->g);
    return fds[0].fd < 0 && fds[1].fd < 0 && !s->enough;
}

/* Its wait status; it does not run any more after that. */
static int end(struct child *child, bool by_itself)
{
    int status = 0;

    scope_close(&child->out);
    scope_close(&child->err);
    if (!by_itself)
        (void)kill(child->pid, SIGKILL); /* not waited for yet: the number is still its own */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status;
}

static int judge(struct grep *g, int status, bool has_words)
{
    if (!WIFEXITED(status)) {
        g->truncated = true; /* it was killed, perhaps by its own size */
        return 0;
    }
    if (WEXITSTATUS(status) == NOT_STARTED)
        return -ENOSYS;
    /* What it could not read makes it fail too, but without words. */
    return WEXITSTATUS(status) > 1 && g->file_count == 0 && has_words;
}

static int run(struct grep *g, const char *program, const char *const *arguments)
{
    struct child child = {-1, -1, -1};
    struct saying s = {.g = g};
    struct buf words;
    char *bytes = malloc(BLOCK);
    int r = bytes ? begin(g, program, arguments, &child) : -ENOMEM;

    buf_init(&words, 2 * MOST_WORDS + 1024);
    buf_init(&s.path, MOST_PATH);
    buf_init(&s.last, MOST_PATH);
    buf_init(&s.text, GREP_MOST_TEXT);
    if (r == 0) {
        bool all = listen_to(&child, &s, &words, bytes);
        int status = end(&child, all);
        if (all)
            r = judge(g, status, words.n > 0);
    }
    if (r == 1)
        answer_error(g->call, 400, "invalid_pattern", "%s", words.p);
    scope_close(&child.out);
    scope_close(&child.err);
    buf_clear(&s.path);
    buf_clear(&s.last);
    buf_clear(&s.text);
    buf_clear(&words);
    free(bytes);
    return r;
}

/* --- not too many --- */

static pthread_mutex_t turns = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_over = PTHREAD_COND_INITIALIZER;
static unsigned running;

/* False: the client did not wait. */
static bool take_turn(const struct grep *g)
{
    bool left = false;

    (void)pthread_mutex_lock(&turns);
    while (running >= AT_ONCE && !left) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&turn_over, &turns, &until);
        left = files_client_left(g->call);
    }
    running += !left;
    (void)pthread_mutex_unlock(&turns);
    return !left;
}

static void end_turn(void)
{
    (void)pthread_mutex_lock(&turns);
    running--;
    (void)pthread_cond_signal(&turn_over);
    (void)pthread_mutex_unlock(&turns);
}

/* --- what it is asked --- */

struct asking {
    struct arena arena;
    const char *arguments[MOST_ARGUMENTS];
    size_t n;
};

static void ask(struct asking *a, const char *argument)
{
    if (argument && a->n < MOST_ARGUMENTS - 1)
        a->arguments[a->n++] = argument;
}

/* How many of the globs could be told: all, or those that it may be told alone. */
static bool ask_glob(struct asking *a, const struct glob *glob, bool leave)
{
    for (size_t i = 0; i < glob_count(glob); i++) {
        scoped_buf struct buf text;
        bool exact = false;
        buf_init(&text, FILES_PATTERN);
        buf_str(&text, leave ? "-g!" : "-g");
        bool written = glob_write(glob, i, &text, &exact);
        /* What is left out here could not be searched any more; what is taken too much can. */
        if (leave && (!written || !exact))
            continue;
        if (!written || a->n >= MOST_GLOBS)
            return false;
        ask(a, arena_copy(&a->arena, text.p, text.n));
    }
    return true;
}

static void ask_globs(struct asking *a, const struct grep *g)
{
    size_t before = a->n;
    bool all = true;

    for (size_t i = 0; i < FILES_GLOBS && g->takes[i] && all; i++)
        all = ask_glob(a, g->takes[i], false);
    if (!all)
        a->n = before;
    for (size_t i = 0; i < FILES_GLOBS && g->leaves[i]; i++)
        (void)ask_glob(a, g->leaves[i], true);
    if (g->call->m->path[1])
        return;
    for (size_t i = 0; search_passed[i]; i++)
        ask(a, arena_printf(&a->arena, "-g!/%s", search_passed[i]));
}

static const char *option(struct asking *a, const char *name, uint64_t number)
{
    return arena_printf(&a->arena, "--%s=%llu", name, (unsigned long long)number);
}

int grep_by_ripgrep(struct grep *g, const char *program)
{
    static const char *const always[] = {"rg",
                                         "--no-config",
                                         "--no-messages",
                                         "--no-ignore",
                                         "--hidden",
                                         "--null",
                                         "-nH",
                                         "--no-heading",
                                         "--color=never",
                                         "--encoding=none",
                                         "--no-mmap",
                                         "--sort=none",
                                         "--max-columns-preview",
                                         "--no-context-separator"};
    const struct files_message *m = g->call->m;
    struct asking a = {0};

    if (!bytes_are_utf8(m->pattern, strlen(m->pattern)))
        return -ENOSYS; /* it searches for characters only */
    arena_init(&a.arena, 1 << 21);
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        ask(&a, always[i]);
    ask(&a, option(&a, "max-columns", GREP_MOST_TEXT + 4));
    if (m->limit < UINT32_MAX)
        ask(&a, option(&a, "max-count", m->limit + 1));
    if (g->context > 0)
        ask(&a, option(&a, "context", g->context));
    ask(&a, m->flags & FILES_IGNORE_CASE ? "-i" : "-s");
    if (!(m->flags & FILES_REGEX))
        ask(&a, "-F");
    if (!g->single)
        ask_globs(&a, g);
    ask(&a, arena_printf(&a.arena, "--regexp=%s", m->pattern));
    ask(&a, "--");
    ask(&a, g->single ? "-" : ".");
    int r = a.n > 0 && strcmp(a.arguments[a.n - 2], "--") == 0 ? 0 : -ENOMEM;
    if (r == 0 && !take_turn(g))
        r = -EPIPE;
    if (r == 0) {
        r = run(g, program, a.arguments);
        end_turn();
    }
    arena_clear(&a.arena);
    return r;
}
