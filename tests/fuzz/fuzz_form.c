/* SPDX-License-Identifier: Apache-2.0 */
/* Forms as E2B's clients upload them, in pieces: how long the pieces are, how much of them is taken
 * at a time, the value of Content-Type, a NUL, and the body. However it is cut, and however slowly
 * it is taken, the parts are the same ones. */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "front/e2b/form.h"

struct taken {
    struct buf said; /* names and bytes, one after the other */
    size_t most;     /* so many bytes at a time; 0: none now, but the next time */
    bool idle;
    bool open;
};

static bool part(void *context, const char *name, const char *filename)
{
    struct taken *t = context;

    MUST(!t->open && strlen(name) < HTTP_PART_HEAD);
    t->open = true;
    buf_printf(&t->said, "[%s|%s|", name, filename ? filename : "-");
    return true;
}

static size_t bytes(void *context, const char *some, size_t n)
{
    struct taken *t = context;

    MUST(t->open && n > 0);
    t->idle = !t->idle;
    if (t->most && t->idle)
        return 0;
    if (t->most && n > t->most)
        n = t->most;
    buf_add(&t->said, some, n);
    return n;
}

static bool end(void *context)
{
    struct taken *t = context;

    MUST(t->open);
    t->open = false;
    buf_str(&t->said, "]");
    return true;
}

static const struct form_calls calls = {.part = part, .bytes = bytes, .end = end};

static enum form_state read_all(const char *type, const char *body, size_t n, size_t piece,
                                struct taken *t)
{
    struct form f;
    size_t at = 0;

    buf_init(&t->said, 16UL << 20);
    if (!form_begin(&f, type, &calls, t))
        return FORM_BROKEN;
    while (at < n) {
        size_t some = n - at < piece ? n - at : piece;
        size_t took = form_feed(&f, body + at, some);
        MUST(took <= some);
        at += took;
    }
    for (unsigned idle = 0; idle < 3; idle++) {
        size_t had = f.kept.n;
        MUST(form_feed(&f, "", 0) == 0);
        idle = f.kept.n == had ? idle : 0;
    }
    enum form_state state = f.state;
    form_free(&f);
    return state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct taken whole = {.most = 0};
    struct taken cut = {.most = 0};
    const char *body = size > 2 ? memchr(data + 2, '\0', size - 2) : NULL;

    if (!body || size > 100000)
        return 0;
    const char *type = (const char *)data + 2;
    size_t n = size - (size_t)(++body - (const char *)data);
    enum form_state state = read_all(type, body, n, n ? n : 1, &whole);
    cut.most = 1UL + data[1];
    enum form_state again = read_all(type, body, n, 1UL + data[0], &cut);
    if (!whole.said.failed && !cut.said.failed) {
        MUST(state == again);
        MUST(whole.said.n == cut.said.n && whole.open == cut.open);
        MUST(whole.said.n == 0 || memcmp(whole.said.p, cut.said.p, whole.said.n) == 0);
    }
    buf_clear(&whole.said);
    buf_clear(&cut.said);
    return 0;
}
