/* SPDX-License-Identifier: Apache-2.0 */
/* DIR/.carrel/stores/NAME: how a store is reached, root's and 0600. A front can have one written,
 * used and removed, and learns what is not secret in it; it never gets one back. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "broker/channel.h"
#include "broker/movers.h"
#include "broker/store_mounts.h"
#include "protocol/store.h"
#include "protocol/store_job.h"
#include "sys/path.h"

enum {
    MOST_STORES = 256,
    NAME_BYTES = 16,
    NAME_TEXT = 2 * NAME_BYTES,
};

static int open_stores(const struct broker *b, struct err *err)
{
    scoped_fd int own = path_open_beneath(b->state, ".carrel", O_RDONLY | O_DIRECTORY, 0);

    if (own < 0)
        return err_set(err, ERR_IO, -own, "open '.carrel' in the state directory");
    if (mkdirat(own, "stores", 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the directory of the stores");
    int fd = path_open_beneath(own, "stores", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? err_set(err, ERR_IO, -fd, "open the directory of the stores") : fd;
}

/* Whole or not at all. */
static int write_file(int dir, const char *name, const char *text, struct err *err)
{
    ignore(unlinkat(dir, ".new", 0) == 0); /* of a try that was interrupted */
    scoped_fd int fd = openat(dir, ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));

    if (r == 0 && (fsync(fd) < 0 || renameat(dir, ".new", dir, name) < 0 || fsync(dir) < 0))
        r = -errno;
    return r < 0 ? err_set(err, ERR_IO, -r, "write the store's configuration") : 0;
}

static size_t count(int dir)
{
    scoped_fd int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = copy < 0 ? NULL : fdopendir(copy);
    size_t n = 0;

    if (!names)
        return 0;
    (void)take_fd(&copy);  /* it is the stream's */
    while (readdir(names)) /* one thread; NOLINT(concurrency-mt-unsafe) */
        n++;
    (void)closedir(names);
    return n;
}

static int keep(const struct broker *b, const char *name, const char *text, struct err *err)
{
    struct store_conf conf;
    char *copy = strdup(text);

    if (!copy)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep the store");
    int r = store_conf_parse(copy, &conf, err); /* the front has looked, and is not believed */
    explicit_bzero(copy, strlen(text));
    free(copy);
    scoped_fd int dir = r < 0 ? -1 : open_stores(b, err);
    if (dir < 0)
        return -1;
    if (count(dir) >= MOST_STORES)
        return err_set(err, ERR_LIMIT, 0, "there are %d stores already", MOST_STORES);
    return write_file(dir, name, text, err);
}

bool store_set(struct broker *b, char *bytes, size_t n)
{
    const char *name;
    char *text;
    uint64_t tag;
    struct err err;

    if (!protocol_unpack_store(bytes, n, &tag, &name, &text))
        return false;
    if (keep(b, name, text, &err) < 0) {
        channel_send_error(b, tag, &err);
    } else {
        store_mounts_changed(b, name);
        channel_send_ok(b, tag);
    }
    return true;
}

static int say_missing(const char *name, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, 0, "there is no store '%.64s'; see 'carrel store ls'", name);
}

void store_remove(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct err err;
    scoped_fd int dir = open_stores(b, &err);

    if (dir >= 0 && unlinkat(dir, m->texts[0], 0) == 0 && fsync(dir) == 0) {
        store_mounts_changed(b, m->texts[0]);
        channel_send_ok(b, tag);
        return;
    }
    if (dir >= 0 && errno == ENOENT)
        (void)say_missing(m->texts[0], &err);
    else if (dir >= 0)
        err_set(&err, ERR_IO, errno, "remove the store");
    channel_send_error(b, tag, &err);
}

int store_open_conf(const struct broker *b, const char *name, struct err *err)
{
    scoped_fd int dir = open_stores(b, err);

    if (dir < 0)
        return -1;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return say_missing(name, err);
    return fd < 0 ? err_set(err, ERR_IO, errno, "open the store's configuration") : fd;
}

