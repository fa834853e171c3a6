/* SPDX-License-Identifier: Apache-2.0 */
/* client/template_file, template_lock, template_remedy: what a template is, which versions it has,
 * and what to do when they cannot be had. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "client/provision/template_file.h"
#include "client/provision/template_lock.h"
#include "client/provision/template_remedy.h"

struct desk {
    struct template_file file;
    struct arena arena;
    struct err err;
};

static void desk_clear(struct desk *d)
{
    arena_clear(&d->arena);
}

#define scoped_desk __attribute__((cleanup(desk_clear))) struct desk d = {.arena = {.max = 1 << 22}}

static int parse(struct desk *d, const char *text)
{
    return template_parse(&d->file, &d->arena, text, strlen(text), &d->err);
}

/* --- the file --- */

TEST(a_name_is_enough)
{
    scoped_desk;

    CHECK(parse(&d, "{\"name\":\"a\"}") == 0);
    CHECK(strcmp(d.file.name, "a") == 0);
    CHECK(!d.file.python.wanted && !d.file.node.wanted && !d.file.start);
    CHECK(d.file.files.count == 0 && d.file.env.count == 0);
    return 0;
}

TEST(every_key_is_read)
{
    scoped_desk;

    CHECK(parse(&d, "{\"name\":\"lab-1\",\"python\":{\"version\":\"3.11\",\"packages\":[\"six\","
                    "\"pandas>=2,<3\"],\"lock\":\"a.lock\",\"build\":true},\"node\":{\"packages\":"
                    "[\"docx\",\"@types/node@^20.1\"],\"lock\":\"b.lock\"},\"files\":"
                    "{\"/bin2/x\":\"x.sh\"},\"env\":{\"A\":\"b c\",\"_E\":\"\"},\"start\":\"sleep "
                    "1\",\"debian\":[]}") == 0);
    CHECK(d.file.python.wanted && d.file.python.build && d.file.python.count == 2);
    CHECK(strcmp(d.file.python.version, "3.11") == 0);
    CHECK(strcmp(d.file.python.at[1], "pandas>=2,<3") == 0);
    CHECK(strcmp(d.file.python.lock, "a.lock") == 0);
    CHECK(d.file.node.wanted && !d.file.node.build && d.file.node.count == 2);
    CHECK(strcmp(d.file.node.lock, "b.lock") == 0);
    CHECK(strcmp(d.file.files.at[0].name, "/bin2/x") == 0);
    CHECK(strcmp(d.file.files.at[0].value, "x.sh") == 0);
    CHECK(d.file.env.count == 2 && strcmp(d.file.env.at[0].value, "b c") == 0);
    CHECK(strcmp(d.file.start, "sleep 1") == 0);
    return 0;
}

