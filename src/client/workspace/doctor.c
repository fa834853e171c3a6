/* SPDX-License-Identifier: Apache-2.0 */
/* carrel doctor WS[:/path]: the usual troubles of a workspace, tried out one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/workspace/doctor.h"

enum {
    SICK = 1,
    LOW_KIB = 64 * 1024,
    LOW_PERCENT = 95,
    OUTPUT_MOST = 1 << 20,
};

static void note(struct doctor *d, const char *name, const bool *works, const char *detail,
                 const char *fix)
{
    json_array_append_new(d->checks, json_pack("{s:s, s:o, s:s, s:s?}", "check", name, "works",
                                               works ? json_boolean(*works) : json_null(), "detail",
                                               detail, "fix", works && *works ? NULL : fix));
    d->sick = d->sick || (works && !*works);
}

void doctor_good(struct doctor *d, const char *name, const char *detail)
{
    const bool works = true;

    note(d, name, &works, detail, NULL);
}

void doctor_bad(struct doctor *d, const char *name, const char *detail, const char *fix)
{
    const bool works = false;

    note(d, name, &works, detail, fix);
}

void doctor_tell(struct doctor *d, const char *name, const char *detail, const char *fix)
{
    note(d, name, NULL, detail, fix);
}

/* --- is it there? --- */

/* Either the daemon says so, with a code, or nobody was there to say anything. */
static void tell_absence(struct doctor *d, const struct err *err)
{
    bool answered = err->said == SAID_NOT_FOUND;

    if (answered)
        doctor_bad(d, "workspace", err->msg,
                   "'carrel ws ls' and 'carrel ws ls --deleted' show those there are");
    else
        doctor_bad(d, err->code == ERR_NOT_FOUND ? "daemon" : "workspace", err->msg,
                   "see carrel-serve(8), and CARREL_URL, CARREL_SOCKET and CARREL_KEY");
}

static bool look_at_workspace(struct doctor *d)
{
    struct err err = {0};
    struct buf path;
    json_t *ws = NULL;
    char text[512];

    if (files_daemon(&d->f, &err) < 0) {
        doctor_bad(d, "daemon", err.msg, "start one with: carrel serve");
        return false;
    }
    client_workspace_path(&path, d->place.workspace, "");
    if (client_do(&d->f.daemon, "GET", &path, NULL, &ws, &err) < 0) {
        tell_absence(d, &err);
        return false;
    }
    const char *state = client_text(ws, "state");
    const char *owner = client_text(ws, "owner");
    const json_t *policy = json_object_get(ws, "policy");
    const char *net = json_is_object(json_object_get(policy, "network"))
                          ? "by name"
                          : client_text(policy, "network");
    char *limits = json_dumps(json_object_get(policy, "limits"), JSON_COMPACT);
    snprintf(text, sizeof(text), "of %.64s, %.16s%s", owner ? owner : "?", state ? state : "?",
             state && strcmp(state, "asleep") == 0 ? ": the next command or file call wakes it"
                                                   : "");
    doctor_good(d, "workspace", text);
    snprintf(text, sizeof(text), "network %.64s; limits %.300s", net ? net : "none",
             limits ? limits : "as the daemon's");
    doctor_tell(d, "policy", text, NULL);
    free(limits);
    json_decref(ws);
    return true;
}

/* --- where am I, what is mounted, is there room? --- */

/* A line of df -Pk: device, size, used, free, percent, where. */
static void read_room(struct doctor *d, char *line)
{
    const char *words[6] = {NULL};
    char *rest = NULL;
    char text[160];
    char free_text[TEXT_SHORT];

    for (size_t i = 0; i < 6; i++)
        words[i] = strtok_r(i == 0 ? line : NULL, " ", &rest);
    if (!words[5] || words[5][0] != '/')
        return;
    unsigned long long left = strtoull(words[3], NULL, 10);
    unsigned long percent = strtoul(words[4], NULL, 10);
    const char *where = words[5];
    snprintf(text, sizeof(text), "%.60s has %s free, %lu%% is used", where,
             text_bytes(left * 1024, free_text), percent);
    if (left >= LOW_KIB && percent < LOW_PERCENT)
        doctor_good(d, "room", text);
    else
        doctor_bad(
            d, "room", text,
            strcmp(where, "/tmp") == 0
                ? "remove what is in /tmp, or write below / instead: /tmp is small, and in memory"
                : "remove files, or have the limits of the policy raised: carrel ws policy");
}

static void read_mount(struct doctor *d, const char *line)
{
    static const char *const parts[] = {"/proc/", "/sys/", "/dev/", "/etc/"};
    char where[512];
    char options[512];
    size_t n = strlen(d->read_only);

    if (sscanf(line, "%*s %511s %*s %511s", where, options) != 2 ||
        strncmp(options, "ro", 2) != 0 || (options[2] && options[2] != ','))
        return;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strncmp(where, parts[i], strlen(parts[i])) == 0)
            return; /* everybody knows, or it is told with what is above */
    }
    if (n + strlen(where) + 2 < sizeof(d->read_only))
        snprintf(d->read_only + n, sizeof(d->read_only) - n, "%s%s", n ? " " : "", where);
}