/* What is not secret of one: name, type, path, endpoint. False: it cannot be read. */
static bool list_one(const struct broker *b, const char *name, struct arena *arena, const char **to)
{
    char *text = arena_alloc(arena, STORE_TEXT + 1);
    struct store_conf conf;
    struct err unused;
    scoped_fd int fd = text ? store_open_conf(b, name, &unused) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, text, STORE_TEXT);

    if (n < 0)
        return false;
    text[n] = '\0';
    bool good = store_conf_parse(text, &conf, &unused) == 0;
    const char *url = good ? store_conf_value(&conf, "endpoint") : "";
    to[0] = arena_copy(arena, name, strlen(name));
    to[1] = good ? arena_copy(arena, conf.type, strlen(conf.type)) : "";
    to[2] = good ? arena_copy(arena, conf.path, strlen(conf.path)) : "";
    to[3] = strchr(url, '@') ? "" : arena_copy(arena, url, strlen(url));
    explicit_bzero(text, STORE_TEXT);
    return good && to[0] && to[1] && to[2] && to[3];
}

static int by_name(const void *a, const void *b)
{
    return strcmp(**(const char *const *const *)a, **(const char *const *const *)b);
}

static int list_all(const struct broker *b, struct arena *arena, struct buf *answer,
                    struct err *err)
{
    const char ***rows = arena_alloc(arena, MOST_STORES * sizeof(*rows));
    const char **flat = arena_alloc(arena, (MOST_STORES * STORE_FACTS + 1) * sizeof(*flat));
    scoped_fd int dir = open_stores(b, err);
    DIR *names = dir < 0 ? NULL : fdopendir(dir);
    const struct dirent *entry;
    size_t n = 0;

    if (!names || !rows || !flat) {
        if (names)
            (void)closedir(names);
        return dir < 0 ? -1 : err_set(err, ERR_LIMIT, ENOMEM, "list the stores");
    }
    (void)take_fd(&dir); /* it is the stream's */
    while (n < MOST_STORES &&
           (entry = readdir(names))) { /* one thread; NOLINT(concurrency-mt-unsafe) */
        const char **row = arena_alloc(arena, STORE_FACTS * sizeof(*row));
        if (row && protocol_id_is_valid(entry->d_name) && list_one(b, entry->d_name, arena, row))
            rows[n++] = row;
    }
    (void)closedir(names);
    qsort(rows, n, sizeof(*rows), by_name);
    for (size_t i = 0; i < n; i++)
        memcpy(&flat[i * STORE_FACTS], rows[i], STORE_FACTS * sizeof(*flat));
    pack_list(answer, flat);
    return buf_done(answer) < 0 ? err_set(err, ERR_LIMIT, 0, "list the stores") : 0;
}

void store_list(struct broker *b, uint64_t tag)
{
    scoped_buf struct buf answer;
    struct arena arena;
    struct err err;

    buf_init(&answer, 2UL << 20);
    arena_init(&arena, 32UL << 20);
    pack_u64(&answer, tag);
    if (list_all(b, &arena, &answer, &err) < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send(b, ANSWER_NAMES, &answer, NULL, 0);
    arena_clear(&arena);
}

int store_daemon_name(const struct broker *b, char ret[65], struct err *err)
{
    unsigned char bytes[NAME_BYTES];
    scoped_fd int dir = open_stores(b, err);

    if (dir < 0)
        return -1;
    for (int tries = 0; tries < 2; tries++) {
        scoped_fd int fd = openat(dir, ".daemon", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, ret, 64);
        ret[n > 0 ? n : 0] = '\0';
        if (n == NAME_TEXT)
            return 0;
        if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
            return err_set(err, ERR_IO, errno, "get random bytes");
        for (size_t i = 0; i < sizeof(bytes); i++)
            snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
        if (write_file(dir, ".daemon", ret, err) < 0)
            return -1;
    }
    return 0;
}
