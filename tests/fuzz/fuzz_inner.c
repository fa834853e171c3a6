/* SPDX-License-Identifier: Apache-2.0 */
/* What a program inside and a server say inside TLS that ends in carrel-egress, in turns: 0xff ends
 * a turn, 0x01 stands for the placeholder, or the secret, and 0x02 for the one before. The value
 * leaves in its header alone, and comes back in nothing; cut into pieces it is the same. */
#include "fuzz.h"

#include <string.h>
#include <strings.h>

#include "egress/inner.h"
#include "policy/network_inner.h"

#define VALUE  "sk-0123456789abcdef"
#define FORMER "sk-formerly-this"

enum {
    MOST = 1 << 22,
    TURNS = 8,
};

struct talk {
    struct inner inner;
    struct buf up;
    struct buf down;
    bool refused;
};

static const char *value_of(void *context, const char *secret, bool before)
{
    (void)context;
    return strcmp(secret, "k") != 0 ? NULL : before ? FORMER : VALUE;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As much of it as is taken; how much that is. */
static size_t say(struct talk *t, const struct buf *text, size_t at, size_t piece)
{
    while (at < text->n && !t->refused) {
        size_t some = least(piece, text->n - at);
        ssize_t taken = inner_up(&t->inner, text->p + at, some, &t->up);
        t->refused = taken < 0;
        MUST(taken < 0 ? t->inner.why != NULL : (size_t)taken <= some);
        at += taken < 0 ? 0 : (size_t)taken;
        if (taken >= 0 && (size_t)taken < some)
            break;
    }
    return at;
}

static void answer(struct talk *t, const struct buf *text, size_t piece)
{
    for (size_t at = 0; at < text->n && !t->refused && t->inner.up != INNER_OVER; at += piece)
        t->refused = inner_down(&t->inner, text->p + at, least(piece, text->n - at), &t->down) < 0;
    MUST(!t->refused || t->inner.why);
}

static bool has(const struct buf *b, const char *text)
{
    return b->n > 0 && memmem(b->p, b->n, text, strlen(text));
}

/* Only at lines of its header: nothing inside has written the value. */
static void must_be_in_its_header(const struct buf *up)
{
    static const char header[] = "\r\nAuthorization: ";
    const char *at = up->p;
    const char *end = up->n > 0 ? up->p + up->n : NULL;

    while (at && end && (at = memmem(at, (size_t)(end - at), VALUE, strlen(VALUE)))) {
        const char *line = at;
        while (line > up->p && !(line[0] == '\r' && line[1] == '\n'))
            line--;
        MUST(strncasecmp(line, header, strlen(header)) == 0);
        at++;
    }
}

static void run(const struct network_rule *rule, const struct buf *turns, size_t piece,
                struct talk *t)
{
    size_t at[2] = {0};
    size_t turn = 0;

    *t = (struct talk){.refused = false};
    buf_init(&t->up, MOST);
    buf_init(&t->down, MOST);
    inner_begin(&t->inner, "a.test", 443, value_of, NULL);
    t->inner.rules = rule;
    t->inner.rule_count = 1;
    for (; turn < TURNS && !t->refused; turn += 2) {
        at[0] = say(t, &turns[turn], 0, piece);
        answer(t, &turns[turn + 1], piece);
        if (!t->refused)
            (void)say(t, &turns[turn], at[0], piece);
    }
    (void)inner_down_end(&t->inner, &t->down);
    MUST(!has(&t->down, VALUE) && !has(&t->down, FORMER));
    must_be_in_its_header(&t->up);
    MUST(!has(&t->up, FORMER));
}

static void end(struct talk *t)
{
    inner_clear(&t->inner);
    buf_clear(&t->up);
    buf_clear(&t->down);
}

static void split(const uint8_t *data, size_t size, struct buf turns[TURNS])
{
    size_t turn = 0;

    for (size_t i = 0; i < size && turn < TURNS; i++) {
        bool server = turn % 2;
        if (data[i] == 0xff)
            turn++;
        else if (data[i] == 1)
            buf_str(&turns[turn], server ? VALUE : "carrel-secret-k");
        else if (data[i] == 2 && server)
            buf_str(&turns[turn], FORMER);
        else
            buf_add(&turns[turn], (const char *)&data[i], 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const rules[] = {"a.test secret=k",
                                        "a.test secret=k paths=/v1/* methods=GET",
                                        "a.test:443 secret=k methods=GET,POST,HEAD"};
    struct buf turns[TURNS];
    struct network_rule rule;
    struct talk whole;
    struct talk cut;
    struct err err;
    bool writes = false;

    if (size < 2)
        return 0;
    MUST(network_parse_rule(rules[data[0] % 3], &rule, &err) == 0);
    for (size_t i = 0; i < TURNS; i++)
        buf_init(&turns[i], MOST);
    split(data + 2, size - 2, turns);
    for (size_t i = 0; i < TURNS; i += 2)
        writes |= has(&turns[i], VALUE) || has(&turns[i], FORMER);
    if (!writes) {
        run(&rule, turns, MOST, &whole);
        run(&rule, turns, 1 + data[1] % 16, &cut);
        MUST(whole.refused == cut.refused);
        MUST(whole.refused || (whole.up.n == cut.up.n &&
                               (cut.up.n == 0 || memcmp(whole.up.p, cut.up.p, cut.up.n) == 0)));
        end(&whole);
        end(&cut);
    }
    for (size_t i = 0; i < TURNS; i++)
        buf_clear(&turns[i]);
    return 0;
}
