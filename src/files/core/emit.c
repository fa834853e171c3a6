/* SPDX-License-Identifier: Apache-2.0 */
/* JSON out. Names and contents are any bytes: what is no UTF-8 goes as base64 under a key of its
 * own, so that nothing is ever replaced and two names stay two. */
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "files/core/call.h"

enum {
    SEND_AT = 32768,      /* streamed: so much is gathered */
    MOST_KEPT = 64 << 20, /* not streamed: the most that one answer has */
    FACTS = 384, /* of an entry: seven keys, three words, three numbers, a time and an etag */
    USER_INSIDE = 1000, /* uid and gid of the user of a sandbox */
};

void emit_begin(struct emit *e, struct files_call *call, bool streamed, enum files_type type)
{
    struct files_head head = {.status = 200, .type = type, .size = FILES_MOST};

    *e = (struct emit){.call = call, .streamed = streamed, .type = type};
    /* Streamed, one string of 16 MiB can be six times longer when it is escaped. */
    buf_init(&e->b, streamed ? 2 * MOST_KEPT : MOST_KEPT);
    if (streamed)
        (void)answer_begin(call, &head);
}

static void flush(struct emit *e, size_t at_least)
{
    if (!e->streamed || e->b.n < at_least)
        return;
    if (!e->b.failed)
        (void)answer_bytes(e->call, e->b.p, e->b.n);
    e->b.n = 0;
}

bool emit_alive(struct emit *e)
{
    flush(e, SEND_AT);
    return !e->call->gone && !e->b.failed;
}

void emit_raw(struct emit *e, const char *json)
{
    buf_str(&e->b, json);
    if (*json)
        e->last = json[strlen(json) - 1];
}

static bool wants_comma(const struct emit *e)
{
    return e->last != '{' && e->last != '[' && e->last != ',' && e->last != '\n' && e->last != '\0';
}

void emit_comma(struct emit *e)
{
    if (wants_comma(e))
        emit_raw(e, ",");
}

static void key(struct emit *e, const char *name, const char *suffix)
{
    emit_comma(e);
    buf_str(&e->b, "\"");
    buf_str(&e->b, name);
    buf_str(&e->b, suffix);
    buf_str(&e->b, "\":");
    e->last = ':';
}

/* Lists are made of little else: the library's printf would take most of the time of one. At least
 * `digits` of them, to the left of `end`; where they begin. */
static char *decimal(char *end, uint64_t number, int digits)
{
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
    } while (--digits > 0 || number > 0);
    return end;
}

void emit_number(struct emit *e, const char *name, int64_t number)
{
    char text_of[24];
    char *end = text_of + sizeof(text_of);
    uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

    key(e, name, "");
    char *at = decimal(end, size, 1);
    if (number < 0)
        *--at = '-';
    buf_add(&e->b, at, (size_t)(end - at));
    e->last = '0';
}

static void base64(struct emit *e, const void *bytes, size_t n)
{
    buf_str(&e->b, "\"");
    bytes_add_base64(&e->b, bytes, n);
    buf_str(&e->b, "\"");
}

void emit_bytes(struct emit *e, const char *name, const void *bytes, size_t n)
{
    bool is_text = bytes_are_utf8(bytes, n);

    key(e, name, is_text ? "" : "_b64");
    if (is_text)
        bytes_add_json(&e->b, bytes, n);
    else
        base64(e, bytes, n);
    e->last = '"';
}

void emit_value(struct emit *e, const void *bytes, size_t n)
{
    emit_comma(e);
    if (bytes_are_utf8(bytes, n)) {
        bytes_add_json(&e->b, bytes, n);
        e->last = '"';
        return;
    }
    emit_raw(e, "{\"b64\":");
    base64(e, bytes, n);
    emit_raw(e, "}");
}

enum {
    DAY = 86400
};

/* "2026-01-02", once for all times of that day. */
static bool name_day(struct emit *e, int64_t day)
{
    time_t seconds;
    struct tm parts;

    if (e->day_n > 0 && e->day == day)
        return true;
    e->day = day;
    e->day_n = !__builtin_mul_overflow(day, DAY, &seconds) && gmtime_r(&seconds, &parts)
                   ? strftime(e->day_name, sizeof(e->day_name), "%Y-%m-%d", &parts)
                   : 0;
    return e->day_n > 0;
}

/* In quotes; "null" in a year that has no name. Returns where it ends. */
static char *put_time(struct emit *e, char *at, const struct timespec *t)
{
    int64_t day = t->tv_sec / DAY - (t->tv_sec % DAY < 0); /* also of the first second there is */
    uint64_t second = (uint64_t)t->tv_sec - (uint64_t)day * DAY;
    char clock[] = "T00:00:00.000000000Z\"";

    if (!name_day(e, day))
        return stpcpy(at, "null");
    (void)decimal(clock + 3, second / 3600, 2);
    (void)decimal(clock + 6, second / 60 % 60, 2);
    (void)decimal(clock + 9, second % 60, 2);
    (void)decimal(clock + 19, (uint64_t)t->tv_nsec, 9);
    *at++ = '"';
    return stpcpy(stpcpy(at, e->day_name), clock);
}

