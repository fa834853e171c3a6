/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/steps.h"

#include <string.h>

#include "unit.h"

/* A plan is written as lines "kind path [from]", with a mode where it matters. */
struct line {
    enum plan_kind kind;
    const char *path;
    const char *from;
    uint32_t mode;
    uint32_t base_mode;
    const char *link;
};

#define FILE_MODE 0100644
#define DIR_MODE  0040755

static bool has_base(enum plan_kind kind)
{
    return kind == PLAN_WRITE || kind == PLAN_MOVE || kind == PLAN_DELETE || kind == PLAN_CHMOD;
}

static void make_plan(struct plan *plan, const struct line *lines, size_t count)
{
    struct err err;

    plan_init(plan);
    for (size_t i = 0; i < count; i++) {
        struct plan_operation *o = plan_add(plan, &err);
        const struct line *line = &lines[i];
        o->kind = line->kind;
        o->path = line->path;
        o->from = line->from;
        o->link = line->link;
        o->mode = line->mode ? line->mode : line->kind == PLAN_MKDIR ? DIR_MODE : FILE_MODE;
        o->has_base = has_base(line->kind);
        o->base.mode = line->base_mode ? line->base_mode : o->mode;
        o->base.ino = 100 + i;
        o->has_hash = !o->link && (line->kind == PLAN_CREATE || line->kind == PLAN_WRITE);
    }
    (void)plan_put_in_order(plan, &err);
}

static const char *const names[] = {"unlock", "link", "exchange", "out", "mark", "in", "mode"};

/* One line for each step: what, where in the tree, and the home. */
static void print(const struct steps *steps, struct buf *b)
{
    buf_init(b, 65536);
    for (size_t i = 0; i < steps->count; i++) {
        const struct step *step = &steps->items[i];
        buf_printf(b, "%s %s", names[step->kind], step->path);
        if (step->kind == STEP_UNLOCK || step->kind == STEP_MODE)
            buf_printf(b, " %o>%o\n", step->old_mode, step->mode);
        else
            buf_printf(b, " %s\n", step->home);
    }
    (void)buf_done(b);
}

struct scene {
    struct plan plan;
    struct layout layout;
    struct steps steps;
    struct buf text;
    char none[16];
    char all[16];
};

static int compile(struct scene *s, const struct line *lines, size_t count, bool forward)
{
    struct err err;

    make_plan(&s->plan, lines, count);
    memset(s->none, 0, sizeof(s->none));
    memset(s->all, 1, sizeof(s->all));
    steps_init(&s->steps);
    if (layout_init(&s->layout, &s->plan, &err) < 0)
        return -1;
    int r = steps_compile(&s->steps, &s->layout, forward ? s->none : s->all,
                          forward ? s->all : s->none, &err);
    print(&s->steps, &s->text);
    if (r < 0)
        printf("    %s\n", err.msg);
    return r;
}

static void clear(struct scene *s)
{
    buf_clear(&s->text);
    steps_clear(&s->steps);
    layout_clear(&s->layout);
    plan_clear(&s->plan);
}

