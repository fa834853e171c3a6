/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that stay, with real ones: carrel-init lies beside the tests. */
#pragma once

#include <carrel.h>
#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "sandbox/session/session.h"
#include "unit.h"

/* A program need not use all of it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

enum {
    OUTPUT = 4096,
    PATIENCE_MS = 30000, /* a machine may be slow, but not for ever */
    MANY = 10
};

/* One command as its owner sees it. */
struct heard {
    struct exec *exec;
    int fds[3];
    bool started;
    bool ended;
    bool gone;
    struct carrel_result result;
    char out[OUTPUT];
    size_t size;
};

struct place {
    struct session *session;
    bool over;
    struct err why;
    struct heard *list[MANY + 2];
    size_t count;
};

static const char *init_path(void)
{
    static char path[4200];
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    *strrchr(self, '/') = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path, sizeof(path), "%s/carrel-init", self);
    return path;
}

static void on_started(void *owner, struct exec *exec, int fds[3])
{
    struct heard *heard = owner;

    heard->started = heard->exec == exec;
    memcpy(heard->fds, fds, sizeof(heard->fds));
}

static void on_ended(void *owner, struct exec *exec, const struct carrel_result *result)
{
    struct heard *heard = owner;

    heard->ended = heard->exec == exec && !heard->ended;
    heard->result = *result;
    heard->result.denials = NULL;
}

static void on_gone(void *owner, struct exec *exec)
{
    struct heard *heard = owner;

    heard->gone = heard->ended && heard->exec == exec;
}

static void on_over(void *owner, const struct err *why)
{
    struct place *place = owner;

    place->over = true;
    place->why = *why;
}

static const struct session_calls calls = {
    .started = on_started, .ended = on_ended, .gone = on_gone, .over = on_over};

static struct carrel_spec spec_of(const char *workspace)
{
    return (struct carrel_spec){.workspace = workspace, .create = true, .init_path = init_path()};
}

static bool open_place(struct place *place, const struct carrel_spec *spec)
{
    struct err err = {0};
    char text[512];

    *place = (struct place){0};
    if (session_start(&place->session, spec, &calls, place, &err) == 0)
        return true;
    printf("%s\n", err_text(&err, text, sizeof(text)));
    return false;
}

static void read_output(struct heard *heard)
{
    for (int i = 0; i < 3; i++) {
        ssize_t n = 1;
        while (heard->fds[i] >= 0 && n > 0 && heard->size < OUTPUT - 1) {
            n = read(heard->fds[i], heard->out + heard->size, OUTPUT - 1 - heard->size);
            heard->size += n > 0 ? (size_t)n : 0;
        }
        if (n == 0 && i > 0) {
            close(heard->fds[i]);
            heard->fds[i] = -1;
        }
    }
    heard->out[heard->size] = '\0';
}

/* One turn of the owner's loop. */
static void turn(struct place *place)
{
    int due = session_due_ms(place->session);
    struct pollfd ready = {.fd = session_fd(place->session), .events = POLLIN};

    (void)poll(&ready, 1, due >= 0 && due < 20 ? due : 20);
    session_serve(place->session);
    for (size_t i = 0; i < place->count; i++)
        read_output(place->list[i]);
}

static bool becomes(struct place *place, const bool *what)
{
    uint64_t until = now_ms() + PATIENCE_MS;

    while (!*what && now_ms() < until)
        turn(place);
    return *what;
}

static bool says(struct place *place, const struct heard *heard, const char *text)
{
    uint64_t until = now_ms() + PATIENCE_MS;

    while (!strstr(heard->out, text) && now_ms() < until)
        turn(place);
    return strstr(heard->out, text) != NULL;
}

static int ask_for(struct place *place, struct heard *heard, struct exec_request request,
                   struct err *err)
{
    *heard = (struct heard){.fds = {-1, -1, -1}};
    request.owner = heard;
    if (exec_start(place->session, &request, &heard->exec, err) < 0)
        return -1;
    place->list[place->count++] = heard;
    return 0;
}

static bool ask(struct place *place, struct heard *heard, const char *script, uint64_t timeout_ms)
{
    char *const argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    struct exec_request request = {.argv = argv, .timeout_ms = timeout_ms};
    struct err err = {0};

    if (ask_for(place, heard, request, &err) == 0)
        return true;
    printf("%s\n", err.msg);
    return false;
}

static void forget(struct place *place, struct heard *heard)
{
    for (int i = 0; i < 3; i++) {
        if (heard->fds[i] >= 0)
            close(heard->fds[i]);
        heard->fds[i] = -1;
    }
    for (size_t i = 0; i < place->count; i++) {
        if (place->list[i] == heard)
            place->list[i] = place->list[--place->count];
    }
}

/* Runs it to the end, with all it has started. */
static bool run(struct place *place, struct heard *heard, const char *script)
{
    bool ok = ask(place, heard, script, 0) && becomes(place, &heard->gone);

    if (!ok)
        printf("    %s\n", place->why.msg);
    read_output(heard);
    forget(place, heard);
    return ok;
}

static unsigned open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

#pragma GCC diagnostic pop
