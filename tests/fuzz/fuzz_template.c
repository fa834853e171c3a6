/* SPDX-License-Identifier: Apache-2.0 */
/* Files of templates and their locks. The first byte chooses which; the rest is the file. What is
 * taken of a template's file names no path outside, and nothing that a tool reads as an option. */
#include "fuzz.h"

#include <string.h>

#include "client/provision/template_file.h"
#include "client/provision/template_lock.h"
#include "client/provision/template_remedy.h"

static void check_packages(const struct template_packages *p)
{
    MUST(p->count <= TEMPLATE_MOST && (p->wanted || p->count == 0));
    MUST(!p->lock || (p->lock[0] != '.' && !strchr(p->lock, '/')));
    for (size_t i = 0; i < p->count; i++) {
        MUST(p->at[i][0] && p->at[i][0] != '-' && !strpbrk(p->at[i], "\n\r:\\#$`"));
        MUST(!strstr(p->at[i], "//") && !strstr(p->at[i], " --"));
    }
}

static void check_file(const struct template_file *f)
{
    MUST(template_is_name(f->name) && !strchr(f->name, '/'));
    check_packages(&f->python);
    check_packages(&f->node);
    MUST(f->files.count <= TEMPLATE_MOST && f->env.count <= TEMPLATE_MOST);
    for (size_t i = 0; i < f->files.count; i++) {
        const struct template_pair *file = &f->files.at[i];
        MUST(file->name[0] == '/' && !strstr(file->name, "/../") && !strstr(file->name, "//"));
        MUST(file->value[0] && file->value[0] != '/' && !strstr(file->value, "/../"));
        MUST(strncmp(file->value, "../", 3) != 0 && strcmp(file->value, "..") != 0);
    }
    for (size_t i = 0; i < f->env.count; i++)
        MUST(f->env.at[i].name[0] && !strchr(f->env.at[i].name, '='));
}

static void parse_file(const char *bytes, size_t n)
{
    struct template_file file;
    struct arena arena;
    struct err err = {0};

    arena_init(&arena, 4 << 20);
    if (template_parse(&file, &arena, bytes, n, &err) == 0)
        check_file(&file);
    else
        MUST(err.code != ERR_NONE && memchr(err.msg, '\0', sizeof(err.msg)));
    arena_clear(&arena);
}

/* What is made of bun.lock is read again as it was. */
static void parse_bun(const char *bytes, size_t n)
{
    const char *names[] = {"is-odd"};
    const struct template_packages packages = {.wanted = true, .at = names, .count = 1};
    json_t *bun = NULL;
    json_t *again = NULL;
    enum lock_fit fit;
    struct err err = {0};

    if (lock_read_bun(bytes, n, &bun, &err) < 0) {
        MUST(err.msg[0]);
        return;
    }
    json_t *kept = lock_node_make(&packages, bun);
    char *text = json_dumps(kept, JSON_INDENT(1));
    MUST(text && lock_node_read(text, strlen(text), &packages, &fit, &again, &err) == 0);
    MUST(fit == LOCK_FITS && json_equal(bun, again));
    json_decref(lock_node_list(again));
    (void)lock_node_dependencies(again);
    free(text);
    json_decref(kept);
    json_decref(again);
    json_decref(bun);
}

static void parse_node_lock(const char *bytes, size_t n)
{
    static const struct template_packages none;
    json_t *bun = NULL;
    enum lock_fit fit = LOCK_FIT_COUNT_;
    struct err err = {0};

    if (lock_node_read(bytes, n, &none, &fit, &bun, &err) == 0) {
        MUST(fit < LOCK_FIT_COUNT_);
        json_decref(lock_node_list(bun));
        json_decref(bun);
    }
}

static void parse_python_lock(const char *bytes, size_t n)
{
    static const struct template_packages none;
    char *text = malloc(n + 1);

    memcpy(text, bytes, n);
    text[n] = '\0';
    MUST(lock_python_fit(&none, "3.11", text) < LOCK_FIT_COUNT_);
    json_decref(lock_python_list(text));
    (void)template_remedy(text, 1);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parsers[])(const char *, size_t) = {parse_file, parse_bun, parse_node_lock,
                                                            parse_python_lock};

    if (size < 1)
        return 0;
    char *exact = malloc(size);
    memcpy(exact, data + 1, size - 1);
    parsers[data[0] % 4](exact, size - 1);
    free(exact);
    return 0;
}
