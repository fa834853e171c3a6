/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/local/tool.h"
#include "base/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/answers.h"
#include "base/fd.h"
#include "sys/process.h"

enum {
    NO_TOOL = 125, /* its status when it could not become carrel-plan */
    TREE_FD = 3,
    DIR_FD = 4,
    ABOVE = 10, /* our own descriptors, so that none is written over before it is used */
    ANSWER_MAX = 256 << 20,
};

/* A file that holds the job: nobody has to write while the answer is read. */
static int job_file(const char *job, struct err *err)
{
    size_t n = strlen(job);
    int fd = memfd_create("job", MFD_CLOEXEC);

    if (fd < 0)
        return err_set(err, ERR_IO, errno, "memfd_create");
    while (n > 0) {
        ssize_t wrote = write(fd, job, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            err_set(err, ERR_IO, errno, "the job cannot be written");
            (void)close(fd);
            return -1;
        }
        job += wrote;
        n -= (size_t)wrote;
    }
    (void)lseek(fd, 0, SEEK_SET);
    return fd;
}

int plan_own(int tree, int dir, struct err *err)
{
    static const char *const parts[] = {"", "manifest", "look", "journal", "slots"};
    struct stat st;

    if (geteuid() != 0)
        return 0;
    if (fstat(tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "stat of the directory");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        int flags = AT_SYMLINK_NOFOLLOW | (*parts[i] ? 0 : AT_EMPTY_PATH);
        if (fchownat(dir, parts[i], st.st_uid, st.st_gid, flags) < 0 && errno != ENOENT)
            return err_set(err, ERR_IO, errno,
                           "the plan's files cannot be given to the owner of "
                           "the directory");
    }
    return 0;
}

/* In the child: system calls only. As root it becomes the tree's owner, who loses nothing but
 * capabilities by it; only derive must see what the kernel shows to root alone. */
static int drop_rights(int tree, const char *verb)
{
    struct stat st;

    if (geteuid() != 0 || strcmp(verb, "derive") == 0)
        return 0;
    if (fstat(tree, &st) < 0)
        return -1;
    if (st.st_uid == 0)
        return 0;
    return setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
                   setresuid(st.st_uid, st.st_uid, st.st_uid) < 0
               ? -1
               : 0;
}

static int start(int files[4], const char *verb, pid_t *ret, struct err *err)
{
    static const int places[] = {STDIN_FILENO, STDOUT_FILENO, TREE_FD, DIR_FD};
    char path[4096];
    char name[] = "carrel-plan";
    char word[16];
    char *const argv[] = {name, word, NULL};
    char *const environment[] = {NULL};

    if (!program_find(name, path, sizeof(path)))
        return err_set(err, ERR_NOT_FOUND, 0,
                       "carrel-plan, a part of Carrel, is missing; reinstall Carrel");
    snprintf(word, sizeof(word), "%s", verb);
    scoped_fd int opened = open(path, O_RDONLY | O_CLOEXEC); /* the owner may not reach it */
    scoped_fd int program = opened < 0 ? -1 : fcntl(opened, F_DUPFD_CLOEXEC, ABOVE);
    if (program < 0)
        return err_set(err, ERR_IO, errno, "open '%.200s'", path);
    *ret = fork();
    if (*ret == 0) {
        for (size_t i = 0; i < 4; i++) {
            if (dup2(files[i], places[i]) < 0)
                _exit(NO_TOOL);
        }
        /* What our caller has left open stays ours: 5 is where carrel-plan tells its steps. */
        if (process_close_from(DIR_FD + 1, CLOSE_AT_EXEC) == 0 && drop_rights(TREE_FD, verb) == 0)
            (void)fexecve(program, argv, environment);
        _exit(NO_TOOL);
    }
    return *ret < 0 ? err_set(err, ERR_IO, errno, "start carrel-plan") : 0;
}

static void read_all(int fd, struct buf *ret)
{
    char bytes[65536 / 2];
    ssize_t n;

    while ((n = read(fd, bytes, sizeof(bytes))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        buf_add(ret, bytes, (size_t)n); /* past its end nothing is kept, and all is read */
    }
}

static int explain(const char *text, struct err *err)
{
    json_t *answer = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    const char *code = "";
    const char *message = "carrel-plan failed without a word";

    (void)json_unpack(answer, "{s:{s?s,s?s}}", "error", "code", &code, "message", &message);
    enum err_said said = err_said_of(code);
    enum err_code kind = err_answer(said)->plan;
    err_set(err, kind == ERR_NONE ? ERR_IO : kind, 0, "%.300s%s%.40s%s", message, *code ? " (" : "",
            code, *code ? ")" : "");
    json_decref(answer);
    return -1;
}

/* The last line is where an error is told. */
static const char *last_line(const struct buf *text)
{
    size_t n = text->n;

    while (n > 0 && text->p[n - 1] == '\n')
        n--;
    const char *newline = n ? memrchr(text->p, '\n', n) : NULL;
    return newline ? newline + 1 : text->p ? text->p : "";
}

static int run(int files[4], int answer, const char *verb, struct buf *ret, struct err *err)
{
    int status = 0;
    pid_t pid = -1;

    int r = start(files, verb, &pid, err);
    (void)close(files[STDOUT_FILENO]);
    files[STDOUT_FILENO] = -1;
    if (r < 0)
        return -1;
    read_all(answer, ret);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (buf_done(ret) < 0)
        return err_set(err, ERR_LIMIT, 0, "the answer of carrel-plan is too long");
    if (WIFSIGNALED(status))
        return err_set(err, ERR_IO, 0, "carrel-plan was ended by signal %d; run it again",
                       WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? 0 : explain(last_line(ret), err);
}

int plan_tool(int tree, int dir, const char *verb, const char *job, struct buf *ret,
              struct err *err)
{
    int files[4] = {-1, -1, -1, -1};
    int ends[2] = {-1, -1};
    int given = job_file(job, err);
    int r = given < 0 ? -1 : 0;

    if (r == 0 && pipe2(ends, O_CLOEXEC) < 0)
        r = err_set(err, ERR_IO, errno, "pipe");
    const int from[4] = {given, ends[1], tree, dir};
    for (size_t i = 0; i < 4 && r == 0; i++) {
        files[i] = fcntl(from[i], F_DUPFD_CLOEXEC, ABOVE);
        if (files[i] < 0)
            r = err_set(err, ERR_IO, errno, "a descriptor cannot be copied");
    }
    if (given >= 0)
        (void)close(given);
    if (ends[1] >= 0)
        (void)close(ends[1]);
    if (r == 0)
        r = run(files, ends[0], verb, ret, err);
    if (ends[0] >= 0)
        (void)close(ends[0]);
    for (size_t i = 0; i < 4; i++) {
        if (files[i] >= 0)
            (void)close(files[i]);
    }
    return r;
}

int plan_tool_answer(int tree, int dir, const char *verb, const char *job, json_t **ret,
                     struct err *err)
{
    scoped_buf struct buf answer;

    buf_init(&answer, ANSWER_MAX);
    if (plan_tool(tree, dir, verb, job, &answer, err) < 0)
        return -1;
    *ret = json_loadb(answer.p, answer.n, 0, NULL);
    if (json_is_object(*ret))
        return 0;
    json_decref(*ret);
    *ret = NULL;
    return err_set(err, ERR_IO, 0, "the answer of carrel-plan cannot be read");
}

uint64_t plan_in_force(const json_t *answer)
{
    json_int_t n = json_integer_value(json_object_get(answer, "in_force"));

    return n > 0 ? (uint64_t)n : 0;
}
