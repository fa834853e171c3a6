/* SPDX-License-Identifier: Apache-2.0 */
/* What a program inside sends first, between which a server answers: the first byte chooses port
 * and rule, then pieces of a length (two bytes, the upper bit: from the server). However they are
 * cut, the same leaves, nothing twice and nothing after a refusal. */
#include "fuzz.h"

#include <string.h>

#include "egress/look.h"

enum {
    FROM_SERVER = 0x8000
};

struct ending {
    enum look_state state;
    uint64_t cleared;
    const char *why;
};

static void begin(struct look *look, unsigned how)
{
    static const uint16_t ports[] = {443, 80, 8080, 25};
    struct network_rule rule = {
        .name = "a.test", .opaque = (how & 12) == 12, .refuse_ech = (how & 16) != 0};

    look_begin(look, "a.test", ports[how & 3], &rule);
}

static bool say(struct look *look, const uint8_t *bytes, size_t n, uint64_t *said)
{
    /* A copy of its own, to see any step over its end. */
    uint8_t *exact = malloc(n ? n : 1);

    MUST(exact);
    memcpy(exact, bytes, n);
    uint64_t before = look->cleared;
    bool is = look_up(look, exact, n) == 0;
    free(exact);
    *said += n;
    MUST(look->cleared >= before && (look->cleared <= *said || look->state == LOOK_FREE));
    MUST(is != (look->state == LOOK_OVER) && (is || (look->why && look->fix)));
    MUST(look->state == LOOK_FREE ? look->cleared == UINT64_MAX : 1);
    return is;
}

static struct ending run(const uint8_t *data, size_t size, size_t step)
{
    struct look look;
    uint64_t said = 0;
    bool goes_on = true;

    begin(&look, data[0]);
    for (size_t at = 1; goes_on && at + 2 <= size;) {
        size_t head = (size_t)data[at] << 8 | data[at + 1];
        size_t n = head & (FROM_SERVER - 1);
        at += 2;
        n = n < size - at ? n : size - at;
        for (size_t i = 0; goes_on && i < n; i += step) {
            size_t some = n - i < step ? n - i : step;
            if (head & FROM_SERVER)
                look_down(&look, data + at + i, some);
            else
                goes_on = say(&look, data + at + i, some, &said);
        }
        at += n;
    }
    struct ending end = {look.state, look.cleared, look.why};
    look_clear(&look);
    return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct ending at_once = run(data, size, SIZE_MAX);
    struct ending by_bytes = run(data, size, 1);
    MUST(at_once.state == by_bytes.state);
    /* What came in one piece with what is refused is not sent. */
    MUST(at_once.cleared == by_bytes.cleared ||
         (at_once.state == LOOK_OVER && at_once.cleared < by_bytes.cleared));
    MUST(at_once.why == by_bytes.why);
    return 0;
}
