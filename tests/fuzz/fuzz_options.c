/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `carrel run`: one word per line of the input. */
#include "fuzz.h"

#include <string.h>

#include "cli/cli.h"

enum {
    MAX_WORDS = 1200
};

static struct run_options options;

static void check_parsed(const struct run_options *o)
{
    const struct carrel_spec *spec = &o->spec;

    MUST(o->help || (spec->argv && spec->argv[0]));
    MUST(spec->mount_count <= CLI_MAX_MOUNTS && o->env_count <= CLI_MAX_ENV);
    MUST(spec->env && !spec->env[o->env_count]);
    for (size_t i = 0; i < o->env_count; i++)
        MUST(strchr(spec->env[i], '=') > spec->env[i]);
    for (size_t i = 0; i < spec->mount_count; i++) {
        const struct carrel_mount *m = &spec->mounts[i];
        MUST(m->source && *m->source);
        MUST(m->target ? m->target[0] == '/' : m->source[0] == '/');
    }
    MUST(!spec->cwd || spec->cwd[0] == '/');
    MUST(!(spec->create && !spec->workspace) && !(spec->at && spec->workspace));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *words[MAX_WORDS + 2] = {strdup("run")};
    struct err err = {0};
    int count = 1;

    while (size > 0 && count <= MAX_WORDS) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t n = end ? (size_t)(end - data) : size;
        words[count++] = strndup((const char *)data, n); /* exact: reading past a word is seen */
        data += end ? n + 1 : n;
        size -= end ? n + 1 : n;
    }
    if (run_options_parse(&options, count, words, &err) == 0)
        check_parsed(&options);
    else
        MUST(err.code != ERR_NONE && err.msg[0] && memchr(err.msg, '\0', sizeof(err.msg)));
    run_options_clear(&options);
    for (int i = 0; i < count; i++)
        free(words[i]);
    return 0;
}
