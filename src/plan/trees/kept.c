/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trees/kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "sys/path.h"
#include "sys/tree_remove.h"

enum {
    MOST_META = 65536,
    SWEEPS = 1000,
};

/* As the front makes them. */
bool kept_id_is_valid(const char *id)
{
    return id[0] == 's' && strlen(id) == KEPT_ID - 1 &&
           strspn(id + 1, "0123456789abcdefghijklmnopqrstuvwxyz") == KEPT_ID - 2;
}

void kept_own_name(char *ret, size_t size, const char *before, const char *id)
{
    snprintf(ret, size, ".%s-%s", before, id);
}

static json_t *read_meta(int dir, const char *id)
{
    char path[KEPT_ID + 8];
    static char text[MOST_META]; /* of this process, which does one thing at a time */

    snprintf(path, sizeof(path), "%s/meta", id);
    scoped_fd int fd = path_open_beneath(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 1);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    return n <= 0 ? NULL : json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
}

static int add(struct kept_list *list, int dir, const char *id, struct err *err)
{
    if (list->count == KEPT_MOST)
        return err_set(err, ERR_LIMIT, 0, "there are more than %d snapshots", KEPT_MOST);
    struct kept *one = &list->at[list->count];
    one->meta = read_meta(dir, id);
    if (!json_is_object(one->meta)) {
        json_decref(one->meta);
        return err_set(err, ERR_IO, 0, "what is told of the snapshot '%s' is damaged", id);
    }
    snprintf(one->id, sizeof(one->id), "%s", id);
    one->created_ms = json_integer_value(json_object_get(one->meta, "created_ms"));
    list->count++;
    return 0;
}

static int by_age(const void *a, const void *b)
{
    const struct kept *one = a;
    const struct kept *other = b;

    if (one->created_ms != other->created_ms)
        return one->created_ms < other->created_ms ? -1 : 1;
    return strcmp(one->id, other->id);
}

int kept_read(struct kept_list *ret, int dir, struct err *err)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int r = 0;

    ret->count = 0;
    if (!stream) {
        scope_close(&fd);
        return err_set(err, ERR_IO, errno, "list the snapshots");
    }
    while (r == 0 && (entry = readdir(stream))) { /* NOLINT(concurrency-mt-unsafe) */
        if (kept_id_is_valid(entry->d_name))
            r = add(ret, dir, entry->d_name, err);
    }
    (void)closedir(stream);
    if (r < 0)
        kept_clear(ret);
    else
        qsort(ret->at, ret->count, sizeof(ret->at[0]), by_age);
    return r;
}

void kept_clear(struct kept_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        json_decref(list->at[i].meta);
    list->count = 0;
}

const struct kept *kept_find(const struct kept_list *list, const char *word)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *name = json_string_value(json_object_get(list->at[i].meta, "name"));
        if (strcmp(list->at[i].id, word) == 0 || (name && strcmp(name, word) == 0))
            return &list->at[i];
    }
    return NULL;
}

/* The first name that begins so; false: none does. */
static bool find_left(int dir, char name[NAME_MAX + 1])
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    bool found = false;

    if (!stream)
        scope_close(&fd);
    while (stream && !found && (entry = readdir(stream))) { /* NOLINT(concurrency-mt-unsafe) */
        found = strncmp(entry->d_name, ".new-", 5) == 0 || strncmp(entry->d_name, ".gone-", 6) == 0;
        if (found)
            snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
    }
    if (stream)
        (void)closedir(stream);
    return found;
}

int kept_sweep(int dir, struct err *err)
{
    char name[NAME_MAX + 1];

    for (int i = 0; i < SWEEPS && find_left(dir, name); i++) {
        int r = tree_remove(dir, name);
        if (r < 0)
            return err_set(err, ERR_IO, -r, "remove a snapshot that was interrupted");
    }
    return 0;
}

int kept_remove(int dir, const char *id, struct err *err)
{
    char gone[KEPT_ID + 8];

    kept_own_name(gone, sizeof(gone), "gone", id);
    if (renameat(dir, id, dir, gone) < 0)
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno == ENOENT ? 0 : errno,
                       "remove the snapshot '%s'", id);
    if (fsync(dir) < 0)
        return err_set(err, ERR_IO, errno, "remove the snapshot '%s'", id);
    int r = tree_remove(dir, gone);
    return r < 0 ? err_set(err, ERR_IO, -r, "remove the files of the snapshot '%s'", id) : 0;
}

static bool is_in(const json_t *list, const char *id)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), id) == 0)
            return true;
    }
    return false;
}

int kept_drop(int dir, const char *why, size_t most, const json_t *kept, struct err *err)
{
    static struct kept_list list; /* of this process, which does one thing at a time */
    int r = kept_read(&list, dir, err);

    if (r < 0)
        return -1;
    for (size_t i = list.count; r == 0 && i-- > 0;) {
        const char *its = json_string_value(json_object_get(list.at[i].meta, "why"));
        if (!its || strcmp(its, why) != 0)
            continue;
        if (most > 0)
            most--;
        else if (!is_in(kept, list.at[i].id))
            r = kept_remove(dir, list.at[i].id, err);
    }
    kept_clear(&list);
    return r;
}

int kept_write_meta(int dir, const json_t *meta, struct err *err)
{
    scoped_fd int fd =
        openat(dir, "meta", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -1 : json_dumpfd(meta, fd, JSON_COMPACT);

    if (r == 0)
        r = fsync(fd);
    return r < 0 ? err_set(err, ERR_IO, errno, "write what is told of the snapshot") : 0;
}
