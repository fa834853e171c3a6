/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/exec/attach.h"

static const struct {
    const char *reason;
    const char *text;
} ends[] = {
    {"exit", NULL},
    {"signal", NULL},
    {"timeout", "the time limit was reached and the command was ended"},
    {"output", "the output limit was reached and the command was ended"},
    {"oom", "the memory limit was reached and the command was ended"},
    {"pids", "the limit on processes was reached again and again: the command was ended"},
    {"disk", "the disk limit was reached and the command was ended"},
};

/* As `carrel run` does: only to a person. */
static void print_denials(const json_t *end)
{
    json_t *denials = json_object_get(end, "denials");
    json_t *denial;
    size_t i;

    if (!isatty(STDERR_FILENO))
        return;
    json_array_foreach(denials, i, denial)
    {
        const char *what = "";
        const char *rule = "";
        const char *fix = "";
        const char *source = "";
        char text[1024];
        (void)json_unpack(denial, "{s?s,s?s,s?s,s?s}", "what", &what, "rule", &rule, "fix", &fix,
                          "source", &source);
        snprintf(text, sizeof(text), "not allowed%s: %s (%s); %s",
                 strcmp(source, "inferred") == 0 ? ", it seems" : "", what, rule, fix);
        cli_say_dim(text);
    }
    if (json_integer_value(json_object_get(end, "denials_dropped")) > 0)
        cli_say_dim("further calls were refused");
}

int attach_end_status(const json_t *end)
{
    const char *reason = json_string_value(json_object_get(end, "reason"));
    const char *note = json_string_value(json_object_get(end, "note"));
    json_t *code = json_object_get(end, "exit_code");
    char text[256];

    print_denials(end);
    if (note && *note)
        cli_say(note);
    for (size_t i = 0; reason && i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (strcmp(reason, ends[i].reason) != 0)
            continue;
        if (ends[i].text && !(note && *note))
            cli_say(ends[i].text);
        return json_is_integer(code) ? (int)json_integer_value(code) : CLI_FAILED;
    }
    if (!note || !*note) {
        snprintf(text, sizeof(text), "the command did not end by itself: %s",
                 reason ? reason : "the daemon does not say why");
        cli_say(text);
    }
    return json_is_integer(code) && json_integer_value(code) ? (int)json_integer_value(code)
                                                             : CLI_FAILED;
}
