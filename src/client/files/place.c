/* SPDX-License-Identifier: Apache-2.0 */
/* WS:/path, as scp writes it; anything else is a path here. A colon behind a slash is a part of a
 * name, so that ./a:b can be written. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/files/files.h"

/* Without needless slashes and dots. What ".." means depends on links: it is not guessed. */
static int clean(const char *from, struct client_path *ret, struct err *err)
{
    const char *word = from;
    size_t at = 0;

    while (*from) {
        size_t n = strcspn(from, "/");
        if (n == 2 && memcmp(from, "..", 2) == 0)
            return err_set(err, ERR_INVALID, 0, "'%.200s': write the path without '..'", word);
        if (n > 0 && !(n == 1 && *from == '.')) {
            if (at + n + 2 > sizeof(ret->path))
                return err_set(err, ERR_INVALID, 0,
                               "'%.80s...' is too long: a path has at most %d bytes", word,
                               FILES_PATH - 1);
            ret->path[at++] = '/';
            memcpy(ret->path + at, from, n);
            at += n;
        }
        from += n;
        from += *from == '/';
    }
    if (at == 0)
        ret->path[at++] = '/';
    ret->path[at] = '\0';
    return 0;
}

/* The directory it is in, links resolved; its own name stays. NULL: there is no such directory. */
static const char *resolve(const char *word, char whole[PATH_MAX])
{
    const char *slash = strrchr(word, '/');
    const char *name = slash ? slash + 1 : word;
    char dir[PATH_MAX];

    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return realpath(word, whole);
    snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - word) + 1 : 1, slash ? word : ".");
    if (!realpath(dir, whole))
        return NULL;
    size_t n = strlen(whole);
    if (n + strlen(name) + 2 > PATH_MAX)
        return NULL;
    snprintf(whole + n, PATH_MAX - n, "/%s", name);
    return whole;
}

static int parse_local(const char *word, struct client_path *ret, struct err *err)
{
    char whole[PATH_MAX];
    char joined[2 * PATH_MAX];
    const char *found = strlen(word) < PATH_MAX ? resolve(word, whole) : NULL;

    ret->local = true;
    if (found)
        return clean(found, ret, err);
    if (*word == '/')
        return clean(word, ret, err);
    if (!getcwd(whole, sizeof(whole)))
        return err_set(err, ERR_NOT_FOUND, errno, "the current directory cannot be found");
    snprintf(joined, sizeof(joined), "%s/%.*s", whole, PATH_MAX, word);
    return clean(joined, ret, err);
}

static bool is_id(const char *text, size_t n)
{
    static const char more[] = "._-";

    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!plain && (i == 0 || !strchr(more, c)))
            return false;
    }
    return n > 0 && n < PLACE_ID;
}

int place_parse(const char *word, struct client_path *ret, struct err *err)
{
    size_t n = strcspn(word, ":/");
    size_t length = strlen(word);

    *ret = (struct client_path){.folder = length > 0 && word[length - 1] == '/'};
    if (length == 0)
        return err_set(err, ERR_INVALID, 0,
                       "an argument is empty: write WS:/path, or a path on this host");
    if (word[n] != ':' || !is_id(word, n))
        return parse_local(word, ret, err);
    memcpy(ret->workspace, word, n);
    return clean(word + n + 1, ret, err);
}

const char *place_name(const struct client_path *place)
{
    return strrchr(place->path, '/') + 1;
}

int place_enter(struct client_path *place, const char *name, struct err *err)
{
    size_t n = strlen(place->path);
    size_t more = strlen(name);

    if (n + more + 2 > sizeof(place->path))
        return err_set(err, ERR_INVALID, 0, "the path to '%.80s' is too long", name);
    if (n > 1)
        place->path[n++] = '/';
    memcpy(place->path + n, name, more + 1);
    return 0;
}

bool place_same_side(const struct client_path *a, const struct client_path *b)
{
    return a->local == b->local && strcmp(a->workspace, b->workspace) == 0;
}
