/* SPDX-License-Identifier: Apache-2.0 */
/* Hellos of TLS as a client could write them, right and wrong. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
    HELLO_SCENE = 2048
};

struct hello_scene {
    const char *name; /* NULL: no such extension */
    const char *second_name;
    bool no_extensions;
    bool twice; /* the extension */
    bool early;
    bool ech;
    unsigned char type;    /* of the name */
    unsigned char tail;    /* so many bytes behind the extensions */
    unsigned char message; /* its type; 0: a hello */
    unsigned char record;  /* likewise */
    unsigned char version; /* 0: 3 */
    size_t padding;
};

static inline size_t hello_number(unsigned char *p, size_t number)
{
    p[0] = (unsigned char)(number >> 8);
    p[1] = (unsigned char)number;
    return 2;
}

static inline size_t hello_one_name(unsigned char *p, const char *name, unsigned char type)
{
    size_t n = strlen(name);

    p[0] = type;
    (void)hello_number(p + 1, n);
    memcpy(p + 3, name, n);
    return n + 3;
}

static inline size_t hello_names(unsigned char *p, const struct hello_scene *s)
{
    size_t n = 6 + hello_one_name(p + 6, s->name, s->type);

    if (s->second_name)
        n += hello_one_name(p + n, s->second_name, 0);
    (void)hello_number(p, 0);
    (void)hello_number(p + 2, n - 4);
    (void)hello_number(p + 4, n - 6);
    return n;
}

static inline size_t hello_extension(unsigned char *p, size_t type, size_t n)
{
    (void)hello_number(p, type);
    (void)hello_number(p + 2, n);
    memset(p + 4, 0, n);
    return n + 4;
}

static inline size_t hello_extensions(unsigned char *p, const struct hello_scene *s)
{
    size_t n = 2;

    if (s->no_extensions)
        return 0;
    n += hello_extension(p + n, 0x0a0a, 0); /* GREASE */
    if (s->name)
        n += hello_names(p + n, s);
    if (s->twice)
        n += hello_names(p + n, s);
    if (s->ech)
        n += hello_extension(p + n, 0xfe0d, 32);
    if (s->early)
        n += hello_extension(p + n, 42, 0);
    if (s->padding)
        n += hello_extension(p + n, 21, s->padding);
    n += hello_extension(p + n, 43, 3);
    (void)hello_number(p, n - 2);
    memset(p + n, 0, s->tail);
    return n + s->tail;
}

/* The message alone. */
static inline size_t hello_message(unsigned char *p, const struct hello_scene *s)
{
    static const unsigned char rest[] = {0, 0, 2, 0x13, 0x01, 1, 0}; /* session, ciphers, … */
    size_t n = 4;

    p[n++] = 3;
    p[n++] = 3;
    memset(p + n, 0x55, 32);
    n += 32;
    memcpy(p + n, rest, sizeof(rest));
    n += sizeof(rest);
    n += hello_extensions(p + n, s);
    p[0] = s->message ? s->message : 1;
    p[1] = (unsigned char)((n - 4) >> 16);
    (void)hello_number(p + 2, n - 4);
    return n;
}

static inline size_t hello_head(unsigned char *p, unsigned char type, unsigned char version,
                                size_t n)
{
    p[0] = type;
    p[1] = version;
    p[2] = 1;
    (void)hello_number(p + 3, n);
    return 5;
}

/* In one record. */
static inline size_t hello_record(unsigned char *p, const struct hello_scene *s)
{
    size_t n = hello_message(p + 5, s);

    return n + hello_head(p, s->record ? s->record : 22, s->version ? s->version : 3, n);
}

/* The same in records of so many bytes each. */
static inline size_t hello_cut(unsigned char *p, const unsigned char *record, size_t n,
                               size_t piece)
{
    size_t at = 0;

    for (size_t i = 5; i < n; i += piece) {
        size_t some = n - i < piece ? n - i : piece;
        at += hello_head(p + at, 22, 3, some);
        memcpy(p + at, record + i, some);
        at += some;
    }
    return at;
}

/* One that needs several records. */
static inline size_t hello_long(unsigned char *p, const struct hello_scene *s)
{
    static unsigned char whole[5 + 65536];
    size_t n = hello_message(whole + 5, s);

    return hello_cut(p, whole, n + 5, 16000);
}

/* A ServerHello, or one that asks for another hello. */
static inline size_t server_record(unsigned char *p, bool retry)
{
    static const unsigned char random[] = {0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11,
                                           0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
                                           0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e,
                                           0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};
    size_t n = 5;

    memset(p, 0, 64);
    p[n] = 2;
    p[n + 3] = 40;
    p[n + 4] = p[n + 5] = 3;
    if (retry)
        memcpy(p + n + 6, random, sizeof(random));
    n += 44;
    return n - 5 + hello_head(p, 22, 3, n - 5);
}
