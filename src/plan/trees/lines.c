/* SPDX-License-Identifier: Apache-2.0 */
/* Each line is a number, the same for the same bytes. Of base and each side it is found which lines
 * they have in common (Myers, "An O(ND) Difference Algorithm"). Then the three are read together:
 * lines that all have stay; between two of those lies a piece, of which one side at most may differ
 * from the base, or both alike. */
#include "plan/trees/lines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    BASE,
    OURS,
    THEIRS,
    TEXTS,
    NOT_THERE = -1,
};

struct line {
    const char *at;
    size_t n;
};

struct text {
    struct line *lines;
    int32_t *numbers;
    int32_t count;
};

struct merging {
    struct text of[TEXTS];
    struct line *known; /* lines by their number */
    int32_t *table;     /* number + 1, by hash; 0: free */
    size_t room;
    int32_t known_count;
    int32_t *match[TEXTS]; /* of each line of the base, where the side has it */
};

bool lines_is_text(const struct lines_text *text)
{
    return text->n <= LINES_LARGEST && (text->n == 0 || !memchr(text->bytes, '\0', text->n));
}

/* --- lines and their numbers --- */

static int32_t count_lines(const struct lines_text *text)
{
    int32_t count = 0;

    for (size_t i = 0; i < text->n; i++)
        count += text->bytes[i] == '\n' || i + 1 == text->n;
    return count;
}

static int32_t number_of(struct merging *m, const struct line *line)
{
    uint64_t hash = 0xcbf29ce484222325ULL;

    for (size_t i = 0; i < line->n; i++)
        hash = (hash ^ (unsigned char)line->at[i]) * 0x100000001b3ULL;
    size_t at = (size_t)(hash ^ hash >> 32) & (m->room - 1);
    for (; m->table[at]; at = (at + 1) & (m->room - 1)) {
        const struct line *known = &m->known[m->table[at] - 1];
        if (known->n == line->n && memcmp(known->at, line->at, line->n) == 0)
            return m->table[at] - 1;
    }
    m->known[m->known_count++] = *line;
    m->table[at] = m->known_count;
    return m->known_count - 1;
}

static int cut(struct merging *m, struct text *text, const struct lines_text *from)
{
    const char *at = from->bytes;
    const char *end = at + from->n;

    text->lines = reallocarray(NULL, (size_t)text->count + 1, sizeof(text->lines[0]));
    text->numbers = reallocarray(NULL, (size_t)text->count + 1, sizeof(text->numbers[0]));
    if (!text->lines || !text->numbers)
        return -1;
    for (int32_t i = 0; i < text->count; i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        text->lines[i] = (struct line){at, (size_t)((stop ? stop + 1 : end) - at)};
        text->numbers[i] = number_of(m, &text->lines[i]);
        at += text->lines[i].n;
    }
    return 0;
}

static int cut_all(struct merging *m, const struct lines_text *const from[TEXTS])
{
    size_t total = 0;

    for (int i = 0; i < TEXTS; i++) {
        m->of[i].count = count_lines(from[i]);
        total += (size_t)m->of[i].count;
    }
    for (m->room = 64; m->room < 2 * total; m->room *= 2)
        continue;
    m->known = reallocarray(NULL, total + 1, sizeof(m->known[0]));
    m->table = calloc(m->room, sizeof(m->table[0]));
    if (!m->known || !m->table)
        return -1;
    for (int i = 0; i < TEXTS; i++) {
        if (cut(m, &m->of[i], from[i]) < 0)
            return -1;
    }
    return 0;
}

/* --- what two have in common --- */

/* `v` of each round, with room for a diagonal of either sign. */
struct rounds {
    int32_t *all;
    size_t room;
    int32_t count;
};

/* Numbers of lines: so many of the one text, and of the other. */
struct pair {
    const int32_t *a;
    const int32_t *b;
    int32_t n;
    int32_t m;
};

static int32_t *round_of(const struct rounds *r, int32_t d)
{
    return r->all + (size_t)d * ((size_t)d + 1) + d; /* rounds before it have 2, 4, ... places */
}

static int make_room(struct rounds *r, int32_t d)
{
    size_t wanted = (size_t)(d + 2) * (size_t)(d + 3);

    if (wanted <= r->room)
        return 0;
    int32_t *all = reallocarray(r->all, 2 * wanted, sizeof(all[0]));
    if (!all)
        return -1;
    r->all = all;
    r->room = 2 * wanted;
    return 0;
}

/* Whether a round comes to this diagonal from the one above, by a line that only `b` has. */
static bool comes_down(const int32_t *last, int32_t d, int32_t k)
{
    return k == -d || (k != d && last[k - 1] < last[k + 1]);
}

/* How far along it: from the round before, and then through what both have. */
static int32_t furthest(const struct rounds *r, const struct pair *p, int32_t d, int32_t k)
{
    const int32_t *last = d > 0 ? round_of(r, d - 1) : NULL;
    int32_t x = 0;

    if (last)
        x = comes_down(last, d, k) ? last[k + 1] : last[k - 1] + 1;
    while (x < p->n && x - k >= 0 && x - k < p->m && p->a[x] == p->b[x - k])
        x++;
    return x;
}

