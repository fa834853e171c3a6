/* SPDX-License-Identifier: Apache-2.0 */
/* What the command is given (environment), level dir, and the printed form of it all (explain). */
#include "scene.h"

#include <jansson.h>
#include <linux/mount.h>

/* --- what the command is given --- */

static const char *variable(const struct scene *s, const char *name)
{
    size_t n = strlen(name);
    const char *found = NULL;

    for (uint32_t i = 0; i < s->run->command.envc; i++) {
        if (strncmp(s->run->command.env[i], name, n) == 0 && s->run->command.env[i][n] == '=')
            found = found ? "twice" : s->run->command.env[i] + n + 1;
    }
    return found ? found : "";
}

TEST(the_environment_is_the_documented_one_and_nothing_of_the_callers)
{
    static const char *const names[] = {"HOME",
                                        "USER",
                                        "LOGNAME",
                                        "PWD",
                                        "PATH",
                                        "LANG",
                                        "NODE_ENV",
                                        "PYTHONUNBUFFERED",
                                        "NODE_PATH",
                                        "UV_CACHE_DIR",
                                        "MPLBACKEND",
                                        "PYTHONDONTWRITEBYTECODE",
                                        "npm_config_cache",
                                        "BUN_INSTALL_CACHE_DIR",
                                        "PYTHONNOUSERSITE",
                                        "UV_PYTHON_DOWNLOADS",
                                        "UV_PYTHON_PREFERENCE",
                                        "UV_COMPILE_BYTECODE",
                                        "UV_LINK_MODE",
                                        "PIP_DISABLE_PIP_VERSION_CHECK",
                                        "PIP_CACHE_DIR"};
    SCENE(s);

    CHECK(setenv("CARREL_UNIT_SECRET", "secret", 1) == 0 && setenv("LD_PRELOAD_", "x", 1) == 0);
    CHECK(prepare(&s) == 0);
    CHECK(s.run->command.envc == LENGTH(names));
    for (size_t i = 0; i < LENGTH(names); i++)
        CHECK_FOR(names[i], variable(&s, names[i])[0] != '\0');
    CHECK(is(variable(&s, "HOME"), "/") && is(variable(&s, "USER"), "user"));
    CHECK(is(variable(&s, "PATH"), "/node_modules/.bin:/.venv/bin:/opt/carrel/bin:/usr/local/bin:/"
                                   "usr/bin:/bin:/etc/carrel/bin"));
    CHECK(s.run->command.env[s.run->command.envc] == NULL);
    return 0;
}

TEST(variables_asked_for_take_the_place_of_defaults_and_of_each_other)
{
    static const char *const env[] = {"LANG=C", "A=1", "A=2", "E=", "HOME=/h", NULL};
    SCENE(s);

    s.spec.env = env;
    CHECK(prepare(&s) == 0);
    CHECK(is(variable(&s, "LANG"), "C") && is(variable(&s, "A"), "2"));
    CHECK(is(variable(&s, "HOME"), "/h") && is(variable(&s, "E"), ""));
    return 0;
}

TEST(variables_without_a_name_are_refused)
{
    static const char *const bad[] = {"NOVALUE", "=x", "", "="};
    SCENE(s);

    for (size_t i = 0; i < LENGTH(bad); i++) {
        const char *env[] = {"A=1", bad[i], NULL};
        s.spec.env = env;
        CHECK_FOR(bad[i], prepare(&s) < 0);
        CHECK_FOR(bad[i], s.err.code == ERR_INVALID);
    }
    return 0;
}

TEST(a_virtual_environment_is_activated_where_there_is_one)
{
    SCENE(s);

    CHECK(prepare(&s) == 0);
    CHECK(is(variable(&s, "VIRTUAL_ENV"), ""));
    CHECK(mkdir(in_folder(&s, "ws/.venv"), 0755) == 0);
    CHECK(mkdir(in_folder(&s, "ws/.venv/bin"), 0755) == 0);
    CHECK(prepare(&s) == 0);
    CHECK(is(variable(&s, "VIRTUAL_ENV"), "/.venv"));
    return 0;
}

