/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/attributes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/xattr.h>

#include "base/bytes.h"

enum {
    MOST_NAMES = 65536, /* bytes: the kernel's limit */
    LONGEST_NAME = 255,
};

#define CODED "base64:"

static bool is_carried(const char *name)
{
    return strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0;
}

/* As it is in JSON, without a sign before it. */
static bool is_plain(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < ' ' || c == '"' || c == '\\' || c == 0x7f)
            return false;
    }
    return bytes_are_utf8(name, n);
}

/* --- writing --- */

static void add_one(struct buf *b, const char *name, size_t name_n, const char *value, size_t n)
{
    buf_str(b, b->n > 0 && b->p[b->n - 1] != '{' ? "," : "");
    if (is_plain(name, name_n)) {
        bytes_add_json(b, name, name_n);
    } else {
        buf_str(b, "\"" CODED);
        bytes_add_base64(b, name, name_n);
        buf_str(b, "\"");
    }
    buf_str(b, ":\"");
    bytes_add_base64(b, value, n);
    buf_str(b, "\"");
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Pointers into the list, sorted; how many. */
static size_t sort_names(char *names, ssize_t n, const char **ret)
{
    size_t count = 0;

    for (char *name = names; name < names + n; name += strlen(name) + 1) {
        if (is_carried(name))
            ret[count++] = name;
    }
    if (count > 1)
        qsort(ret, count, sizeof(*ret), compare_names);
    return count;
}

static int add_all(int fd, const char *path, const char *const *names, size_t count, struct buf *b)
{
    char value[ATTRIBUTE_LARGEST];

    for (size_t i = 0; i < count; i++) {
        ssize_t n = path ? getxattr(path, names[i], value, sizeof(value))
                         : fgetxattr(fd, names[i], value, sizeof(value));
        if (n < 0 && errno != ERANGE)
            return -errno;
        if (n < 0)
            continue; /* one that does not come along */
        buf_str(b, b->n == 0 ? "{" : "");
        add_one(b, names[i], strlen(names[i]), value, (size_t)n);
    }
    buf_str(b, b->n > 0 ? "}" : "");
    return b->failed ? -E2BIG : 0;
}

int attributes_read(int fd, const char *path, struct buf *b)
{
    char *names = malloc(MOST_NAMES);
    const char **sorted = NULL;
    int r = -ENOMEM;

    if (names) {
        ssize_t n = path ? listxattr(path, names, MOST_NAMES) : flistxattr(fd, names, MOST_NAMES);
        r = n >= 0 || errno == EOPNOTSUPP ? 0 : -errno;
        if (n > 0) /* a name has six bytes at least */
            sorted = calloc((size_t)n / 2 + 1, sizeof(*sorted));
        if (n > 0)
            r = sorted ? add_all(fd, path, sorted, sort_names(names, n, sorted), b) : -ENOMEM;
    }
    free(sorted);
    free(names);
    return r;
}

/* --- reading --- */

struct attribute {
    char name[LONGEST_NAME + 1];
    char value[ATTRIBUTE_LARGEST + 4];
    size_t name_n;
    size_t n;
};

/* The text up to the quote that ends it, or -1. */
static ssize_t length_of(const char *at, const char *end)
{
    const char *first = at;

    for (; at < end && *at != '"'; at++) {
        if (*at == '\\')
            return -1; /* nothing is written so: is_plain */
    }
    return at < end ? at - first : -1;
}

static bool take_name(struct attribute *a, const char *text, size_t n)
{
    size_t coded = sizeof(CODED) - 1;
    bool is_coded = n > coded && memcmp(text, CODED, coded) == 0;
    ssize_t made = (ssize_t)n;

    if (is_coded) {
        if (n - coded > (size_t)LONGEST_NAME / 3 * 4)
            return false;
        made = bytes_from_base64(text + coded, n - coded, a->name);
    } else if (n <= LONGEST_NAME) {
        memcpy(a->name, text, n);
    } else {
        return false;
    }
    if (made <= 0 || memchr(a->name, '\0', (size_t)made))
        return false;
    a->name[made] = '\0';
    a->name_n = (size_t)made;
    return is_carried(a->name) && is_plain(a->name, a->name_n) != is_coded;
}

/* One of them from `at`, which is behind its brace or comma; where it goes on, or NULL. */
static const char *take_one(struct attribute *a, const char *at, const char *end)
{
    ssize_t n = at < end && *at == '"' ? length_of(at + 1, end) : -1;

    if (n < 0 || !take_name(a, at + 1, (size_t)n))
        return NULL;
    at += n + 2;
    if (end - at < 2 || memcmp(at, ":\"", 2) != 0)
        return NULL;
    n = length_of(at + 2, end);
    if (n < 0 || n > (ATTRIBUTE_LARGEST + 2) / 3 * 4L)
        return NULL;
    ssize_t made = bytes_from_base64(at + 2, (size_t)n, a->value);
    if (made < 0 || made > ATTRIBUTE_LARGEST)
        return NULL;
    a->n = (size_t)made;
    return at + n + 3;
}

/* Calls `each` with one after the other; 0, what `each` returned, or -EINVAL: that is no text of
 * ours. */
static int for_each(const char *text, size_t size,
                    int (*each)(void *context, const struct attribute *a), void *context)
{
    struct attribute a;
    const char *at = text;
    const char *end = text + size;
    int r = size > 2 && *at == '{' ? 0 : -EINVAL;

    while (r == 0) {
        at = take_one(&a, at + 1, end);
        r = !at || at >= end ? -EINVAL : each(context, &a);
        if (r == 0 && *at != ',')
            return *at == '}' && at + 1 == end ? 0 : -EINVAL;
    }
    return r;
}

struct again {
    struct buf b;
    char last[LONGEST_NAME + 1];
};

static int write_again(void *context, const struct attribute *a)
{
    struct again *again = context;

    if (strcmp(again->last, a->name) >= 0)
        return -EINVAL;
    memcpy(again->last, a->name, a->name_n + 1);
    add_one(&again->b, a->name, a->name_n, a->value, a->n);
    return 0;
}

bool attributes_are_sane(const char *text, size_t n)
{
    struct again again = {.last = ""};

    if (n > ATTRIBUTES_LARGEST)
        return false;
    buf_init(&again.b, ATTRIBUTES_LARGEST);
    buf_str(&again.b, "{");
    int r = for_each(text, n, write_again, &again);
    buf_str(&again.b, "}");
    bool same =
        r == 0 && buf_done(&again.b) == 0 && again.b.n == n && memcmp(again.b.p, text, n) == 0;
    buf_clear(&again.b);
    return same;
}

static int set_one(void *context, const struct attribute *a)
{
    const int *fd = context;

    return fsetxattr(*fd, a->name, a->value, a->n, 0) < 0 ? -errno : 0;
}

int attributes_set(int fd, const char *text)
{
    return for_each(text, strlen(text), set_one, &fd);
}

static int add_name(void *context, const struct attribute *a)
{
    struct buf *b = context;

    buf_str(b, b->n > 0 ? ", " : "");
    buf_add(b, a->name, a->name_n);
    return 0;
}

void attributes_add_names(struct buf *b, const char *text)
{
    (void)for_each(text, strlen(text), add_name, b);
}