/* Rounds until the end is come to; 1, 0: too far apart, -1. */
static int search(const struct pair *p, struct rounds *r)
{
    for (int32_t d = 0; d <= LINES_MOST_APART; d++) {
        if (make_room(r, d) < 0)
            return -1;
        int32_t *v = round_of(r, d);
        r->count = d;
        for (int32_t k = -d; k <= d; k += 2) {
            v[k] = furthest(r, p, d, k);
            if (k == p->n - p->m && v[k] >= p->n)
                return 1;
        }
    }
    return 0;
}

/* Back along the rounds: what was passed by going aslant is in both. */
static void walk_back(const struct rounds *r, int32_t n, int32_t m, int32_t from, int32_t *match)
{
    int32_t x = n;
    int32_t y = m;

    for (int32_t d = r->count; d >= 0; d--) {
        int32_t k = x - y;
        const int32_t *last = d > 0 ? round_of(r, d - 1) : NULL;
        bool down = last && comes_down(last, d, k);
        int32_t was = d == 0 ? 0 : down ? last[k + 1] : last[k - 1];
        int32_t was_y = d == 0 ? 0 : was - (down ? k + 1 : k - 1);
        int32_t begin = d == 0 ? 0 : down ? was : was + 1;
        while (x > begin) {
            x--;
            y--;
            match[from + x] = from + y;
        }
        x = was;
        y = was_y;
    }
}

/* Equal beginnings and ends first: most texts are little else. */
static int compare(const struct text *base, const struct text *side, int32_t *match)
{
    struct rounds rounds = {0};
    int32_t n = base->count;
    int32_t m = side->count;
    int32_t from = 0;

    for (int32_t i = 0; i < n; i++)
        match[i] = NOT_THERE;
    while (from < n && from < m && base->numbers[from] == side->numbers[from]) {
        match[from] = from;
        from++;
    }
    while (n > from && m > from && base->numbers[n - 1] == side->numbers[m - 1])
        match[--n] = --m;
    const struct pair pair = {base->numbers + from, side->numbers + from, n - from, m - from};
    int r = search(&pair, &rounds);
    if (r == 1)
        walk_back(&rounds, n - from, m - from, from, match);
    free(rounds.all);
    return r;
}

/* --- the three together --- */

struct piece {
    int32_t from[TEXTS];
    int32_t to[TEXTS];
};

static bool is_same(const struct merging *m, const struct piece *p, int one, int other)
{
    int32_t n = p->to[one] - p->from[one];

    return n == p->to[other] - p->from[other] &&
           (n == 0 ||
            memcmp(m->of[one].numbers + p->from[one], m->of[other].numbers + p->from[other],
                   (size_t)n * sizeof(int32_t)) == 0);
}

static bool put_piece(const struct merging *m, const struct piece *p, struct buf *ret)
{
    int from = is_same(m, p, THEIRS, BASE)   ? OURS
               : is_same(m, p, OURS, BASE)   ? THEIRS
               : is_same(m, p, OURS, THEIRS) ? OURS
                                             : NOT_THERE;

    if (from == NOT_THERE)
        return false;
    for (int32_t i = p->from[from]; i < p->to[from]; i++)
        buf_add(ret, m->of[from].lines[i].at, m->of[from].lines[i].n);
    return true;
}

/* Up to the next line that all have. */
static void find_end(const struct merging *m, struct piece *p)
{
    int32_t i = p->from[BASE];

    while (i < m->of[BASE].count &&
           (m->match[OURS][i] == NOT_THERE || m->match[THEIRS][i] == NOT_THERE))
        i++;
    bool ends = i == m->of[BASE].count;
    p->to[BASE] = i;
    for (int side = OURS; side < TEXTS; side++)
        p->to[side] = ends ? m->of[side].count : m->match[side][i];
}

static int put_all(const struct merging *m, struct buf *ret)
{
    struct piece p = {0};

    for (;;) {
        find_end(m, &p);
        if (!put_piece(m, &p, ret))
            return 0;
        memcpy(p.from, p.to, sizeof(p.from));
        if (p.from[BASE] == m->of[BASE].count)
            return ret->failed ? -1 : 1;
        const struct line *line = &m->of[BASE].lines[p.from[BASE]];
        buf_add(ret, line->at, line->n);
        for (int i = 0; i < TEXTS; i++)
            p.from[i]++;
    }
}

static int merge(struct merging *m, const struct lines_text *const from[TEXTS], struct buf *ret)
{
    if (cut_all(m, from) < 0)
        return -1;
    for (int side = OURS; side < TEXTS; side++) {
        m->match[side] =
            reallocarray(NULL, (size_t)m->of[BASE].count + 1, sizeof(m->match[side][0]));
        int r = m->match[side] ? compare(&m->of[BASE], &m->of[side], m->match[side]) : -1;
        if (r != 1)
            return r;
    }
    return put_all(m, ret);
}

int lines_merge(struct buf *ret, const struct lines_text *base, const struct lines_text *ours,
                const struct lines_text *theirs)
{
    const struct lines_text *const from[TEXTS] = {base, ours, theirs};
    struct merging m = {0};
    int r = merge(&m, from, ret);

    for (int i = 0; i < TEXTS; i++) {
        free(m.of[i].lines);
        free(m.of[i].numbers);
        free(m.match[i]);
    }
    free(m.known);
    free(m.table);
    return r;
}
