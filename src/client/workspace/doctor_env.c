/* SPDX-License-Identifier: Apache-2.0 */
/* carrel doctor: what a command gets when it says python, bun or PATH. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/workspace/doctor.h"

enum {
    TIMEOUT_MS = 30000,
    LINE = 512,
};

/* Answers of one command inside, one a line. */
enum answer {
    WHICH_PYTHON,
    WHICH_BUN,
    WHICH_NODE,
    PATH,
    UNBUFFERED,
    CUT_SHORT, /* what an install that was killed has removed, and " " at least; "": there is none
                */
    IN_PYTHON, /* version of the package */
    IN_NODE,
    IN_PROJECT, /* where it is asked for */
    ANSWERS,
};

static const char script[] =
    "of() { command -v \"$1\" || echo; }\n"
    "of python; of bun; of node; echo \"$PATH\"; echo \"${PYTHONUNBUFFERED-}\"\n"
    "note=/.venv/.carrel-installing\n" /* see provision/uv.sh */
    "lost=''\n"
    "if [ -s $note ] && flock -n /.venv true; then\n"
    "    while read -r name; do\n"
    "        case $name in /?*) name=${name#/} ;; *) continue ;; esac\n"
    "        grep -qs /INSTALLER, "
    "/.venv/lib/python3*/site-packages/\"${name%%-*}\"-*.dist-info/RECORD && continue\n"
    "        name=${name%.dist-info} && lost=\"$lost ${name%%-*}==${name#*-}\"\n"
    "    done <$note\n"
    "    [ -z \"$lost\" ] && ! grep -qx / $note || lost=\"$lost \"\n"
    "fi\n"
    "echo \"$lost\"\n"
    "{ [ -n \"$1\" ] && timeout 20 /.venv/bin/python -c 'import importlib.metadata as m, sys\n"
    "print(m.version(sys.argv[1]))' \"$1\" 2>/dev/null </dev/null; } || echo\n"
    "{ [ -n \"$1\" ] && [ -f \"/node_modules/$1/package.json\" ] &&\n"
    "    sed -n 's/.*\"version\": *\"\\([^\"]*\\)\".*/\\1/p;ta;b;:a;q' "
    "\"/node_modules/$1/package.json\"; } || echo\n"
    "for at in /pyproject.toml /package.json; do\n"
    "    [ -z \"$1\" ] || ! grep -qF -- \"\\\"$1\" $at 2>/dev/null || { echo $at; exit; }\n"
    "done\n"
    "echo\n";

static bool ask_inside(struct doctor *d, char lines[ANSWERS][LINE])
{
    struct err err = {0};
    struct buf path;
    json_t *result = NULL;

    client_workspace_path(&path, d->place.workspace, "/exec");
    if (client_do(&d->f.daemon, "POST", &path,
                  json_pack("{s:[s,s,s,s,s], s:i}", "argv", "sh", "-c", script, "carrel-doctor",
                            d->package ? d->package : "", "timeout_ms", TIMEOUT_MS),
                  &result, &err) < 0) {
        doctor_bad(d, "commands", err.msg, "'carrel doctor' says whether this host can run any");
        return false;
    }
    const char *at = client_text(result, "stdout");
    for (size_t i = 0; i < ANSWERS; i++) {
        size_t n = at ? strcspn(at, "\n") : 0;
        snprintf(lines[i], LINE, "%.*s", (int)n, at ? at : "");
        at = at && at[n] ? at + n + 1 : NULL;
    }
    json_decref(result);
    return true;
}

static bool is_on_path(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    while (*path) {
        size_t length = strcspn(path, ":");
        if (length == n && memcmp(path, dir, n) == 0)
            return true;
        path += length;
        path += *path == ':';
    }
    return false;
}

static void look_at_tools(struct doctor *d, const json_t *tools)
{
    const char *uv = client_text(tools, "uv");
    const char *bun = client_text(tools, "bun");
    char text[128];

    snprintf(text, sizeof(text), "uv %.40s, bun %.40s", uv ? uv : "is missing",
             bun ? bun : "is missing");
    if (uv && bun)
        doctor_good(d, "tools", text);
    else
        doctor_tell(d, "tools", text, "on the daemon's host, run: carrel env setup");
}

static void look_at_installs(struct doctor *d, char *lost)
{
    char text[LINE + 64];
    char fix[LINE + 64];

    if (!*lost)
        return;
    size_t n = strlen(lost);
    lost[n - 1] = '\0'; /* a blank */
    snprintf(text, sizeof(text), "an install was cut short%s%s", *lost ? ", and has removed" : "",
             lost);
    snprintf(fix, sizeof(fix), "run inside: uv pip install%s (any install first takes it back)",
             *lost ? lost : " PACKAGE");
    doctor_bad(d, "install", text, fix);
}