static const struct {
    const char *text;
    const char *says;
} refused[] = {
    {"", "line 1"},
    {"[]", "no JSON object"},
    {"{}", "no \"name\""},
    {"{\"name\":\"a\",\"name\":\"b\"}", "duplicate"},
    {"{\"name\":\"\"}", "\"name\" must be"},
    {"{\"name\":\"../a\"}", "\"name\" must be"},
    {"{\"name\":\"-a\"}", "\"name\" must be"},
    {"{\"name\":\"a b\"}", "\"name\" must be"},
    {"{\"name\":\"a\",\"pyhton\":{}}",
     "unknown key \"pyhton\"; known are: name, python, node, files, env, start, debian"},
    {"{\"name\":\"a\",\"python\":true}", "\"python\" must be"},
    {"{\"name\":\"a\",\"python\":{\"package\":[]}}", "unknown key \"package\""},
    {"{\"name\":\"a\",\"python\":{\"version\":3.11}}", "\"version\" must be"},
    {"{\"name\":\"a\",\"python\":{\"version\":\"3.\"}}", "\"version\" must be"},
    {"{\"name\":\"a\",\"python\":{\"version\":\"3.11.2.1\"}}", "\"version\" must be"},
    {"{\"name\":\"a\",\"python\":{\"version\":\"python3\"}}", "\"version\" must be"},
    {"{\"name\":\"a\",\"python\":{\"packages\":\"six\"}}", "\"packages\" must be"},
    {"{\"name\":\"a\",\"python\":{\"packages\":[1]}}", "python.packages"},
    {"{\"name\":\"a\",\"python\":{\"packages\":[\"\"]}}", "python.packages"},
    {"{\"name\":\"a\",\"python\":{\"packages\":[\"-r x\"]}}", "python.packages"},
    {"{\"name\":\"a\",\"python\":{\"packages\":[\"six --no-binary\"]}}", "python.packages"},
    {"{\"name\":\"a\",\"python\":{\"packages\":[\"six\\nfoo\"]}}", "python.packages"},
    {"{\"name\":\"a\",\"python\":{\"packages\":[\"six @ https://x/y\"]}}", "addresses"},
    {"{\"name\":\"a\",\"python\":{\"packages\":[\"./six\"]}}", "addresses"},
    {"{\"name\":\"a\",\"node\":{\"version\":\"20\"}}", "unknown key \"version\""},
    {"{\"name\":\"a\",\"node\":{\"packages\":[\"user/repo\"]}}", "node.packages"},
    {"{\"name\":\"a\",\"node\":{\"packages\":[\"git:x\"]}}", "node.packages"},
    {"{\"name\":\"a\",\"node\":{\"packages\":[\"--global\"]}}", "node.packages"},
    {"{\"name\":\"a\",\"node\":{\"packages\":[\"x@\"]}}", "node.packages"},
    {"{\"name\":\"a\",\"node\":{\"packages\":[\"x@file:/etc\"]}}", "node.packages"},
    {"{\"name\":\"a\",\"node\":{\"packages\":[\"@scope\"]}}", "node.packages"},
    {"{\"name\":\"a\",\"node\":{\"lock\":\"../x\"}}", "\"lock\" must be"},
    {"{\"name\":\"a\",\"node\":{\"lock\":\".x\"}}", "\"lock\" must be"},
    {"{\"name\":\"a\",\"node\":{\"build\":1}}", "\"build\" must be"},
    {"{\"name\":\"a\",\"files\":[]}", "\"files\" must be"},
    {"{\"name\":\"a\",\"files\":{\"x\":\"y\"}}", "absolute"},
    {"{\"name\":\"a\",\"files\":{\"/\":\"y\"}}", "absolute"},
    {"{\"name\":\"a\",\"files\":{\"/a/../b\":\"y\"}}", "absolute"},
    {"{\"name\":\"a\",\"files\":{\"/usr/x\":\"y\"}}", "not for files"},
    {"{\"name\":\"a\",\"files\":{\"/.venv/x\":\"y\"}}", "not for files"},
    {"{\"name\":\"a\",\"files\":{\"/x\":\"/etc/shadow\"}}", "beside"},
    {"{\"name\":\"a\",\"files\":{\"/x\":\"../y\"}}", "beside"},
    {"{\"name\":\"a\",\"files\":{\"/x\":1}}", "\"files\" must be"},
    {"{\"name\":\"a\",\"env\":{\"A=B\":\"\"}}", "name of a variable"},
    {"{\"name\":\"a\",\"env\":{\"1A\":\"\"}}", "name of a variable"},
    {"{\"name\":\"a\",\"env\":{\"A\":\"x\\u0000y\"}}", "line 1"},
    {"{\"name\":\"a\",\"start\":\"\"}", "\"start\" must be"},
    {"{\"name\":\"a\",\"debian\":[\"tesseract-ocr\"]}", "not installed yet"},
};

TEST(what_is_wrong_is_said)
{
    for (size_t i = 0; i < LENGTH(refused); i++) {
        scoped_desk;
        CHECK_FOR(refused[i].text, parse(&d, refused[i].text) < 0);
        CHECK_FOR(d.err.msg, strstr(d.err.msg, refused[i].says));
    }
    return 0;
}