static const struct {
    const char *name;
    struct line lines[6];
    const char *forward;
    const char *backward;
} cases[] = {
    {"swapped files",
     {{.kind = PLAN_MOVE, .path = "a", .from = "b"}, {.kind = PLAN_MOVE, .path = "b", .from = "a"}},
     "out b slots/0.base\nout a slots/1.base\nmark  slots/mark\nin a slots/0.base\nin b "
     "slots/1.base\n",
     "out b slots/1.base\nout a slots/0.base\nmark  slots/mark\nin a slots/1.base\nin b "
     "slots/0.base\n"},
    {"a chain",
     {{.kind = PLAN_MOVE, .path = "b", .from = "a"}, {.kind = PLAN_MOVE, .path = "c", .from = "b"}},
     "out b slots/1.base\nout a slots/0.base\nmark  slots/mark\nin b slots/0.base\nin c "
     "slots/1.base\n",
     "out c slots/1.base\nout b slots/0.base\nmark  slots/mark\nin a slots/0.base\nin b "
     "slots/1.base\n"},
    {"directories moved into each other",
     {{.kind = PLAN_MOVE, .path = "in", .from = "out/in", .mode = DIR_MODE},
      {.kind = PLAN_MOVE, .path = "in/out", .from = "out", .mode = DIR_MODE}},
     "out out/in slots/0.base\nout out slots/1.base\nmark  slots/mark\nin in slots/0.base\nin "
     "in/out slots/1.base\n",
     "out in/out slots/1.base\nout in slots/0.base\nmark  slots/mark\nin out slots/1.base\nin "
     "out/in slots/0.base\n"},
    {"something saved from a deleted directory",
     {{.kind = PLAN_DELETE, .path = "d", .mode = DIR_MODE},
      {.kind = PLAN_MOVE, .path = "saved", .from = "d/e/x"}},
     "out d/e/x slots/1.base\nout d slots/0.base\nmark  slots/mark\nin saved slots/1.base\n",
     "out saved slots/1.base\nmark  slots/mark\nin d slots/0.base\nin d/e/x slots/1.base\n"},
    {"a moved directory with things written and made in it",
     {{.kind = PLAN_MOVE, .path = "new", .from = "old", .mode = DIR_MODE},
      {.kind = PLAN_WRITE, .path = "new/f", .from = "old/f"},
      {.kind = PLAN_CREATE, .path = "new/made"}},
     "exchange old/f upper/new/f\nout old slots/0.base\nmark  slots/mark\nin new "
     "slots/0.base\nin new/made upper/new/made\n",
     "exchange new/f upper/new/f\nout new/made upper/new/made\nout new slots/0.base\nmark  "
     "slots/mark\nin old slots/0.base\n"},
    {"a file becomes a directory",
     {{.kind = PLAN_DELETE, .path = "x"},
      {.kind = PLAN_MKDIR, .path = "x"},
      {.kind = PLAN_CREATE, .path = "x/y"}},
     "out x slots/1.base\nmark  slots/mark\nin x slots/0\nin x/y upper/x/y\nmode x 700>755\n",
     "out x/y upper/x/y\nout x slots/0\nmark  slots/mark\nin x slots/1.base\n"},
    {"a directory becomes a file",
     {{.kind = PLAN_DELETE, .path = "x", .mode = DIR_MODE}, {.kind = PLAN_CREATE, .path = "x"}},
     "out x slots/1.base\nmark  slots/mark\nin x upper/x\n",
     "out x upper/x\nmark  slots/mark\nin x slots/1.base\n"},
    {"a file written and moved",
     {{.kind = PLAN_WRITE, .path = "b", .from = "a"}},
     "out a slots/0.base\nmark  slots/mark\nin b upper/b\n",
     "out b upper/b\nmark  slots/mark\nin a slots/0.base\n"},
    {"modes, of what stays and of what moves",
     {{.kind = PLAN_CHMOD, .path = "c", .mode = 0100700, .base_mode = FILE_MODE},
      {.kind = PLAN_MOVE, .path = "n", .from = "m", .mode = 0100600, .base_mode = FILE_MODE}},
     "out m slots/1.base\nmark  slots/mark\nin n slots/1.base\nmode n 644>600\nmode c 644>700\n",
     "out n slots/1.base\nmark  slots/mark\nin m slots/1.base\nmode m 600>644\nmode c 700>644\n"},
    {"a further name of a file of the base, which is moved itself",
     {{.kind = PLAN_MOVE, .path = "b", .from = "a"},
      {.kind = PLAN_CREATE, .path = "c", .link = "b"}},
     "link a slots/1\nout a slots/0.base\nmark  slots/mark\nin b slots/0.base\nin c slots/1\n",
     "out c slots/1\nout b slots/0.base\nmark  slots/mark\nin a slots/0.base\n"},
};

static size_t lines_of(const struct line lines[6])
{
    size_t n = 0;

    while (n < 6 && lines[n].path)
        n++;
    return n;
}

TEST(each_plan_has_its_steps_and_its_way_back)
{
    for (size_t i = 0; i < LENGTH(cases); i++) {
        for (int forward = 1; forward >= 0; forward--) {
            struct scene s = {0};
            const char *wanted = forward ? cases[i].forward : cases[i].backward;
            CHECK_FOR(cases[i].name,
                      compile(&s, cases[i].lines, lines_of(cases[i].lines), forward) == 0);
            if (strcmp(s.text.p, wanted) != 0)
                printf("wanted:\n%sgot:\n%s", wanted, s.text.p);
            CHECK_FOR(cases[i].name, strcmp(s.text.p, wanted) == 0);
            clear(&s);
        }
    }
    return 0;
}

/* Gives every directory that is looked at this mode. */
static int unlock(struct scene *s, uint32_t mode)
{
    struct err err;

    for (size_t i = 0; i < s->steps.directory_count; i++)
        s->steps.directories[i].mode = s->steps.directories[i].path[0] ? mode : 0755;
    buf_clear(&s->text);
    int r = steps_unlock(&s->steps, &s->layout, s->none, s->all, &err);
    print(&s->steps, &s->text);
    return r;
}