static void look_at_python(struct doctor *d, const json_t *python, const char *which)
{
    const char *state = client_text(python, "state");
    const char *version = client_text(python, "version");
    char text[LINE];
    char fix[256];

    if (!state) {
        snprintf(text, sizeof(text), "no /.venv; python is %.200s", *which ? which : "not there");
        snprintf(fix, sizeof(fix), "to install packages, run: carrel env %.80s python",
                 d->place.workspace);
        doctor_tell(d, "python", text, fix);
    } else if (strcmp(state, "broken") == 0) {
        snprintf(fix, sizeof(fix), "run: carrel env %.80s python --clear", d->place.workspace);
        doctor_bad(d, "python", "/.venv is there and does not work", fix);
    } else if (strcmp(which, "/.venv/bin/python") == 0) {
        snprintf(text, sizeof(text),
                 "python is /.venv/bin/python, %.40s: the environment is active",
                 version ? version : "");
        doctor_good(d, "python", text);
    } else {
        snprintf(text, sizeof(text), "python is %.200s, not /.venv/bin/python",
                 *which ? which : "not found");
        doctor_bad(d, "python", text,
                   "PATH is not the one that Carrel sets: look at \"env\" of the policy and of the "
                   "command");
    }
}

static void look_at_node(struct doctor *d, const json_t *node, char lines[ANSWERS][LINE])
{
    char text[2 * LINE];
    char fix[256];

    snprintf(text, sizeof(text), "bun is %.200s, node is %.200s%s",
             *lines[WHICH_BUN] ? lines[WHICH_BUN] : "not there",
             *lines[WHICH_NODE] ? lines[WHICH_NODE] : "not there (the host has none)",
             json_is_object(node) ? "" : "; no package.json");
    snprintf(fix, sizeof(fix), "to install packages, run: carrel env %.80s node",
             d->place.workspace);
    if (json_is_object(node))
        doctor_good(d, "node", text);
    else
        doctor_tell(d, "node", text, fix);
}

static void look_at_path(struct doctor *d, const char *path)
{
    static const char *const wanted[] = {"/node_modules/.bin", "/.venv/bin", "/usr/bin"};

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (!is_on_path(path, wanted[i])) {
            char text[LINE + 64];
            snprintf(text, sizeof(text), "%s is not on it: %.400s", wanted[i], path);
            doctor_bad(d, "PATH", text,
                       "leave PATH out of \"env\" of the policy, or name that directory in it");
            return;
        }
    }
    doctor_good(d, "PATH", path);
}

static void look_at_output(struct doctor *d, const char *unbuffered)
{
    if (*unbuffered)
        doctor_good(d, "output",
                    "Python's comes at once; other programs may keep theirs until 4 KiB are there: "
                    "stdbuf -oL, or carrel exec --tty");
    else
        doctor_bad(d, "output", "Python's comes late: PYTHONUNBUFFERED is empty",
                   "leave it out of \"env\" of the policy, or run python -u");
}

static void look_at_package(struct doctor *d, char lines[ANSWERS][LINE])
{
    const char *where = *lines[IN_PYTHON] ? "/.venv" : "/node_modules";
    const char *version = *lines[IN_PYTHON] ? lines[IN_PYTHON] : lines[IN_NODE];
    char text[LINE];
    char fix[LINE];

    if (*version) {
        snprintf(text, sizeof(text), "%.100s %.60s is installed in %s", d->package, version, where);
        doctor_good(d, "package", text);
        return;
    }
    snprintf(text, sizeof(text), "%.100s is neither in /.venv nor in /node_modules%s%.40s",
             d->package, *lines[IN_PROJECT] ? ", but named in " : "", lines[IN_PROJECT]);
    snprintf(fix, sizeof(fix),
             "inside, run: %s; the policy must allow the network, or the cache have it",
             strcmp(lines[IN_PROJECT], "/pyproject.toml") == 0 ? "uv sync"
             : *lines[IN_PROJECT]                              ? "bun install"
                                  : "uv pip install NAME, or bun add NAME");
    doctor_bad(d, "package", text, fix);
}

void doctor_environment(struct doctor *d)
{
    static char lines[ANSWERS][LINE];
    struct err err = {0};
    struct buf path;
    json_t *env = NULL;

    client_workspace_path(&path, d->place.workspace, "/env");
    if (client_do(&d->f.daemon, "GET", &path, NULL, &env, &err) < 0) {
        doctor_bad(d, "tools", err.msg, "see carrel-env(1)");
        return;
    }
    if (ask_inside(d, lines)) {
        look_at_tools(d, json_object_get(env, "tools"));
        look_at_python(d, json_object_get(env, "python"), lines[WHICH_PYTHON]);
        look_at_installs(d, lines[CUT_SHORT]);
        look_at_node(d, json_object_get(env, "node"), lines);
        look_at_path(d, lines[PATH]);
        look_at_output(d, lines[UNBUFFERED]);
        if (d->package)
            look_at_package(d, lines);
        doctor_tell(d, "files",
                    "commands start in /, and so do relative paths; a command that ends with "
                    "another status than 0 may have stopped before it wrote",
                    NULL);
    }
    json_decref(env);
}