TEST(names_of_packages_that_are_taken)
{
    static const char *const python[] = {"six",
                                         "Pillow",
                                         "pandas==1.5.3",
                                         "pandas >= 2, < 3",
                                         "httpx[http2]",
                                         "tomli; python_version < '3.11'",
                                         "torch==2.1.0+cpu"};
    static const char *const node[] = {"docx", "is-odd@3.0.1", "@a/b", "@a/b@latest", "x@>=1 <2"};
    char text[256];

    for (size_t i = 0; i < LENGTH(python); i++) {
        scoped_desk;
        snprintf(text, sizeof(text), "{\"name\":\"a\",\"python\":{\"packages\":[\"%s\"]}}",
                 python[i]);
        CHECK_FOR(python[i], parse(&d, text) == 0);
    }
    for (size_t i = 0; i < LENGTH(node); i++) {
        scoped_desk;
        snprintf(text, sizeof(text), "{\"name\":\"a\",\"node\":{\"packages\":[\"%s\"]}}", node[i]);
        CHECK_FOR(node[i], parse(&d, text) == 0);
    }
    return 0;
}

/* --- locks --- */

static const char *two[] = {"six", "pandas>=2"};
static const struct template_packages packages = {.wanted = true, .at = two, .count = 2};

TEST(a_python_lock_says_what_it_is_for)
{
    const char *others[] = {"six"};
    const struct template_packages fewer = {.at = others, .count = 1};
    struct buf b;

    buf_init(&b, 4096);
    lock_python_head(&b, &packages, "3.11");
    buf_str(&b, "six==1.17.0 \\\n    --hash=sha256:00\n");
    CHECK(buf_done(&b) == 0);
    CHECK(lock_python_fit(&packages, "3.11", b.p) == LOCK_FITS);
    CHECK(lock_python_fit(&packages, "3.1", b.p) == LOCK_OTHER_PYTHON);
    CHECK(lock_python_fit(&packages, "3.13", b.p) == LOCK_OTHER_PYTHON);
    CHECK(lock_python_fit(&fewer, "3.11", b.p) == LOCK_OTHER_PACKAGES);
    CHECK(lock_python_fit(&packages, "3.11", "six==1.17.0\n") == LOCK_FOREIGN);
    CHECK(lock_python_fit(&packages, "3.11", "") == LOCK_FOREIGN);
    buf_clear(&b);
    return 0;
}

TEST(a_python_lock_is_listed)
{
    json_t *list = lock_python_list("# six\nnumpy==2.2.0 ; python_version > '3' \\\n    --hash=x\n"
                                    "    # via pandas\n\n--index-url x\nsix==1.17.0");

    CHECK(json_array_size(list) == 2);
    CHECK(strcmp(json_string_value(json_array_get(list, 0)), "numpy==2.2.0") == 0);
    CHECK(strcmp(json_string_value(json_array_get(list, 1)), "six==1.17.0") == 0);
    json_decref(list);
    return 0;
}

static const char bun_lock[] =
    "{\n  \"lockfileVersion\": 1,\n  \"workspaces\": {\n    \"\": {\n      \"dependencies\": {\n"
    "        \"is-odd\": \"\",\n      },\n    },\n  },\n  \"packages\": {\n    "
    "\"is-number\": "
    "[\"is-number@6.0.0\", \"https://registry.invalid/x,]\", {}, \"sha512-a\"],\n\n    \"is-odd\": "
    "[\"is-odd@3.0.1\", \"\", { \"dependencies\": { \"is-number\": \"^6.0.0\" } }, "
    "\"sha512-b\\\"\"],\n  }\n}\n";

TEST(what_a_template_has_is_what_its_project_depends_on)
{
    static const char *packages[] = {"numpy", "six<2; python_version > \"3\""};
    const struct template_packages asked = {.wanted = true, .at = packages, .count = 2};
    struct buf b;

    buf_init(&b, 4096);
    lock_python_project(&b, "[project]\nname = \"w\"\ndependencies = []\n\n[tool.x]\n", &asked);
    CHECK(buf_done(&b) == 0);
    CHECK_FOR(
        b.p, strcmp(b.p, "[project]\nname = \"w\"\ndependencies = [\n    \"numpy\",\n"
                         "    \"six<2; python_version > \\u00223\\u0022\",\n]\n\n[tool.x]\n") == 0);
    b.n = 0;
    lock_python_project(&b, "[project]\ndependencies = [\"own\"]\n", &asked);
    CHECK(buf_done(&b) == 0 && strcmp(b.p, "[project]\ndependencies = [\"own\"]\n") == 0);
    buf_clear(&b);
    return 0;
}

