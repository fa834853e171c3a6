/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/env_script.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"

/* What is new is made beside what there is, and takes its place at one instant when it is whole: a
 * failure, or a kill, leaves the one or the other. Where names cannot be exchanged it is two
 * renames, and the next one finds what was put aside (clean). On a template /.venv is a mount,
 * which cannot be renamed: there the new one gets a name of its own, and the broker puts it into
 * its place when the sandbox is over, if asked to (broker/sandbox_spec.c); until then there is the
 * old one. pip, of 440 files, is not compiled: that would take longer than all the rest. */
const char env_script[] =
    "# carrel env\n"
    "set -u\n"
    "umask 022\n"
    "cd /\n"
    "PATH=/usr/local/bin:/usr/bin:/bin\n"
    "tools=/opt/carrel\n"
    "uv=$tools/libexec/uv bun=$tools/bin/bun\n"
    "unset VIRTUAL_ENV UV_PROJECT_ENVIRONMENT UV_PYTHON PYTHONHOME PYTHONPATH CONDA_PREFIX\n"
    "downloads=${UV_PYTHON_DOWNLOADS-}\n"
    "export PATH UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never\n"
    "export UV_NO_PROGRESS=1 UV_COMPILE_BYTECODE=0 NO_COLOR=1\n"
    "what=$1 want=$2 clear=$3\n"
    "mounted='' new=/.venv.carrel-new old=/.venv.carrel-old next=/.venv.carrel-next\n"
    "project=/.pyproject.carrel-new\n"
    "package=/.package.carrel-new bunfig=/.bunfig.carrel-new no_room='No space left'\n"
    "while read -r _ _ _ _ at _; do\n"
    "    [ \"$at\" != /.venv ] || mounted=1\n"
    "done </proc/self/mountinfo\n"
    "\n"
    "say() { printf '%s\\t%s\\t%s\\t%s\\t%s\\n' \"$1\" \"$2\" \"${3-}\" \"${4-}\" \"${5-}\"; }\n"
    "end() { printf 'why\\t%s\\n' \"$2\"; exit \"$1\"; }\n"
    "is_there() { [ -e \"$1\" ] || [ -L \"$1\" ]; }\n"
    "clean() {\n"
    "    rm -rf \"$new\" \"$next\" \"$project\" \"$package\" \"$bunfig\" /.venv/.carrel-cache\n"
    "    is_there /.venv || ! is_there \"$old\" || mv -T \"$old\" /.venv\n"
    "    rm -rf \"$old\"\n"
    "}\n"
    "lock() {\n"
    "    command -v flock >/dev/null || return 0\n"
    "    exec 9</tmp\n"
    "    flock -n 9 || { [ -n \"${1-}\" ] && sleep \"$1\" && flock -n 9; } || end 46 ''\n"
    "}\n"
    "undo=:\n"
    "fail() {\n"
    "    $undo\n"
    "    clean\n"
    "    case $1 in\n"
    "    *'os error 28'* | *'os error 122'* | *'No space left'* | *'quota exceeded'*) end 45 "
    "\"$1\" ;;\n"
    "    esac\n"
    "    end 44 \"$1\"\n"
    "}\n"
    "try() { said=$(\"$@\" 2>&1 </dev/null) || fail \"$said\"; }\n"
    "list() {\n"
    "    \"$uv\" python list --only-installed 2>/dev/null | while read -r name path _; do\n"
    "        case $path in /*) say have \"$name\" \"$path\" ;; esac\n"
    "    done\n"
    "}\n"
    "\n"
    "look() {\n"
    "    state=none version='' base='' pip=''\n"
    "    is_there /.venv || return 0\n"
    "    [ ! -d /.venv ] || [ -n \"$(ls -A /.venv)\" ] || return 0\n"
    "    state=broken\n"
    "    [ -d /.venv ] && [ ! -L /.venv ] && [ -f /.venv/pyvenv.cfg ] || return 0\n"
    "    said=$(timeout 20 /.venv/bin/python -I -c 'import sys\n"
    "assert sys.prefix == \"/.venv\"\n"
    "print(\"%d.%d.%d\" % sys.version_info[:3], sys._base_executable)' 2>/dev/null </dev/null) ||\n"
    "        return 0\n"
    "    state=there version=${said%% *} base=${said#* }\n"
    "    for at in /.venv/lib/python3*/site-packages/pip-*.dist-info; do\n"
    "        [ ! -f \"$at/INSTALLER\" ] || { pip=${at##*/pip-} && pip=${pip%.dist-info}; }\n"
    "    done\n"
    "}\n"
    "tell() { [ \"$state\" = none ] || say python \"$state\" \"$version\" \"$base\" \"$pip\"; }\n"
    "point() {\n"
    "    for at in $(grep -lIr -- \"$new\" \"$new/bin\"); do\n"
    "        sed -i \"s|$new|/.venv|g\" \"$at\" || fail \"$no_room\"\n"
    "    done\n"
    "}\n"
    "add_pip() {\n"
    "    set -- $tools/wheels/pip-*.whl\n"
    "    [ -f \"$1\" ] || return 0\n"
    "    try \"$uv\" pip install --python \"$at/bin/python\" --no-index --no-deps --no-config \\\n"
    "        --find-links $tools/wheels --cache-dir \"$at/.carrel-cache\" --link-mode hardlink "
    "pip\n"
    "    rm -rf \"$at/.carrel-cache\"\n"
    "}\n"
    "# What is there of pip when none is there, whole: its last file is missing.\n"
    "drop_pip() {\n"
    "    rm -rf /.venv/lib/python3*/site-packages/pip /.venv/lib/python3*/site-packages/pip-*.dist-"
    "info\n"
    "    rm -f /.venv/bin/pip /.venv/bin/pip3 /.venv/bin/pip3.*\n"
    "}\n"
    "exchange() {\n"
    "    \"$new/bin/python\" -I -S -c 'import ctypes, sys\n"
    "a, b = map(str.encode, sys.argv[1:])\n"
    "sys.exit(ctypes.CDLL(None).renameat2(-100, a, -100, b, 2) != 0)' \"$new\" /.venv 2>/dev/null\n"
    "}\n"
    "put() {\n"
    "    is_there /.venv || { mv -T \"$new\" /.venv; return; }\n"
    "    sync -f \"$new\" 2>/dev/null # before its name says that it is whole\n"
    "    [ -z \"$mounted\" ] || { mv -T \"$new\" \"$next\"; return; }\n"
    "    ! exchange || { rm -rf \"$new\"; return 0; }\n"
    "    mv -T /.venv \"$old\" && mv -T \"$new\" /.venv && rm -rf \"$old\"\n"
    "}\n"
    "find_python() { found=$(\"$uv\" python find --system ${want:+\"$want\"} 2>&1 </dev/null); }\n"
    "# One of uv's own, for all later ones as well.\n"
    "fetch_python() {\n"
    "    [ \"$downloads\" = automatic ] || return 1\n"
    "    found=$(env -u UV_OFFLINE UV_PYTHON_DOWNLOADS=automatic \"$uv\" python install "
    "${want:+\"$want\"} 2>&1 </dev/null)\n"
    "}\n"
    "make_python() {\n"
    "    look\n"
    "    if [ -z \"$clear\" ]; then\n"
    "        case $state in\n"
    "        broken) end 43 '' ;;\n"
    "        there)\n"
    "            case $version in \"$want\" | \"$want\".*) ;; *) [ -z \"$want\" ] || { tell; end "
    "42 ''; } ;; esac\n"
    "            [ -n \"$pip\" ] || { at=/.venv undo=drop_pip && drop_pip && add_pip; undo=:; }\n"
    "            look\n"
    "            tell\n"
    "            return\n"
    "            ;;\n"
    "        esac\n"
    "    fi\n"
    "    find_python || fetch_python && find_python || {\n"
    "        list\n"
    "        end 41 \"$found\"\n"
    "    }\n"
    "    try \"$uv\" venv --no-config --no-project --python \"$found\" --prompt workspace "
    "\"$new\"\n"
    "    point\n"
    "    at=$new\n"
    "    add_pip\n"
    "    point\n"
    "    minor=$(\"$new/bin/python\" -I -S -c 'import sys\n"
    "print(\"%d.%d\" % sys.version_info[:2])' 2>&1) || fail \"$minor\"\n"
    "    is_there /pyproject.toml || cat >\"$project\" <<END || fail \"$no_room\"\n"
    "[project]\n"
    "name = \"workspace\"\n"
    "version = \"0.1.0\"\n"
    "requires-python = \">=$minor\"\n"
    "dependencies = []\n"
    "\n"
    "# Tests are looked for below /, but not in the system.\n"
    "[tool.pytest.ini_options]\n"
    "norecursedirs = [\".*\", \"node_modules\", \"/bin\", \"/dev\", \"/etc\", \"/lib\", "
    "\"/lib32\", "
    "\"/lib64\", \"/opt\", \"/proc\", \"/sbin\", \"/sys\", \"/tmp\", \"/usr\"]\n"
    "END\n"
    "    said=$(put 2>&1) || fail \"$said\"\n"
    "    [ -z \"$mounted\" ] || end 48 ''\n"
    "    settle\n"
    "}\n"
    "settle() {\n"
    "    ! is_there \"$next\" || fail 'the new environment could not be put into its place, as "
    "something of the workspace still ran; ask again'\n"
    "    is_there /pyproject.toml || [ ! -f \"$project\" ] || mv -T \"$project\" /pyproject.toml\n"
    "    look\n"
    "    [ \"$state\" != there ] || state=new\n"
    "    tell\n"
    "}\n"
    "\n"
    "tell_node() {\n"
    "    node=$(command -v node) && node=$(node --version 2>/dev/null)\n"
    "    say node \"$1\" \"$(\"$bun\" --version 2>/dev/null)\" \"$node\" \"$(command -v npm)\"\n"
    "}\n"
    "make_node() {\n"
    "    state=there\n"
    "    ! is_there /node_modules || [ -d /node_modules ] || end 47 ''\n"
    "    is_there /package.json || cat >\"$package\" <<END || fail \"$no_room\"\n"
    "{\n"
    "  \"name\": \"workspace\",\n"
    "  \"module\": \"index.ts\",\n"
    "  \"type\": \"module\",\n"
    "  \"private\": true\n"
    "}\n"
    "END\n"
    "    is_there /bunfig.toml || cat >\"$bunfig\" <<END || fail \"$no_room\"\n"
    "# Tests are looked for below /, but not in the system.\n"
    "[test]\n"
    "pathIgnorePatterns = [\"bin/**\", \"dev/**\", \"etc/**\", \"lib/**\", \"lib32/**\", "
    "\"lib64/**\", "
    "\"opt/**\", \"proc/**\", \"sbin/**\", \"sys/**\", \"tmp/**\", \"usr/**\"]\n"
    "END\n"
    "    [ -d /node_modules ] || { try mkdir /node_modules && state=new; }\n"
    "    [ ! -f \"$package\" ] || { mv \"$package\" /package.json && state=new; }\n"
    "    [ ! -f \"$bunfig\" ] || mv \"$bunfig\" /bunfig.toml\n"
    "    tell_node \"$state\"\n"
    "}\n"
    "report() {\n"
    "    say tools \"$(\"$uv\" --version 2>/dev/null)\" \"$(\"$bun\" --version 2>/dev/null)\"\n"
    "    look\n"
    "    tell\n"
    "    [ ! -e /package.json ] || tell_node there\n"
    "    list\n"
    "}\n"
    "\n"
    "case $what in\n"
    "report) report; exit 0 ;;\n"
    "clean) lock 2; clean; exit 0 ;;\n"
    "settle)\n"
    "    lock 2\n"
    "    settle\n"
    "    [ \"$want\" != both ] || make_node\n"
    "    clean\n"
    "    exit 0\n"
    "    ;;\n"
    "python) [ -x \"$uv\" ] || end 40 '' ;;\n"
    "node) [ -x \"$bun\" ] || end 40 '' ;;\n"
    "both) { [ -x \"$uv\" ] && [ -x \"$bun\" ]; } || end 40 '' ;;\n"
    "esac\n"
    "lock\n"
    "trap '$undo; clean; exit 143' TERM INT HUP\n"
    "clean\n"
    "case $what in python | both) make_python ;; esac\n"
    "case $what in node | both) make_node ;; esac\n";

