/* SPDX-License-Identifier: Apache-2.0 */
/* A tree and a plan's directory in a folder of their own, for the tests that read and write plans.
 */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "plan/core/plan.h"

struct ground {
    char folder[4096];
    int tree;
    int dir;
    struct plan plan;
    struct err err;
};

static inline const char *ground_path(const struct ground *g, const char *below)
{
    static char paths[4][8300];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", g->folder, below);
    return path;
}

static inline int ground_open(struct ground *g)
{
    const char *folder = getenv("TMPDIR");

    memset(g, 0, sizeof(*g));
    snprintf(g->folder, sizeof(g->folder), "%s/carrel-unit.XXXXXX", folder ? folder : "/tmp");
    if (!mkdtemp(g->folder) || mkdir(ground_path(g, "tree"), 0755) < 0 ||
        mkdir(ground_path(g, "plan"), 0755) < 0 || mkdir(ground_path(g, "plan/upper"), 0755) < 0)
        return -1;
    g->tree = open(ground_path(g, "tree"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    g->dir = open(ground_path(g, "plan"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return g->tree < 0 || g->dir < 0 ? -1 : 0;
}

static inline int ground_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void ground_close(struct ground *g)
{
    plan_clear(&g->plan);
    (void)close(g->tree);
    (void)close(g->dir);
    (void)nftw(g->folder, ground_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Past the clock's next tick: what is made now is younger than all there is. Since Linux 6.13 some
 * changes get the exact time, and those after them no older one: only when the coarse clock, which
 * is behind at its ticks, too, has come past the exact time of now, nothing has the same. */
static inline int ground_later(void)
{
    struct timespec now;
    struct timespec then;
    int r = clock_gettime(CLOCK_REALTIME, &then);

    do
        r |= clock_gettime(CLOCK_REALTIME_COARSE, &now);
    while (r == 0 && (now.tv_sec < then.tv_sec ||
                      (now.tv_sec == then.tv_sec && now.tv_nsec <= then.tv_nsec)));
    return r;
}

static inline int ground_write(const struct ground *g, const char *path, const char *content)
{
    int fd = open(ground_path(g, path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ssize_t n = fd < 0 ? -1 : write(fd, content, strlen(content));

    if (fd >= 0)
        (void)close(fd);
    return n == (ssize_t)strlen(content) ? 0 : -1;
}

/* As overlayfs leaves it where something was deleted. */
static inline int ground_whiteout(const struct ground *g, const char *path)
{
    return mknod(ground_path(g, path), S_IFCHR, 0);
}

/* "KIND PATH[<FROM]" of each operation, one in a line. */
static inline const char *ground_list(const struct plan *plan)
{
    static char text[65536];
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < plan->count && n < sizeof(text) - 1; i++) {
        const struct plan_operation *o = &plan->operations[i];
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s %s%s%s%s%s\n",
                              plan_kind_names[o->kind], o->path, o->from ? "<" : "",
                              o->from ? o->from : "", o->link ? "=" : "", o->link ? o->link : "");
    }
    return text;
}