TEST(a_run_without_a_command_or_with_a_relative_directory_is_refused)
{
    static char *const none[] = {NULL};
    SCENE(s);

    s.spec.argv = none;
    CHECK(prepare(&s) < 0);
    s.spec.argv = NULL;
    CHECK(prepare(&s) < 0);
    s.spec.argv = a_command;
    s.spec.cwd = "sub";
    CHECK(prepare(&s) < 0);
    return 0;
}

/* --- level dir --- */

TEST(level_dir_refuses_what_it_cannot_give)
{
    SCENE(s);
    struct carrel_mount mount = {s.folder, "/mnt", false, NULL, 0};
    const struct carrel_spec cannot[] = {{.net = CARREL_NET_NONE},
                                         {.mounts = &mount, .mount_count = 1},
                                         {.user = CARREL_USER_ROOT},
                                         {.tmp_bytes = 1},
                                         {.at = "/x"}};

    for (size_t i = 0; i < LENGTH(cannot); i++) {
        s.spec = cannot[i];
        s.spec.level = CARREL_LEVEL_DIR;
        s.spec.argv = a_command;
        CHECK(prepare(&s) < 0);
        CHECK(s.err.code == ERR_INVALID);
    }
    return 0;
}

TEST(level_dir_is_a_directory_and_an_environment)
{
    SCENE(s);

    s.spec.level = CARREL_LEVEL_DIR;
    CHECK(prepare(&s) == 0);
    CHECK(s.run->setup.flags == SETUP_DIR_LEVEL);
    CHECK(s.run->setup.op_count == 0 && s.run->setup.namespaces == 0);
    CHECK(is(variable(&s, "HOME"), in_folder(&s, "ws")));
    CHECK(is(s.run->command.cwd, in_folder(&s, "ws")));
    return 0;
}

TEST(auto_is_never_dir)
{
    SCENE(s);

    CHECK(prepare(&s) == 0);
    CHECK(s.run->level == CARREL_LEVEL_NS && s.run->net == CARREL_NET_NONE);
    return 0;
}

/* --- the printed form --- */

static char *explained_as(struct scene *s, enum carrel_format format)
{
    struct carrel_error error;
    char *text = NULL;

    return carrel_explain(&s->spec, format, &text, &error) < 0 ? NULL : text;
}

/* Prepared as well, to be compared with. */
static json_t *explained(struct scene *s)
{
    char *text = prepare(s) < 0 ? NULL : explained_as(s, CARREL_JSON);

    if (!text)
        return NULL;
    json_t *all = json_loads(text, 0, NULL);
    free(text);
    return all;
}

#define scoped_json __attribute__((cleanup(drop_json))) json_t