enum {
    FIELDS = 5, /* a key, and values */
    LONGEST = 4096,
    MOST_INTERPRETERS = 64,
};

struct field {
    const char *p;
    size_t n;
};

/* Text, or null where there is none or it is no text. */
static json_t *text_of(const struct field *f)
{
    return f->n > 0 && f->n <= LONGEST && bytes_are_utf8(f->p, f->n) ? json_stringn(f->p, f->n)
                                                                     : json_null();
}

static size_t split(const char *line, size_t n, struct field fields[FIELDS])
{
    size_t count = 0;

    memset(fields, 0, FIELDS * sizeof(fields[0]));
    while (count < FIELDS) {
        const char *tab = memchr(line, '\t', n);
        size_t length = tab ? (size_t)(tab - line) : n;
        fields[count++] = (struct field){line, length};
        if (!tab)
            break;
        line += length + 1;
        n -= length + 1;
    }
    return count;
}

static bool is(const struct field *f, const char *word)
{
    return f->n == strlen(word) && memcmp(f->p, word, f->n) == 0;
}

static void take_tools(json_t *report, const struct field *f)
{
    struct field uv = f[1];

    /* "uv 0.1.2 (of a day)" */
    if (uv.n > 3 && memcmp(uv.p, "uv ", 3) == 0) {
        uv = (struct field){uv.p + 3, uv.n - 3};
        const char *blank = memchr(uv.p, ' ', uv.n);
        uv.n = blank ? (size_t)(blank - uv.p) : uv.n;
    }
    json_object_set_new(report, "tools",
                        json_pack("{s:o, s:o}", "uv", text_of(&uv), "bun", text_of(&f[2])));
}

