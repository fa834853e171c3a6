/* SPDX-License-Identifier: Apache-2.0 */
/* Looks into a tree for the links of old (oldlinks.h). Only when its settings are made: a command
 * gets what they say, whatever the links lead to by then. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "broker/broker.h"
#include "broker/oldlinks.h"
#include "sandbox/rootfs.h"
#include "sys/path.h"

enum {
    WHY_ROOM = 256,
};

/* One of the three names, and what is said about it. */
struct finding {
    struct oldlink link;
    char why[WHY_ROOM]; /* it is not used */
};

/* Whether a mount at this place would hide nothing of the workspace's. */
static bool is_free(int tree, const char *place)
{
    if (strncmp(place, "tmp/", 4) == 0 || strncmp(place, ".cache/", 7) == 0)
        return true; /* fresh ones are mounted there */
    scoped_fd int fd = path_open_beneath(tree, place, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);
    return fd == -ENOENT || (fd >= 0 && path_dir_is_empty(fd) == 1);
}

static void judge(const struct broker *b, const struct plain_message *m, int tree, const char *at,
                  const char *target, struct finding *ret)
{
    char bucket[sizeof(b->settings.state) + PROTOCOL_ID + 2];
    const char *const states[] = {b->settings.state, b->state_named};
    bool known = false;

    for (size_t i = 0; !known && i < sizeof(states) / sizeof(states[0]); i++) {
        snprintf(bucket, sizeof(bucket), "%s/%s", states[i], m->texts[0]);
        known = oldlink_read(bucket, m->texts[1], at, target, &ret->link);
    }
    if (!known) {
        snprintf(ret->why, sizeof(ret->why), "it leads to no skills or thread of this bucket");
        return;
    }
    const char *place = ret->link.place;
    const char *reserved = rootfs_reserved(place);
    if (!reserved && (strcmp(place, "tmp") == 0 || strcmp(place, ".cache") == 0))
        reserved = place;
    if (reserved)
        snprintf(ret->why, sizeof(ret->why), "it leads into /%s, which Carrel provides itself",
                 reserved);
    else if (!is_free(tree, place))
        snprintf(ret->why, sizeof(ret->why), "it leads to what the workspace itself has inside");
    if (*ret->why)
        *ret->link.place = '\0';
}

static void look_at(const struct broker *b, const struct plain_message *m, int tree, const char *at,
                    struct finding *ret)
{
    char target[OLDLINK_PATH];
    struct stat st;
    scoped_fd int fd = path_open_beneath(tree, at, O_PATH, 1);

    memset(ret, 0, sizeof(*ret));
    if (fd == -ENOENT)
        return;
    if (fd < 0 || fstat(fd, &st) < 0) {
        snprintf(ret->why, sizeof(ret->why),
                 "what lies on the way to it is not a directory that can be entered");
        return;
    }
    if (S_ISDIR(st.st_mode))
        return;
    ssize_t n = S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, sizeof(target)) : -1;
    if (n <= 0 || n == (ssize_t)sizeof(target)) {
        snprintf(ret->why, sizeof(ret->why), "it is neither a directory nor a link to one");
        return;
    }
    target[n] = '\0';
    judge(b, m, tree, at, target, ret);
}

/* Three answers of three texts: what it names, its place inside, why it is not used. */
int tree_links(const struct broker *b, const struct plain_message *m, struct buf *answer,
               struct err *err)
{
    static struct finding found[3];
    const char *list[3 * 3 + 1] = {NULL};
    char at[3][PROTOCOL_TEXT + 16];
    scoped_fd int tree = tree_open(b, m->texts[0], m->texts[1], err);

    if (tree < 0)
        return -1;
    snprintf(at[0], sizeof(at[0]), "%s/system", m->texts[2]);
    snprintf(at[1], sizeof(at[1]), "%s/user", m->texts[2]);
    snprintf(at[2], sizeof(at[2]), "%s", m->texts[3]);
    for (size_t i = 0; i < 3; i++) {
        bool wanted = *m->texts[i < 2 ? 2 : 3] != '\0';
        memset(&found[i], 0, sizeof(found[i]));
        if (wanted)
            look_at(b, m, tree, at[i], &found[i]);
        list[3 * i] = found[i].link.names;
        list[3 * i + 1] = found[i].link.place;
        list[3 * i + 2] = found[i].why;
    }
    pack_list(answer, list);
    return buf_done(answer) < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "tell a workspace's links") : 0;
}