static void drop_json(json_t **value)
{
    json_decref(*value);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* Every mount, in order, with its kind, source, place and whether it can be written. */
TEST(explain_shows_every_mount_as_it_will_be_made)
{
    SCENE(s);
    struct carrel_mount mount = {s.folder, "/mnt/data", false, NULL, 0};

    s.spec.mounts = &mount;
    s.spec.mount_count = 1;
    scoped_json *all = explained(&s);
    CHECK(all != NULL);
    size_t shown = 0;
    json_t *mounts = json_object_get(all, "mounts");
    uint32_t frame = s.run->setup.frame_count;
    for (uint32_t n = 0; n < s.run->setup.op_count; n++) {
        uint32_t i = n == 0 ? frame : n <= frame ? n - 1 : n; /* the root comes first */
        const struct op *op = &s.run->setup.ops[i];
        bool making = op->kind == OP_DIR || op->kind == OP_FILE || op->kind == OP_LINK;
        if (op->kind == OP_MOVE || (making && (i < frame || !(op->flags & OP_IN_ROOT))))
            continue;
        json_t *line = json_array_get(mounts, shown++);
        CHECK_FOR(op->target, text_of(line, "target")[0] == '/');
        CHECK_FOR(op->target, is(text_of(line, "target") + 1, op->target));
        CHECK_FOR(op->target, op->kind != OP_BIND || is(text_of(line, "source"), op->source));
        CHECK_FOR(op->target, json_is_true(json_object_get(line, "read_only")) ==
                                  ((op->attrs & MOUNT_ATTR_RDONLY) != 0));
    }
    CHECK(shown == json_array_size(mounts));
    return 0;
}

TEST(explain_says_where_the_changes_of_a_mount_go)
{
    SCENE(s);
    struct carrel_mount mounts[] = {{s.folder, "/.venv", true, "/nowhere/a", 0},
                                    {s.folder, "/.cache/uv", false, "/nowhere/b", 0}};

    s.spec.mounts = mounts;
    s.spec.mount_count = LENGTH(mounts);
    scoped_json *all = explained(&s);
    CHECK(all != NULL);
    json_t *list = json_object_get(all, "mounts");
    size_t n = json_array_size(list);
    json_t *venv = NULL;
    json_t *cache = NULL;
    for (size_t i = 0; i < n; i++) {
        json_t *line = json_array_get(list, i);
        if (is(text_of(line, "kind"), "layer") && is(text_of(line, "target"), "/.venv"))
            venv = line;
        if (is(text_of(line, "kind"), "layer") && is(text_of(line, "target"), "/.cache/uv"))
            cache = line;
    }
    CHECK(venv && is(text_of(venv, "changes_to"), "/nowhere/a"));
    CHECK(is(text_of(venv, "changes_of"), "") && is(text_of(venv, "source"), s.folder));
    CHECK(json_is_false(json_object_get(venv, "read_only")));
    CHECK(cache && is(text_of(cache, "changes_of"), "/nowhere/b"));
    CHECK(is(text_of(cache, "changes_to"), "") &&
          json_is_true(json_object_get(cache, "read_only")));
    CHECK(is(variable(&s, "VIRTUAL_ENV"), "/.venv"));
    return 0;
}

TEST(explain_shows_the_whole_command_and_environment)
{
    static char *const argv[] = {"a", "b c", "", NULL};
    SCENE(s);

    s.spec.argv = argv;
    s.spec.timeout_ms = 1234;
    scoped_json *all = explained(&s);
    CHECK(json_array_size(json_object_get(all, "command")) == 3);
    CHECK(json_object_size(json_object_get(all, "environment")) == s.run->command.envc);
    CHECK(is(text_of(all, "level"), "ns") && is(text_of(all, "network"), "none"));
    CHECK(is(text_of(all, "workspace"), in_folder(&s, "ws")));
    CHECK(json_integer_value(json_object_get(json_object_get(all, "limits"), "timeout_ms")) ==
          1234);
    return 0;
}

/* A name need not be UTF-8: it may look odd in the explanation, but it must not be missing. */
TEST(explain_hides_nothing_that_is_not_text)
{
    static char *const argv[] = {"echo", "\xff", NULL};
    static const char *const env[] = {"ODD=\xfe", NULL};
    SCENE(s);
    struct carrel_mount mount = {s.folder, "/mnt/\xff", false, NULL, 0};

    s.spec.argv = argv;
    s.spec.env = env;
    s.spec.mounts = &mount;
    s.spec.mount_count = 1;
    CHECK(mkdir(in_folder(&s, "\xff"), 0755) == 0);
    s.spec.workspace = in_folder(&s, "\xff");
    scoped_json *all = explained(&s);
    CHECK(all != NULL);
    CHECK(json_array_size(json_object_get(all, "command")) == 2);
    CHECK(json_object_size(json_object_get(all, "environment")) == s.run->command.envc);
    CHECK(text_of(all, "workspace")[0] != '\0');
    json_t *mounts = json_object_get(all, "mounts");
    CHECK(text_of(json_array_get(mounts, json_array_size(mounts) - 1), "target")[0] == '/');
    return 0;
}

TEST(explain_says_that_level_dir_isolates_nothing)
{
    SCENE(s);

    s.spec.level = CARREL_LEVEL_DIR;
    char *text = explained_as(&s, CARREL_TEXT);
    CHECK(text != NULL);
    bool said = strstr(text, "isolates nothing") != NULL;
    free(text);
    CHECK(said);
    scoped_json *all = explained(&s);
    CHECK(!json_object_get(all, "mounts") && !json_object_get(all, "filter"));
    CHECK(json_array_size(json_object_get(all, "not_given")) >= 3);
    return 0;
}

TEST(explain_in_words_has_a_line_for_every_mount)
{
    SCENE(s);
    char *text = explained_as(&s, CARREL_TEXT);

    CHECK(text != NULL);
    bool right = strstr(text, "/usr") && strstr(text, "/proc/kcore") && strstr(text, "/dev/shm") &&
                 strstr(text, "unshare");
    free(text);
    CHECK(right);
    return 0;
}