static const char *type_of(mode_t mode)
{
    return S_ISREG(mode)    ? "file"
           : S_ISDIR(mode)  ? "directory"
           : S_ISLNK(mode)  ? "symlink"
           : S_ISFIFO(mode) ? "fifo"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static uint64_t own_id = UINT64_MAX;

void emit_own_id(uint64_t id)
{
    own_id = id;
}

/* As a command inside has it: who reads a tree without its sandbox sees its owner's of the host. */
static uint64_t uid_told(uint64_t id)
{
    return id == own_id ? USER_INSIDE : id;
}

/* All but names: nothing in it needs to be escaped but the quotes of an etag. In one piece, as a
 * list of many is made of little else. Returns where it ends. */
static char *put_facts(struct emit *e, char *at, const struct stat *st)
{
    char digits_of[24];
    char *end = digits_of + sizeof(digits_of) - 1;
    char etag[FILES_ETAG];

    *end = '\0';
    at = stpcpy(stpcpy(at, ",\"type\":\""), type_of(st->st_mode));
    at = stpcpy(stpcpy(at, "\",\"size\":"), decimal(end, (uint64_t)st->st_size, 1));
    at = stpcpy(at, ",\"mode\":\"");
    for (unsigned i = 0; i < 4; i++)
        *at++ = (char)('0' + (st->st_mode >> (9 - 3 * i) & 7));
    at = stpcpy(stpcpy(at, "\",\"uid\":"), decimal(end, uid_told(st->st_uid), 1));
    at = stpcpy(stpcpy(at, ",\"gid\":"), decimal(end, uid_told(st->st_gid), 1));
    at = put_time(e, stpcpy(at, ",\"mtime\":"), &st->st_mtim);
    if (S_ISREG(st->st_mode)) {
        files_etag(st, etag);
        etag[strlen(etag) - 1] = '\0';
        at = stpcpy(stpcpy(at, ",\"etag\":\"\\u0022"), etag + 1);
        at = stpcpy(at, "\\u0022\"");
    }
    return at;
}

static void add_facts(struct emit *e, const struct stat *st, const char *link_target)
{
    char *at = buf_room(&e->b, FACTS);

    if (at)
        e->b.n += (size_t)(put_facts(e, at, st) - at);
    if (link_target)
        emit_bytes(e, "target", link_target, strlen(link_target));
}

void emit_entry_members(struct emit *e, const char *path, const struct stat *st,
                        const char *link_target)
{
    emit_bytes(e, "path", path, strlen(path));
    add_facts(e, st, link_target);
}

/* Nothing in it is to be escaped or decoded: what most names are. */
static bool is_plain(const unsigned char *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (c[i] < ' ' || c[i] == '"' || c[i] == '\\' || c[i] >= 0x7f)
            return false;
    }
    return true;
}

/* Its brace and its path, mostly in one piece. */
static void begin_entry(struct emit *e, const char *path)
{
    static const char begins[] = ",{\"path\":\"";
    size_t n = strlen(path);
    size_t skip = !wants_comma(e);
    char *at =
        is_plain((const unsigned char *)path, n) ? buf_room(&e->b, sizeof(begins) + n) : NULL;

    if (!at) {
        emit_raw(e, skip ? "{" : ",{");
        emit_bytes(e, "path", path, n);
        return;
    }
    at = mempcpy(mempcpy(at, begins + skip, sizeof(begins) - 1 - skip), path, n);
    *at++ = '"';
    e->b.n = (size_t)(at - e->b.p);
    e->last = '"';
}

void emit_entry(struct emit *e, const char *path, const struct stat *st, const char *link_target)
{
    begin_entry(e, path);
    add_facts(e, st, link_target);
    emit_raw(e, "}");
}

void emit_unlooked(struct emit *e, const char *path, mode_t type, int error)
{
    begin_entry(e, path);
    char *at = buf_room(&e->b, FACTS);
    if (!at)
        return;
    if (type)
        at = stpcpy(stpcpy(stpcpy(at, ",\"type\":\""), type_of(type)), "\"");
    if (error)
        at = stpcpy(stpcpy(stpcpy(at, ",\"error\":\""), files_error_code(error, NULL)), "\"");
    *at++ = '}';
    e->b.n = (size_t)(at - e->b.p);
    e->last = '}';
}

void emit_finish(struct emit *e, unsigned status)
{
    struct files_head head = {.status = status, .type = e->type, .size = e->b.n};

    if (e->b.failed && !e->streamed && status < 400) {
        buf_clear(&e->b);
        answer_error(e->call, 413, "too_large", "the answer is larger than one may be");
        return;
    }
    if (e->b.failed)
        e->call->gone = true; /* more than an answer holds */
    if (e->streamed) {
        flush(e, 1);
        answer_end(e->call);
    } else if (!e->call->gone) {
        (void)answer_whole(e->call, &head, e->b.p);
    }
    buf_clear(&e->b);
}
