/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon that is killed leaves starts in the record without their ends. The next one looks for
 * them, from the last daemon.start on, and adds what is missing. The lines are our own, and the
 * reader hands out none that is not exactly as audit_encode writes them: so members are taken in
 * their order, and nothing else is parsed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/record.h"
#include "broker/record_recover.h"

enum {
    MOST_RECORDS = 200000, /* that are looked at: a start must not take minutes */
};

/* A command, or (without an id) a sandbox. */
struct begun {
    struct begun *next;
    char workspace[PROTOCOL_ID + 1];
    char exec[PROTOCOL_EXEC_ID + 1];
};

struct open_ends {
    struct begun *slots[BROKER_SLOTS];
    size_t count;
};

/* A piece of a line. */
struct part {
    const char *p;
    size_t n;
};

/* Goes behind `text`, if that is what comes next. */
static bool take_text(struct part *rest, const char *text)
{
    size_t n = strlen(text);

    if (rest->n < n || memcmp(rest->p, text, n) != 0)
        return false;
    rest->p += n;
    rest->n -= n;
    return true;
}

/* What is up to the quote that ends a string, escapes as they are. */
static bool take_string(struct part *rest, struct part *ret)
{
    size_t i = 0;

    while (i < rest->n && rest->p[i] != '"')
        i += rest->p[i] == '\\' ? 2 : 1;
    if (i >= rest->n)
        return false;
    *ret = (struct part){rest->p, i};
    rest->p += i + 1;
    rest->n -= i + 1;
    return true;
}

static bool take_member(struct part *rest, const char *name, struct part *ret)
{
    return take_text(rest, ",\"") && take_text(rest, name) && take_text(rest, "\":\"") &&
           take_string(rest, ret);
}

static bool is_text(const struct part *part, const char *text)
{
    return part->n == strlen(text) && memcmp(part->p, text, part->n) == 0;
}

struct seen {
    struct part workspace;
    struct part operation;
    struct part rest; /* from the details on */
};

static bool read_line(const char *line, size_t n, struct seen *ret)
{
    struct part rest = {line, n};
    struct part skipped;

    if (!take_text(&rest, "{\"seq\":"))
        return false;
    while (rest.n && rest.p[0] >= '0' && rest.p[0] <= '9') {
        rest.p++;
        rest.n--;
    }
    if (!take_member(&rest, "time", &skipped) || !take_member(&rest, "actor", &skipped) ||
        !take_member(&rest, "workspace", &ret->workspace) ||
        !take_member(&rest, "request", &skipped) ||
        !take_member(&rest, "operation", &ret->operation) ||
        !take_member(&rest, "result", &skipped) || !take_text(&rest, ",\"details\":"))
        return false;
    ret->rest = rest;
    return true;
}

/* The id that the details of a command begin with. */
static bool read_exec(const struct seen *seen, char exec[PROTOCOL_EXEC_ID + 1])
{
    struct part rest = seen->rest;
    struct part id;

    if (!take_text(&rest, "{\"exec\":\"") || !take_string(&rest, &id) || id.n != PROTOCOL_EXEC_ID)
        return false;
    memcpy(exec, id.p, id.n);
    exec[id.n] = '\0';
    return protocol_exec_id_is_valid(exec);
}

static bool read_workspace(const struct seen *seen, char workspace[PROTOCOL_ID + 1])
{
    if (seen->workspace.n > PROTOCOL_ID)
        return false;
    memcpy(workspace, seen->workspace.p, seen->workspace.n);
    workspace[seen->workspace.n] = '\0';
    return protocol_id_is_valid(workspace);
}

static struct begun **find(struct open_ends *all, const struct begun *wanted)
{
    struct begun **at = &all->slots[broker_slot(*wanted->exec ? wanted->exec : wanted->workspace)];

    while (*at && (strcmp((*at)->exec, wanted->exec) != 0 ||
                   strcmp((*at)->workspace, wanted->workspace) != 0))
        at = &(*at)->next;
    return at;
}