static void read_report(struct doctor *d, char *text)
{
    char *rest = NULL;
    unsigned part = 0;

    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strcmp(line, "--") == 0)
            part++;
        else if (part == 0)
            doctor_tell(d, "inside", line, NULL);
        else if (part == 1)
            read_room(d, line);
        else
            read_mount(d, line);
    }
}

static void look_inside(struct doctor *d)
{
    static const char script[] =
        "echo \"commands start in $PWD as uid $(id -u), umask $(umask)\"; echo --; "
        "df -Pk / /tmp; echo --; cat /proc/self/mounts";
    struct err err = {0};
    struct buf path;
    json_t *result = NULL;

    client_workspace_path(&path, d->place.workspace, "/exec");
    if (client_do(&d->f.daemon, "POST", &path,
                  json_pack("{s:s, s:i}", "command", script, "timeout_ms", 20000), &result,
                  &err) < 0) {
        doctor_bad(d, "commands", err.msg, "'carrel doctor' says whether this host can run any");
        return;
    }
    const char *out = client_text(result, "stdout");
    char *copy = strdup(out ? out : "");
    if (copy)
        read_report(d, copy);
    free(copy);
    json_decref(result);
    if (*d->read_only) {
        char text[sizeof(d->read_only) + 32];
        snprintf(text, sizeof(text), "no command can write below %s", d->read_only);
        doctor_tell(d, "read-only", text, NULL);
    }
    doctor_tell(
        d, "reserved",
        "the names in / that Carrel provides itself, such as /usr, /etc and /tmp, cannot be "
        "removed or replaced; /tmp is empty again after each sleep",
        NULL);
}

/* --- may I write? --- */

static ssize_t give_nothing(void *context, char *bytes, size_t size)
{
    const char text[] = "probe\n";
    bool *given = context;
    size_t n = *given || size < sizeof(text) ? 0 : sizeof(text) - 1;

    memcpy(bytes, text, n);
    *given = true;
    return (ssize_t)n;
}

static const char *fix_of(enum err_said said)
{
    static const struct {
        enum err_said said;
        const char *fix;
    } known[] = {
        {SAID_DISK_FULL, "remove files, or have the limits of the policy raised"},
        {SAID_PERMISSION_DENIED,
         "its mode or owner forbids it: chmod inside, or POST .../files-repair gives it back"},
        {SAID_READ_ONLY, "write elsewhere: this is mounted read-only"},
        {SAID_RESERVED, "choose another name: Carrel provides this one itself"},
        {SAID_NOT_A_DIRECTORY, "a part of the path is a file: remove it, or choose another path"},
        {SAID_IS_DIRECTORY, "a directory has this name: write into it, or choose another name"},
        {SAID_FILE_NOT_FOUND, "make the directory: carrel mkdir"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].said == said)
            return known[i].fix;
    }
    return "the daemon's log says more";
}

/* A file that nobody has, there and gone again. `dir` must be a directory. */
static void try_to_write(struct doctor *d, const struct client_path *dir)
{
    struct files_message write = {.op = FILES_WRITE, .mode = 0600};
    struct files_message gone = {.op = FILES_REMOVE, .to = FILES_MOST};
    struct client_path probe = *dir;
    struct err err = {0};
    struct timespec now;
    char name[64];
    char text[512];
    bool given = false;
    json_t *answer = NULL;

    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof(name), ".carrel-doctor-%lld-%d", (long long)now.tv_nsec, (int)getpid());
    if (place_enter(&probe, name, &err) < 0 ||
        files_push(&d->f, &probe, &write, &(struct files_source){give_nothing, &given}, &answer,
                   &err) < 0) {
        doctor_bad(d, "writing", err.msg, fix_of(err.said));
        return;
    }
    json_decref(answer);
    snprintf(text, sizeof(text), "a file was written to %.300s and removed", dir->path);
    if (files_ask(&d->f, &probe, &gone, NULL, NULL, &err) < 0)
        doctor_bad(d, "writing", err.msg, "remove .carrel-doctor-* by hand");
    else
        doctor_good(d, "writing", text);
}

/* --- why was my file not created? --- */

/* The nearest directory above that is there. */
static int climb(struct doctor *d, struct client_path *at, struct files_kind *kind, struct err *err)
{
    do {
        char *slash = strrchr(at->path, '/');
        slash[slash == at->path] = '\0';
        if (files_look(&d->f, at, kind, err) < 0)
            return -1;
    } while (!kind->type[0] && at->path[1]);
    return 0;
}

