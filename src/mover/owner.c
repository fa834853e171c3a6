/* SPDX-License-Identifier: Apache-2.0 */
/* Two daemons that mirror to one path would delete each other's objects. So an object says whose
 * the path is; it is made once, and looked at before anything is written. Where the store can write
 * on a condition, one of two that come at the same time is refused; elsewhere what was written is
 * read back after a while, which is weaker and told. */
#include <string.h>
#include <time.h>

#include "mover/mover.h"

#define OBJECT ".carrel/owner"

enum {
    SETTLE_S = 1, /* for another's write to be seen */
    LONGEST = 256,
};

static const char *marker(const struct mover *m, struct arena *arena)
{
    return arena_printf(arena, "{\"carrel\":1,\"daemon\":\"%s\"}\n", m->daemon);
}

static int refuse(struct mover *m, const char *whose, struct err *err)
{
    m->code = "store_taken";
    return err_set(err, ERR_CONFLICT, 0,
                   "another daemon (%.64s) mirrors to this path of the store; choose another path, "
                   "or 'carrel store check --take-over NAME' if that daemon is gone for good",
                   whose);
}

/* 1: ours; 0: nobody's; -1. */
static int look(struct mover *m, struct err *err)
{
    scoped_buf struct buf found;

    buf_init(&found, 0);
    int r = rclone_read(m, OBJECT, &found, err);
    if (r <= 0)
        return r;
    json_t *object = buf_done(&found) == 0 && found.n < 4096 ? json_loads(found.p, 0, NULL) : NULL;
    const char *whose = json_string_value(json_object_get(object, "daemon"));
    r = whose && strcmp(whose, m->daemon) == 0 ? 1
        : m->take_over                         ? 0
                                               : refuse(m, whose ? whose : "unknown", err);
    json_decref(object);
    return r;
}

static int write_plain(struct mover *m, const char *text, struct err *err)
{
    const struct timespec pause = {.tv_sec = SETTLE_S};

    if (rclone_write(m, OBJECT, text, strlen(text), err) < 0)
        return -1;
    (void)nanosleep(&pause, NULL);
    m->take_over = false;
    int r = look(m, err);
    return r == 0 ? err_set(err, ERR_IO, 0, "the store does not have what was written to it") : r;
}

/* A store that makes it twice keeps no condition, whatever it answers. */
static int create(struct mover *m, const char *text, struct err *err)
{
    int r = s3_create(m, OBJECT, text, strlen(text), err);

    if (r != 1)
        return r;
    r = s3_create(m, OBJECT, text, strlen(text), err);
    return r < 0 ? -1 : r == 0 ? 1 : write_plain(m, text, err);
}

int owner_claim(struct mover *m, struct err *err)
{
    struct arena arena;
    int r = look(m, err);

    if (r != 0)
        return r < 0 ? -1 : 0;
    arena_init(&arena, 4096);
    const char *text = marker(m, &arena);
    if (!text)
        r = err_set(err, ERR_LIMIT, 0, "keep a marker");
    else if (s3_is(m) && !m->take_over)
        r = create(m, text, err);
    else
        r = write_plain(m, text, err);
    arena_clear(&arena);
    if (r == 0) { /* somebody was faster, or a try of ours whose answer was lost */
        r = look(m, err);
        if (r == 0)
            return err_set(err, ERR_IO, 0, "the store says that there is a marker, and has none");
    }
    return r < 0 ? -1 : 0;
}