TEST(locked_directories_are_opened_and_closed_again_where_they_lie_then)
{
    static const struct line lines[] = {
        {.kind = PLAN_MOVE, .path = "new", .from = "old", .mode = 0040555},
        {.kind = PLAN_CREATE, .path = "new/made"},
        {.kind = PLAN_CHMOD, .path = "shut", .mode = 0040500, .base_mode = 0040555},
        {.kind = PLAN_DELETE, .path = "shut/f"}};
    struct scene s = {0};

    CHECK(compile(&s, lines, LENGTH(lines), true) == 0);
    CHECK(unlock(&s, 0555) == 0);
    static const char wanted[] = "unlock old 555>755\nunlock shut 555>755\nout shut/f "
                                 "slots/3.base\nout old slots/0.base\nmark  slots/mark\nin new "
                                 "slots/0.base\nin new/made upper/new/made\nmode shut "
                                 "755>500\nmode new 755>555\n";
    CHECK_FOR(s.text.p, strcmp(s.text.p, wanted) == 0);
    clear(&s);
    CHECK(compile(&s, lines, LENGTH(lines), true) == 0);
    CHECK(unlock(&s, 0755) == 0);
    CHECK_FOR(s.text.p, !strstr(s.text.p, "unlock"));
    clear(&s);
    return 0;
}

TEST(what_makes_no_sense_without_another_goes_with_it)
{
    static const struct line lines[] = {
        {.kind = PLAN_MKDIR, .path = "d"},                         /* 0 */
        {.kind = PLAN_MKDIR, .path = "d/e"},                       /* 1 */
        {.kind = PLAN_CREATE, .path = "d/e/f"},                    /* 2 */
        {.kind = PLAN_MOVE, .path = "m2", .from = "m1"},           /* 3 */
        {.kind = PLAN_MOVE, .path = "m3", .from = "m2"},           /* 4: clears m2 for 3 */
        {.kind = PLAN_DELETE, .path = "old", .mode = DIR_MODE},    /* 5 */
        {.kind = PLAN_MOVE, .path = "saved", .from = "old/thing"}, /* 6 */
        {.kind = PLAN_CREATE, .path = "z"},                        /* 7 */
    };

    static const struct {
        size_t out;
        const char left[9];
    } rows[] = {{0, "00011111"}, {1, "10011111"}, {2, "11011111"}, {3, "11101111"},
                {4, "11100111"}, {5, "11111011"}, {6, "11111001"}, {7, "11111110"}};
    struct scene s = {0};
    struct err err;

    CHECK(compile(&s, lines, LENGTH(lines), true) == 0);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        char set[8];
        char out[8] = {0};
        char text[9] = "";
        memset(set, 1, sizeof(set));
        out[rows[i].out] = 1;
        CHECK(layout_exclude(&s.layout, set, out, NULL, &err) == 0);
        for (size_t k = 0; k < 8; k++)
            text[k] = set[k] ? '1' : '0';
        CHECK_FOR(text, memcmp(text, rows[i].left, 8) == 0);
    }
    clear(&s);
    return 0;
}

TEST(places_are_found_in_both_directions_under_a_part_of_a_plan)
{
    static const struct line lines[] = {
        {.kind = PLAN_MOVE, .path = "b", .from = "a", .mode = DIR_MODE},
        {.kind = PLAN_DELETE, .path = "gone", .mode = DIR_MODE},
        {.kind = PLAN_MKDIR, .path = "made"},
    };
    char path[PLAN_MAX_PATH + 1];
    char some[3] = {0, 1, 0};
    struct scene s = {0};

    CHECK(compile(&s, lines, LENGTH(lines), true) == 0);
    CHECK(layout_locate(&s.layout, s.all, "a/x/y", path) && strcmp(path, "b/x/y") == 0);
    CHECK(layout_locate(&s.layout, some, "a/x/y", path) && strcmp(path, "a/x/y") == 0);
    CHECK(!layout_locate(&s.layout, some, "gone/x", path));
    CHECK(layout_locate(&s.layout, s.none, "gone/x", path) && strcmp(path, "gone/x") == 0);
    CHECK(layout_origin(&s.layout, s.all, "b/x", path) && strcmp(path, "a/x") == 0);
    CHECK(!layout_origin(&s.layout, s.all, "made/x", path));
    CHECK(layout_origin(&s.layout, some, "made/x", path) && strcmp(path, "made/x") == 0);
    clear(&s);
    return 0;
}