TEST(a_lock_of_bun_is_kept_without_its_registry)
{
    json_t *bun = NULL;
    json_t *again = NULL;
    enum lock_fit fit = LOCK_FOREIGN;
    struct err err = {0};

    CHECK(lock_read_bun(bun_lock, strlen(bun_lock), &bun, &err) == 0);
    json_t *dependencies = json_pack("{s:s}", "is-odd", "^3.0.1");
    CHECK(lock_node_set_dependencies(bun, dependencies) == 0);
    CHECK(json_equal(lock_node_dependencies(bun), dependencies));
    json_decref(dependencies);
    json_t *kept = lock_node_make(&packages, bun);
    char *text = json_dumps(kept, 0);
    CHECK(text && !strstr(text, "registry.invalid"));
    CHECK(lock_node_read(text, strlen(text), &packages, &fit, &again, &err) == 0);
    CHECK(fit == LOCK_FITS && json_equal(bun, again));
    json_t *list = lock_node_list(again);
    CHECK(json_array_size(list) == 2);
    CHECK(strcmp(json_string_value(json_array_get(list, 1)), "is-odd@3.0.1") == 0);
    CHECK(json_object_get(lock_node_dependencies(again), "is-odd"));
    json_decref(again);
    CHECK(lock_node_read(text, strlen(text), &(struct template_packages){0}, &fit, &again, &err) ==
          0);
    CHECK(fit == LOCK_OTHER_PACKAGES);
    json_decref(again);
    json_decref(list);
    free(text);
    json_decref(kept);
    json_decref(bun);
    return 0;
}

TEST(a_node_lock_that_is_none_is_refused)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"lock\":{}}",
                                      "{\"packages\":[]}",
                                      "{\"packages\":[],\"lock\":{\"packages\":[]}}"};

    for (size_t i = 0; i < LENGTH(bad); i++) {
        enum lock_fit fit;
        json_t *bun = NULL;
        struct err err = {0};
        CHECK_FOR(bad[i], lock_node_read(bad[i], strlen(bad[i]), &packages, &fit, &bun, &err) < 0);
        CHECK_FOR(bad[i], strstr(err.msg, "--update-lock"));
    }
    return 0;
}

/* --- remedies --- */

TEST(what_tools_say_has_a_remedy)
{
    static const struct {
        const char *said;
        int code;
        const char *remedy;
    } table[] = {
        {"Because nosuch was not found in the package registry and you require nosuch, we can "
         "conclude that your requirements are unsatisfiable.",
         1, "no package of that name"},
        {"Because there is no version of six==99 and you require six==99, we can conclude that "
         "your requirements are unsatisfiable.",
         1, "no such version"},
        {"Because a==1 depends on six<1 and you require six>1, we can conclude that your "
         "requirements are unsatisfiable.",
         1, "do not go together"},
        {"error: Failed to fetch: `x`\n  Caused by: error sending request\n  Caused by: dns error",
         2, "package_index"},
        {"error: GET https://registry.invalid/x - 404", 1, "no package of that name"},
        {"write: No space left on device (os error 28)", 2, "disk is full"},
        {"Packages were unavailable because the network was disabled.", 1, "without --offline"},
        {"bash: uv: command not found", 127, "carrel env setup"},
        {"something else", 1, NULL},
    };

    for (size_t i = 0; i < LENGTH(table); i++) {
        const char *remedy = template_remedy(table[i].said, table[i].code);
        CHECK_FOR(table[i].said, !remedy == !table[i].remedy);
        CHECK_FOR(table[i].said, !remedy || strstr(remedy, table[i].remedy));
    }
    return 0;
}
