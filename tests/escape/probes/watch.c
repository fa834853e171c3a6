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

int main(void)
{
    int watched = 0;
    int own = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    for (unsigned class = 0; class <= FAN_CLASS_PRE_CONTENT; class += FAN_CLASS_CONTENT) {
        refused("fanotify_init", fanotify_init(class, O_RDONLY), EPERM);
        refused("fanotify_init by id", fanotify_init(class | FAN_REPORT_FID, O_RDONLY), EPERM);
    }
    refused("fanotify_mark",
            fanotify_mark(-1, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, AT_FDCWD, "/"), EPERM);
    if (own < 0 || inotify_add_watch(own, "/", IN_ALL_EVENTS) < 0)
        unclear("inotify on our own root, which must work");
    while (watched < FLOOD && inotify_init1(IN_CLOEXEC) >= 0)
        watched++;
    printf("%d inotify instances, then %s\n", watched, strerror(errno));
    if (watched == FLOOD)
        escaped("no limit on inotify instances");
    return verdict();
}
