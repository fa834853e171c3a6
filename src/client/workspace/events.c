/* SPDX-License-Identifier: Apache-2.0 */
/* carrel events: what happens, as it happens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/lines.h"
#include "client/core/text.h"

static const char help[] =
    "usage: carrel events [WORKSPACE]\n"
    "\n"
    "Prints what happens until it is interrupted, one line for each event: workspaces\n"
    "that are made, changed, deleted or awake, commands that start and end, plans.\n"
    "\n" HELP_OPTIONS "\n"
    "example: carrel events desk\n";

/* One event: lines "event: name" and "data: {...}", then an empty one. */
struct stream {
    bool json;
    char name[64];
    json_t *data;
};

static const char *const shown_apart[] = {"workspace", "time", "event", "type", NULL};

static bool is_shown_apart(const char *name)
{
    for (size_t i = 0; shown_apart[i]; i++) {
        if (strcmp(name, shown_apart[i]) == 0)
            return true;
    }
    return false;
}

static int print_event(struct stream *stream)
{
    const char *workspace = client_text(stream->data, "workspace");
    const char *moment = client_text(stream->data, "time");
    const char *name;
    json_t *value;
    struct buf line;
    struct buf safe;

    buf_init(&line, 1 << 20);
    buf_init(&safe, 1 << 22);
    if (moment)
        buf_printf(&line, "%s  ", moment);
    buf_printf(&line, "%-18s  %s", stream->name, workspace ? workspace : "-");
    json_object_foreach(stream->data, name, value)
    {
        char *text = json_is_string(value)
                         ? NULL
                         : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        if (!is_shown_apart(name) && !json_is_null(value))
            buf_printf(&line, "  %s=%s", name, text ? text : json_string_value(value));
        free(text);
    }
    if (buf_done(&line) == 0)
        text_escape(&safe, line.p, line.n);
    buf_str(&safe, "\n");
    int status = buf_done(&safe) == 0 ? cli_put(safe.p) : 0;
    buf_clear(&line);
    buf_clear(&safe);
    return status;
}

static int finish_event(struct stream *stream)
{
    int status = 0;

    if (stream->data && stream->json) {
        if (!json_object_get(stream->data, "event"))
            json_object_set_new(stream->data, "event", json_string(stream->name));
        status = client_print(json_incref(stream->data));
    } else if (stream->data) {
        status = print_event(stream);
    }
    json_decref(stream->data);
    stream->data = NULL;
    stream->name[0] = '\0';
    return status;
}

static int take_line(void *context, char *line)
{
    struct stream *stream = context;
    char *value = strchr(line, ':');

    if (!*line)
        return finish_event(stream);
    if (!value || value == line)
        return 0; /* ": ping" */
    *value++ = '\0';
    value += *value == ' ';
    if (strcmp(line, "event") == 0) {
        snprintf(stream->name, sizeof(stream->name), "%s", value);
    } else if (strcmp(line, "data") == 0) {
        json_decref(stream->data);
        stream->data = json_loads(value, 0, NULL);
    }
    return 0;
}

int client_events(char **argv)
{
    struct args_common common = {.verb = "events"};
    const struct args_rule rules[] = {
        {"--json", NULL, "print one JSON object a line", ARGS_FLAG, &common.json},
        {0},
    };
    const char *words[2] = {NULL};
    struct stream stream = {0};
    struct daemon daemon = {0};
    struct err err = {0};
    struct buf path;
    int status = client_begin(argv + 1, help, rules, &common, words, 1);
    if (status >= 0)
        return status;
    if (daemon_open(&daemon, common.state, &err) < 0)
        return client_fail(&err);
    stream.json = common.json;
    buf_init(&path, 4096);
    buf_str(&path, "/v1/events");
    if (words[0]) {
        buf_str(&path, "?workspace=");
        text_url(&path, words[0]);
    }
    status = buf_done(&path) < 0
                 ? cli_fail("the name of the workspace is too long")
                 : lines_follow(&daemon, path.p, "text/event-stream", take_line, &stream);
    json_decref(stream.data);
    buf_clear(&path);
    daemon_close(&daemon);
    return status;
}