static void take_python(json_t *report, const struct field *f)
{
    json_object_set_new(report, "python",
                        json_pack("{s:o, s:o, s:s, s:o, s:o, s:b}", "state", text_of(&f[1]),
                                  "version", text_of(&f[2]), "path", "/.venv/bin/python",
                                  "interpreter", text_of(&f[3]), "pip", text_of(&f[4]), "created",
                                  is(&f[1], "new")));
}

static void take_node(json_t *report, const struct field *f)
{
    json_object_set_new(report, "node",
                        json_pack("{s:o, s:o, s:o, s:s, s:b}", "bun", text_of(&f[2]), "node",
                                  text_of(&f[3]), "npm", text_of(&f[4]), "path", "/node_modules",
                                  "created", is(&f[1], "new")));
}

/* "cpython-3.11.2-linux-x86_64-gnu" and where it is. */
static void take_have(json_t *report, const struct field *f)
{
    const char *dash = memchr(f[1].p, '-', f[1].n);
    json_t *list = json_object_get(report, "interpreters");
    struct field version = {f[1].p, f[1].n};

    if (json_array_size(list) == MOST_INTERPRETERS)
        return;
    if (dash) {
        version.p = dash + 1;
        version.n = f[1].n - (size_t)(version.p - f[1].p);
        const char *end = memchr(version.p, '-', version.n);
        version.n = end ? (size_t)(end - version.p) : version.n;
    }
    json_array_append_new(
        list, json_pack("{s:o, s:o}", "version", text_of(&version), "path", text_of(&f[2])));
}

json_t *env_report(const char *text, size_t n)
{
    static const struct {
        const char *key;
        void (*take)(json_t *report, const struct field *fields);
    } keys[] = {
        {"tools", take_tools}, {"python", take_python}, {"node", take_node}, {"have", take_have}};

    json_t *report = json_pack("{s:n, s:n, s:n, s:[]}", "tools", "python", "node", "interpreters");
    struct field fields[FIELDS];

    while (report && n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t length = end ? (size_t)(end - text) : n;
        if (length >= 4 && memcmp(text, "why\t", 4) == 0) { /* all the rest */
            struct field why = {text + 4, n - 4};
            while (why.n > LONGEST || (why.n > 0 && ((unsigned char)*why.p & 0xc0) == 0x80)) {
                why.p++; /* the end is what matters, from the start of a character on */
                why.n--;
            }
            json_object_set_new(report, "why", text_of(&why));
            break;
        }
        size_t count = split(text, length, fields);
        for (size_t i = 0; count >= 3 && i < sizeof(keys) / sizeof(keys[0]); i++) {
            if (is(&fields[0], keys[i].key))
                keys[i].take(report, fields);
        }
        n -= end ? length + 1 : length;
        text += end ? length + 1 : length;
    }
    return report;
}