static void look_at_path(struct doctor *d)
{
    struct client_path at = d->place;
    struct files_kind kind;
    struct err err = {0};
    char text[512];

    if (files_look(&d->f, &at, &kind, &err) < 0) {
        doctor_bad(d, "path", err.msg, fix_of(err.said));
        return;
    }
    if (kind.type[0]) {
        snprintf(text, sizeof(text), "%.300s is there: a %s of %llu bytes, mode %04llo", at.path,
                 kind.type, (unsigned long long)kind.size, (unsigned long long)kind.mode);
        doctor_good(d, "path", text);
    } else if (climb(d, &at, &kind, &err) < 0) {
        doctor_bad(d, "path", err.msg, fix_of(err.said));
        return;
    } else {
        snprintf(text, sizeof(text), "%.200s is not there; the nearest that is: %.200s, a %s",
                 d->place.path, at.path, kind.type);
        doctor_tell(d, "path", text, NULL);
        if (strncmp(d->place.path, "/tmp/", 5) == 0)
            doctor_tell(d, "path", "/tmp is emptied when the workspace goes to sleep", NULL);
    }
    if (strcmp(kind.type, "directory") == 0)
        try_to_write(d, &at);
    else if (!place_name(&d->place)[0] || strcmp(at.path, d->place.path) != 0)
        doctor_bad(d, "writing", "what is above is no directory", fix_of(SAID_NOT_A_DIRECTORY));
}

/* --- the report --- */

static void add_check(struct buf *b, const json_t *check)
{
    const json_t *works = json_object_get(check, "works");
    const char *mark = json_is_null(works) ? "-" : json_is_true(works) ? "ok" : "NO";
    const char *detail = client_text(check, "detail");
    const char *fix = client_text(check, "fix");

    buf_printf(b, "%-3s %-10s ", mark, client_text(check, "check"));
    if (detail)
        text_escape(b, detail, strlen(detail));
    if (fix)
        buf_printf(b, "\n               %s", fix);
    buf_str(b, "\n");
}

static int show(struct doctor *d)
{
    int sick = d->sick ? SICK : 0;
    struct buf b;

    if (d->f.common.json) {
        int printed = client_print(json_pack("{s:s, s:b, s:O}", "workspace", d->place.workspace,
                                             "works", !d->sick, "checks", d->checks));
        return printed ? printed : sick;
    }
    buf_init(&b, OUTPUT_MOST);
    for (size_t i = 0; i < json_array_size(d->checks); i++)
        add_check(&b, json_array_get(d->checks, i));
    buf_printf(&b, "%s: %s\n", d->place.workspace,
               d->sick ? "something is wrong, see NO above" : "all is well");
    int status = buf_done(&b) == 0 ? files_put_out(b.p, b.n) : cli_fail("too much to show");
    buf_clear(&b);
    return status ? status : sick;
}

static void examine(struct doctor *d)
{
    struct client_path root = d->place;

    if (!look_at_workspace(d))
        return;
    look_inside(d);
    (void)snprintf(root.path, sizeof(root.path), "/");
    try_to_write(d, &root);
    doctor_environment(d);
    if (d->asks_path)
        look_at_path(d);
}

int client_doctor(char **argv)
{
    static const char help[] =
        "usage: carrel doctor [--package NAME] [--json] [--state DIR] WORKSPACE[:/PATH]\n"
        "\n"
        "Wakes a workspace and says whether it can be written to and has room, what is\n"
        "read-only in it, which Python and Node its commands get, and whether their output\n"
        "comes at once. With a path, says why no file is or can be there. Without a workspace,\n"
        "says what this host offers.\n"
        "\n" HELP_OPTIONS "\n"
        "Exit status: 0 when all is well, 1 when not, 125 when Carrel failed.\n"
        "\n"
        "examples:\n"
        "  carrel doctor desk:/src/new.txt\n"
        "  carrel doctor --package pandas desk\n";
    static struct doctor d;
    const struct args_rule rules[] = {
        {"--package", "NAME", "also say whether this package is installed", ARGS_TEXT, &d.package},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, 1, "name a workspace: carrel doctor WORKSPACE"};
    const char *words[2] = {NULL};
    struct err err = {0};
    char word[FILES_PATH + PLACE_ID + 2];

    int status = files_begin(&d.f, argv, &verb, words);
    if (status >= 0)
        return status;
    d.asks_path = strchr(words[0], ':') && strchr(words[0], ':')[1];
    snprintf(word, sizeof(word), "%s%s", words[0], strchr(words[0], ':') ? "" : ":/");
    if (place_parse(word, &d.place, &err) < 0)
        return client_fail(&err);
    if (d.place.local)
        return cli_fail("name a workspace: carrel doctor WORKSPACE, or WORKSPACE:/path");
    d.checks = json_array();
    examine(&d);
    status = show(&d);
    json_decref(d.checks);
    return files_end(&d.f, status);
}