static int begin(struct open_ends *all, const struct begun *one)
{
    struct begun **at = find(all, one);

    if (*at)
        return 0;
    *at = malloc(sizeof(**at));
    if (!*at)
        return -ENOMEM;
    **at = *one;
    all->count++;
    return 0;
}

static void end(struct open_ends *all, const struct begun *one)
{
    struct begun **at = find(all, one);
    struct begun *found = *at;

    if (!found)
        return;
    *at = found->next;
    free(found);
    all->count--;
}

static void forget_all(struct open_ends *all)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct begun *one = all->slots[i], *next; one; one = next) {
            next = one->next;
            free(one);
        }
        all->slots[i] = NULL;
    }
    all->count = 0;
}

static int look_at(struct open_ends *all, const char *line, size_t n)
{
    struct begun one = {.next = NULL};
    struct seen seen;

    if (!read_line(line, n, &seen))
        return 0;
    if (is_text(&seen.operation, "daemon.start")) {
        forget_all(all); /* whoever started then has seen to it */
        return 0;
    }
    bool is_exec = seen.operation.n > 5 && memcmp(seen.operation.p, "exec.", 5) == 0;
    if (!read_workspace(&seen, one.workspace) || (is_exec && !read_exec(&seen, one.exec)))
        return 0;
    if (is_text(&seen.operation, "exec.start") || is_text(&seen.operation, "sandbox.start"))
        return begin(all, &one);
    if (is_text(&seen.operation, "exec.end") || is_text(&seen.operation, "sandbox.end"))
        end(all, &one);
    return 0;
}

static int find_all(struct broker *b, struct open_ends *all, struct err *err)
{
    char path[sizeof(b->settings.state) + 8];
    uint64_t last = audit_synced(b->audit);
    struct audit_reader *reader;
    const char *line;
    size_t n;
    int r = 0;

    record_dir(b, path, sizeof(path));
    if (audit_reader_open(&reader, path, last > MOST_RECORDS ? last - MOST_RECORDS : 0, err) < 0)
        return -1;
    for (size_t i = 0; r == 0 && i < MOST_RECORDS; i++) {
        int got = audit_reader_next(reader, &line, &n, err);
        if (got == 0)
            break;
        if (got < 0) {
            log_err("audit_unreadable", "looking for what was left open", err);
            continue;
        }
        r = look_at(all, line, n);
    }
    audit_reader_close(reader);
    return r < 0 ? err_set(err, ERR_LIMIT, -r, "look for what was left open") : 0;
}

static int record(struct broker *b, const struct begun *one, struct err *err)
{
    char details[128] = "{\"why\":\"broker ended\"}";

    if (*one->exec)
        snprintf(details, sizeof(details), "{\"exec\":\"%s\",\"why\":\"broker ended\"}", one->exec);
    struct audit_record record = {.actor = "broker",
                                  .workspace = one->workspace,
                                  .request = "",
                                  .operation = *one->exec ? "exec.end" : "sandbox.end",
                                  .result = "broker_ended",
                                  .details = details};
    return record_add(b, &record, NULL, err);
}

/* A sandbox after the commands in it. */
static int record_all(struct broker *b, const struct open_ends *all, struct err *err)
{
    for (size_t i = 0; i < (size_t)2 * BROKER_SLOTS; i++) {
        bool sandboxes = i >= BROKER_SLOTS;
        for (const struct begun *one = all->slots[i % BROKER_SLOTS]; one; one = one->next) {
            bool is_sandbox = *one->exec == '\0';
            if (is_sandbox == sandboxes && record(b, one, err) < 0)
                return -1;
        }
    }
    return 0;
}

int record_recover(struct broker *b, struct err *err)
{
    static struct open_ends all;
    char count[24];

    int r = find_all(b, &all, err);
    if (r == 0)
        r = record_all(b, &all, err);
    snprintf(count, sizeof(count), "%zu", all.count);
    if (r == 0 && all.count)
        log_info("ends_recorded", "count", count, NULL);
    forget_all(&all);
    return r;
}
