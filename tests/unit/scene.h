/* SPDX-License-Identifier: Apache-2.0 */
/* One prepared run in a folder of its own, for the tests that look at setups. Nothing is mounted,
 * and nothing is made on disk but the folder. */
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/run.h"
#include "unit.h"

struct scene {
    char folder[4096]; /* holds the folder "ws", the file "file" and the FIFO "fifo" */
    struct carrel_spec spec;
    struct run *run;
    struct err err;
    bool prepared;
};

static char *const a_command[] = {"true", NULL};

/* A name in the folder, as an absolute path; good until the fourth call after this one. */
static inline const char *in_folder(const struct scene *s, const char *name)
{
    static char paths[4][4200];
    static unsigned next;
    char *path = paths[next++ % LENGTH(paths)];

    snprintf(path, sizeof(paths[0]), "%s/%s", s->folder, name);
    return path;
}

static inline int scene_open(struct scene *s)
{
    const char *folder = getenv("TMPDIR");
    char template[4096];

    memset(s, 0, sizeof(*s));
    s->run = malloc(sizeof(*s->run));
    snprintf(template, sizeof(template), "%s/carrel-unit.XXXXXX", folder ? folder : "/tmp");
    if (!s->run || !mkdtemp(template) || !realpath(template, s->folder))
        return -1;
    int fd = open(in_folder(s, "file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || close(fd) < 0 || mkdir(in_folder(s, "ws"), 0755) < 0 ||
        mkfifo(in_folder(s, "fifo"), 0600) < 0)
        return -1;
    s->spec = (struct carrel_spec){.workspace = in_folder(s, "ws"), .argv = a_command};
    return chdir(s->folder);
}

static inline void scene_forget(struct scene *s)
{
    if (s->prepared)
        run_clear(s->run);
    s->prepared = false;
}

static inline void scene_clear(struct scene *s)
{
    scene_forget(s);
    (void)!chdir("/");
    (void)unlink(in_folder(s, "file"));
    (void)unlink(in_folder(s, "fifo"));
    (void)rmdir(in_folder(s, "ws/.venv/bin"));
    (void)rmdir(in_folder(s, "ws/.venv"));
    (void)rmdir(in_folder(s, "ws"));
    (void)rmdir(in_folder(s, "\xff"));
    if (rmdir(s->folder) < 0)
        printf("    left behind: %s\n", s->folder);
    free(s->run);
}

static inline int prepare(struct scene *s)
{
    scene_forget(s);
    s->prepared = true;
    return run_prepare(s->run, &s->spec, true, NULL, &s->err);
}

#define SCENE(name)                                                                                \
    __attribute__((cleanup(scene_clear))) struct scene name;                                       \
    CHECK(scene_open(&name) == 0)

static inline bool is(const char *text, const char *expected)
{
    return strcmp(text, expected) == 0;
}
