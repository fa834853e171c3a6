/* SPDX-License-Identifier: Apache-2.0 */
/* A front that dies is seen at once; one that hangs, by what it does not answer. Pings are counted,
 * not seconds: one counts as missed only if the front did nothing at all since it was sent, had its
 * chance to, and this process was there to see it. So neither a slow disk, nor a machine with too
 * much to do, nor one that was put to sleep costs a front its life. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/front_process.h"
#include "broker/watchdog.h"
#include "sys/path.h"

enum {
    MISSED_MOST = 3,
    AT_ITS_START =
        30,      /* as long as it has not asked for anything: it may have a database to mend */
    CONTENT = 3, /* times the setting: so long this process copes with it alone */
};

static uint64_t every_ms(const struct broker *b)
{
    uint64_t ms = b->settings.front_watchdog_ms / MISSED_MOST;

    return ms > 0 ? ms : 1;
}

/* The letter after a name that can hold anything, and fields 14 and 15; '\0': nobody knows. */
static char look_at(pid_t pid, uint64_t *ret_cpu_ms)
{
    char path[64];
    char text[1024];
    long per_second = sysconf(_SC_CLK_TCK);

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (path_read_small(path, text, sizeof(text)) <= 0 || per_second <= 0)
        return '\0';
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return '\0';
    char state = at[2];
    for (int field = 2; at && field < 14; field++)
        at = strchr(at + 1, ' ');
    uint64_t ticks = at ? strtoull(at, &at, 10) : 0;
    ticks += at ? strtoull(at, &at, 10) : 0;
    *ret_cpu_ms = ticks * 1000 / (uint64_t)per_second;
    return state;
}

/* One that waits for the disk or for its turn on the processor has not had it yet. */
static bool had_its_chance(struct broker *b)
{
    uint64_t cpu_ms = 0;
    char state = look_at(b->front_pid, &cpu_ms);

    if (state == 'D')
        return false;
    if (state == 'R' && cpu_ms - b->ping_cpu_ms < every_ms(b) / 2)
        return false;
    b->ping_cpu_ms = cpu_ms;
    return true;
}

static bool has_moved(const struct broker *b)
{
    return b->pong == b->ping || b->heard || channel_unread(b) < b->ping_unread;
}

static void send_ping(struct broker *b)
{
    if (b->pong == b->ping)
        channel_send_plain(b, EVENT_PING, 0, &(struct plain_message){.number = ++b->ping});
    b->ping_unread = channel_unread(b);
    b->heard = false;
}

static void look(struct timer *timer)
{
    struct broker *b = container_of(timer, struct broker, ping_timer);
    unsigned most = b->resumed || b->resume_tag ? MISSED_MOST : AT_ITS_START;
    uint64_t now = now_ms();

    if (b->socket < 0 || b->deaf)
        return;
    /* Late by a whole turn: it is this process that was stopped, or had no turn. */
    if (now > b->ping_due_ms + every_ms(b) || has_moved(b))
        b->missed = 0;
    else if (had_its_chance(b))
        b->missed++;
    if (b->missed >= most) {
        log_error("front_hangs", "why", "it answers nothing (setting 'front_watchdog')", "then",
                  "it is killed", NULL);
        b->deaf = true;
        front_kill(b); /* its death starts the next */
        return;
    }
    send_ping(b);
    b->ping_due_ms = now + every_ms(b);
    ignore(timer_set(b->events, timer, b->ping_due_ms) == 0); /* it had its place */
}

void watchdog_begin(struct broker *b)
{
    if (!b->settings.front_watchdog_ms)
        return;
    b->missed = 0;
    b->pong = b->ping;
    b->heard = true;
    (void)look_at(b->front_pid, &b->ping_cpu_ms);
    if (!b->answered_ms)
        b->answered_ms = now_ms();
    b->ping_timer.ring = look;
    b->ping_due_ms = now_ms() + every_ms(b);
    if (timer_set(b->events, &b->ping_timer, b->ping_due_ms) < 0)
        log_warning("front_not_watched", "why", "out of memory", NULL);
}

void watchdog_end(struct broker *b)
{
    timer_stop(b->events, &b->ping_timer);
}

void watchdog_answered(struct broker *b, uint64_t number)
{
    b->pong = number;
    b->answered_ms = now_ms();
    if (number == b->ping)
        (void)look_at(b->front_pid, &b->ping_cpu_ms);
}

bool watchdog_is_content(const struct broker *b)
{
    return !b->settings.front_watchdog_ms ||
           now_ms() - b->answered_ms < CONTENT * b->settings.front_watchdog_ms;
}
