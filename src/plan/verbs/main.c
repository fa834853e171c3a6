/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-plan: one job on one plan, and ends.
 *
 *   carrel-plan VERB  <job  3<tree  4<plan's directory  [5>steps  6<base  7<theirs]  >answer
 *
 * Whoever starts it has given it the ids and taken the privileges that the verb is to have. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/answers.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "plan/core/plan.h"
#include "plan/core/verbs.h"
#include "plan/verbs/confine.h"

enum {
    TREE = 3,
    DIRECTORY = 4,
    STEPS = 5,
    BASE = 6,
    THEIRS = 7,
    MOST_JOB =
        (1 << 20) + 32 * PLAN_MAX_OPERATIONS, /* a policy, and all operations chosen singly */
    MOST_TEXT = 96 << 20,                     /* a written plan with the content in it */
};

static const struct verb {
    const char *name;
    verb_function *run;
    bool needs_tree;
    bool takes_text;                   /* stdin is its input, not a job */
    enum plan_confinement confinement; /* before it reads anything */
} verbs[] = {
    {"derive", verb_derive, true, false, PLAN_CONFINED_LAYER},
    {"submit", verb_submit, true, true, PLAN_CONFINED},
    {"show", verb_show, false, false, PLAN_CONFINED},
    {"diff", verb_diff, true, false, PLAN_CONFINED_DIFF},
    {"view", verb_view, true, false, PLAN_CONFINED_LAYER},
    {"verify", verb_verify, true, false, PLAN_CONFINED},
    {"apply", verb_apply, true, false, PLAN_CONFINED},
    {"undo", verb_undo, true, false, PLAN_CONFINED},
    {"recover", verb_recover, true, false, PLAN_CONFINED},
    {"journal", verb_journal, false, false, PLAN_CONFINED},
    {"drop", verb_drop, false, false, PLAN_CONFINED},
    {"snapshot", verb_snapshot, true, false, PLAN_CONFINED_COPY},
    {"snapshot-fork", verb_snapshot, true, false, PLAN_CONFINED_FORK},
    {"snapshots", verb_snapshots, true, false, PLAN_CONFINED_COPY},
    {"merge", verb_merge, true, false, PLAN_CONFINED_MERGE},
    {"compare", verb_compare, true, false, PLAN_CONFINED_MERGE},
};

static int read_input(struct buf *b, struct err *err)
{
    char piece[32768];
    ssize_t got;

    while ((got = read(STDIN_FILENO, piece, sizeof(piece))) != 0) {
        if (got < 0 && errno != EINTR)
            return err_set(err, ERR_IO, errno, "read the job");
        buf_add(b, piece, got > 0 ? (size_t)got : 0);
        if (b->failed)
            return err_set(err, ERR_LIMIT, 0, "what is to be read is larger than %zu MiB",
                           b->max >> 20);
    }
    return buf_done(b) < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "read the job") : 0;
}

static bool is_directory(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static int run(const struct verb *verb, json_t *answer, struct err *err)
{
    scoped_buf struct buf input = {0};
    json_error_t why;
    json_t *job = NULL;

    struct verb_call call = {.tree = is_directory(TREE) ? TREE : -1,
                             .dir = DIRECTORY,
                             .base = is_directory(BASE) ? BASE : -1,
                             .theirs = is_directory(THEIRS) ? THEIRS : -1,
                             .steps = fcntl(STEPS, F_GETFD) >= 0 ? STEPS : -1};
    if (!is_directory(DIRECTORY) || (verb->needs_tree && call.tree < 0))
        return err_set(err, ERR_INVALID, 0,
                       "'%s' needs the plan's directory as descriptor 4 and the tree as 3",
                       verb->name);
    bool is_within = true;
    const struct plan_within within = {call.tree, call.dir, {call.base, call.theirs}};
    if (plan_confine(verb->confinement, &within, &is_within, err) < 0)
        return -1;
    buf_init(&input, verb->takes_text ? MOST_TEXT : MOST_JOB);
    if (read_input(&input, err) < 0)
        return -1;
    call.text = input.p;
    call.n = input.n;
    if (!verb->takes_text) {
        job = json_loadb(input.p, input.n, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(job)) {
            json_decref(job);
            return err_set(err, ERR_INVALID, 0, "the job is no JSON object");
        }
        call.job = job;
    }
    int r = verb->run(&call, answer, err);
    json_decref(job);
    /* Not in the lines of a verb that prints them itself. */
    if (r == 0 && !is_within && json_object_size(answer) > 0 &&
        json_object_set_new(answer, "warning", json_string(PLAN_NOT_WITHIN)) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "answer");
    return r;
}

/* No room is the one failure of a system call that somebody can do something about. */
static const char *code_of(const struct err *err)
{
    bool is_full = err->os_errno == ENOSPC || err->os_errno == EDQUOT;

    return err_answer(err->code == ERR_IO && is_full ? SAID_DISK_FULL : err_said_by_plan(err->code))
        ->code;
}

/* Messages name files, whose names are any bytes. */
static void print_error(const struct err *err)
{
    scoped_buf struct buf b = {0};
    char text[sizeof(err->msg) + 128];
    size_t n = strlen(err_text(err, text, sizeof(text)));

    for (size_t i = 0; i < n && !bytes_are_utf8(text, n); i++) {
        if ((unsigned char)text[i] >= 0x80)
            text[i] = '?';
    }
    buf_init(&b, 8192);
    bytes_add_json(&b, text, n);
    printf("{\"error\":{\"code\":\"%s\",\"message\":%s}}\n", code_of(err),
           buf_done(&b) < 0 ? "\"\"" : b.p);
}

int main(int argc, char **argv)
{
    const struct verb *verb = NULL;
    struct err err = {0};
    json_t *answer = json_object();
    int r = -1;

    for (size_t i = 0; argc == 2 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, argv[1]) == 0)
            verb = &verbs[i];
    }
    if (!verb)
        (void)err_set(&err, ERR_INVALID, 0, "carrel-plan has no such verb; the daemon starts it");
    else if (!answer)
        (void)err_set(&err, ERR_LIMIT, ENOMEM, "begin");
    else
        r = run(verb, answer, &err);
    if (r < 0)
        print_error(&err);
    else if (json_object_size(answer) > 0 &&
             (json_dumpf(answer, stdout, JSON_COMPACT) < 0 || putchar('\n') < 0))
        r = -1;
    json_decref(answer);
    return fflush(stdout) == 0 && r == 0 ? 0 : 1;
}
