/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack by watching: fanotify over whole mounts and file systems, which sees what all other
 * processes do there, and as many inotify instances as the kernel gives, so that nobody else gets
 * one.
 */
#include "probe.h"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>

#define FLOOD 100000

static void watch_all(char **args)
{
    (void)args;
    for (unsigned class = 0; class <= FAN_CLASS_PRE_CONTENT; class += FAN_CLASS_CONTENT) {
        refused("fanotify_init", fanotify_init(class, O_RDONLY), EPERM);
        refused("fanotify_init by id", fanotify_init(class | FAN_REPORT_FID, O_RDONLY), EPERM);
    }
    refused("fanotify_mark",
            fanotify_mark(-1, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, AT_FDCWD, "/"), EPERM);
}

/* Keeps all it can get until its stdin ends. */
static void take_instances(char **args)
{
    int taken = 0;
    int own = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    (void)args;
    if (own < 0 || inotify_add_watch(own, "/", IN_ALL_EVENTS) < 0)
        unclear("inotify on our own root, which must work");
    while (taken < FLOOD && inotify_init1(IN_CLOEXEC) >= 0)
        taken++;
    printf("took %d inotify instances, then %s\n", taken, strerror(errno));
    if (taken == FLOOD)
        escaped("no limit on inotify instances");
    while (getchar() != EOF)
        continue;
}

/* The host's side: are any left for whoever started the sandbox? */
static void want_one(char **args)
{
    (void)args;
    if (inotify_init1(IN_CLOEXEC) < 0)
        escaped("whoever started the sandbox gets no inotify instance any more: %s",
                strerror(errno));
}

static const struct attack attacks[] = {
    {"all", watch_all},
    {"take", take_instances},
    {"want", want_one},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
