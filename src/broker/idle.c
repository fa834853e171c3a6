/* SPDX-License-Identifier: Apache-2.0 */
/* Ends sandboxes that do nothing: no command runs, nobody asks for files, nothing that was left
 * behind listens on a port or has used the processor, for as long as the setting `idle` says. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/files.h"
#include "broker/idle.h"
#include "broker/sandboxes.h"

enum {
    LOOKS = 8, /* within the time that is waited */
    SHORTEST_MS = 50,
    LONGEST_MS = 10000,
};

/* More than `own` of them. The kernel lists those that listen before all others, under a line of
 * headings. */
static bool has_listener(int pid, const char *list, size_t own)
{
    char path[64];
    char text[1024];
    char state[8] = "";
    size_t n = 0;

    snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, list);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool more = fgets(text, sizeof(text), file) != NULL;
    while (more && n <= own) {
        more = fgets(text, sizeof(text), file) && sscanf(text, "%*s %*s %*s %7s", state) == 1 &&
               strcmp(state, "0A") == 0;
        n += more;
    }
    (void)fclose(file);
    return n > own;
}

static bool is_busy(struct sandbox *s)
{
    if (s->running > 0 || s->pause.state != PAUSE_NONE || files_is_busy(s))
        return true;
    double cpu_ms = session_cpu_ms(s->session);
    bool has_worked = cpu_ms > s->idle_cpu_ms;
    s->idle_cpu_ms = cpu_ms;
    if (has_worked)
        return true;
    /* With the host's network the ports are everybody's. Without a process nobody listens. */
    int pid = session_pid(s->session);
    return !s->host_net && pid > 0 && session_execs(s->session) > 0 &&
           (has_listener(pid, "tcp", s->own_listeners) || has_listener(pid, "tcp6", 0));
}

static void look(struct timer *timer)
{
    struct sandbox *s = container_of(timer, struct sandbox, idle_timer);
    uint64_t idle_ms = s->broker->settings.idle_ms;

    if (s->ending || s->over)
        return;
    if (is_busy(s))
        s->busy_ms = now_ms();
    if (now_ms() - s->busy_ms >= idle_ms)
        sandbox_put_to_sleep(s, "idle");
    else
        idle_watch(s);
}

void idle_watch(struct sandbox *s)
{
    uint64_t idle_ms = s->broker->settings.idle_ms;
    uint64_t step = idle_ms / LOOKS;

    if (idle_ms == 0)
        return;
    step = step < SHORTEST_MS ? SHORTEST_MS : step > LONGEST_MS ? LONGEST_MS : step;
    s->idle_timer.ring = look;
    if (timer_set(s->broker->events, &s->idle_timer, now_ms() + step) < 0)
        log_error("timer_failed", "workspace", s->workspace, NULL);
}
