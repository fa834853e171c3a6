/* SPDX-License-Identifier: Apache-2.0 */
/* DIR/.carrel/secrets/OWNER:NAME: values of secrets as the front has sealed them, root's and 0600,
 * and .key, the key that they are sealed for. Neither the front nor we open one: the key's public
 * half is all that the front is told, and carrel-egress alone is handed the other. */
#include "broker/secrets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/pack.h"
#include "base/seal.h"
#include "broker/channel.h"
#include "broker/egress.h"
#include "policy/network_inner.h"
#include "sys/path.h"

enum {
    MOST_OF_OWNER = 64,
    MOST = 4096,
    FILE_NAME = PROTOCOL_ID + NETWORK_SECRET + 2,
    TIME_TEXT = 24,
};

static int open_secrets(const struct broker *b, struct err *err)
{
    scoped_fd int own = path_open_beneath(b->state, ".carrel", O_RDONLY | O_DIRECTORY, 0);

    if (own < 0)
        return err_set(err, ERR_IO, -own, "open '.carrel' in the state directory");
    if (mkdirat(own, "secrets", 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the directory of the secrets");
    int fd = path_open_beneath(own, "secrets", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? err_set(err, ERR_IO, -fd, "open the directory of the secrets") : fd;
}

/* Whole or not at all. */
static int write_file(int dir, const char *name, const void *bytes, size_t n, struct err *err)
{
    ignore(unlinkat(dir, ".new", 0) == 0); /* of a try that was interrupted */
    scoped_fd int fd = openat(dir, ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, bytes, n);

    if (r == 0 && (fsync(fd) < 0 || renameat(dir, ".new", dir, name) < 0 || fsync(dir) < 0))
        r = -errno;
    return r < 0 ? err_set(err, ERR_IO, -r, "write a secret") : 0;
}

/* --- the key --- */

static int read_key(int dir, unsigned char key[SEAL_KEY])
{
    scoped_fd int fd = openat(dir, ".key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 && read(fd, key, SEAL_KEY) == SEAL_KEY ? 0 : fd < 0 && errno == ENOENT ? 1 : -1;
}

int secrets_begin(struct broker *b, struct err *err)
{
    unsigned char key[SEAL_KEY];
    unsigned char public[SEAL_KEY];
    scoped_fd int dir = open_secrets(b, err);

    if (dir < 0)
        return -1;
    int r = read_key(dir, key);
    if (r < 0)
        return err_set(err, ERR_INVALID, 0,
                       "'%s/.carrel/secrets/.key' does not hold a key (remove it and the secrets "
                       "beside it, and set them again)",
                       b->settings.state);
    if (r == 1 && getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
        return err_set(err, ERR_IO, errno, "get random bytes");
    if (r == 1 && write_file(dir, ".key", key, sizeof(key), err) < 0)
        return -1;
    r = seal_public(key, public);
    explicit_bzero(key, sizeof(key));
    if (r < 0)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no X25519");
    bytes_to_hex(public, sizeof(public), b->secrets_public);
    return 0;
}

int secrets_key(const struct broker *b, struct err *err)
{
    scoped_fd int dir = open_secrets(b, err);
    int fd = dir < 0 ? -1 : openat(dir, ".key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 && dir >= 0 ? err_set(err, ERR_IO, errno, "open the key of the secrets") : fd;
}

/* --- the files --- */

/* "OWNER:NAME", cut in two; NULL: it is none. */
static const char *name_in(char *file)
{
    char *colon = strchr(file, ':');

    if (!colon)
        return NULL;
    *colon = '\0';
    return protocol_id_is_valid(file) && network_is_secret(colon + 1) ? colon + 1 : NULL;
}

typedef bool each_secret(void *context, int dir, const char *file, const char *owner,
                         const char *name);

static int for_each(const struct broker *b, each_secret *each, void *context, struct err *err)
{
    scoped_fd int dir = open_secrets(b, err);
    scoped_fd int copy = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *entry;

    if (dir < 0)
        return -1;
    if (!names)
        return err_set(err, ERR_LIMIT, errno, "list the secrets");
    (void)take_fd(&copy); /* it is the stream's */
    bool go_on = true;
    while (go_on && (entry = readdir(names))) { /* one thread; NOLINT(concurrency-mt-unsafe) */
        char file[FILE_NAME] = "";
        size_t n = strlen(entry->d_name);
        if (n < sizeof(file))
            memcpy(file, entry->d_name, n);
        const char *name = name_in(file);
        if (name)
            go_on = each(context, dir, entry->d_name, file, name);
    }
    (void)closedir(names);
    return 0;
}

static bool read_value(int dir, const char *file, char value[SEAL_HEX])
{
    scoped_fd int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, value, SEAL_HEX - 1);

    value[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool tell_one(void *context, int dir, const char *file, const char *owner, const char *name)
{
    struct broker *b = context;
    char value[SEAL_HEX];

    if (read_value(dir, file, value))
        egress_secret(b, owner, name, value);
    return true;
}

void secrets_tell(struct broker *b)
{
    struct err err;

    if (for_each(b, tell_one, b, &err) < 0)
        log_err("secrets_failed", "requests that need one are refused", &err);
}

/* --- requests --- */

struct tally {
    const char *owner;
    size_t own;
    size_t all;
};

static bool count_one(void *context, int dir, const char *file, const char *owner, const char *name)
{
    struct tally *tally = context;

    (void)dir;
    (void)file;
    (void)name;
    tally->all++;
    tally->own += strcmp(owner, tally->owner) == 0;
    return true;
}

static int keep(struct broker *b, const char *owner, const char *name, const char *value,
                struct err *err)
{
    struct tally tally = {.owner = owner};
    char file[FILE_NAME];
    scoped_fd int dir = open_secrets(b, err);

    snprintf(file, sizeof(file), "%s:%s", owner, name);
    if (dir < 0 || for_each(b, count_one, &tally, err) < 0)
        return -1;
    if (faccessat(dir, file, F_OK, 0) < 0 && (tally.own >= MOST_OF_OWNER || tally.all >= MOST))
        return err_set(err, ERR_LIMIT, 0, "an owner has at most %d secrets, and all have %d",
                       MOST_OF_OWNER, MOST);
    return write_file(dir, file, value, strlen(value), err);
}

static int forget(struct broker *b, const char *owner, const char *name, struct err *err)
{
    char file[FILE_NAME];
    scoped_fd int dir = open_secrets(b, err);

    snprintf(file, sizeof(file), "%s:%s", owner, name);
    if (dir < 0)
        return -1;
    if (unlinkat(dir, file, 0) == 0 && fsync(dir) == 0)
        return 0;
    return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, 0,
                                     "there is no secret '%s'; see 'carrel secret ls'", name)
                           : err_set(err, ERR_IO, errno, "remove the secret");
}

bool secret_set(struct broker *b, char *bytes, size_t size)
{
    const char *owner;
    const char *name;
    const char *value;
    struct err err;
    uint64_t tag;

    if (!protocol_unpack_secret(bytes, size, &tag, &owner, &name, &value))
        return false;
    size_t n = strlen(value);
    if (!protocol_id_is_valid(owner) || !network_is_secret(name) || n >= SEAL_HEX ||
        (n > 0 && !bytes_are_hex(value, n)))
        return false;
    int r = n > 0 ? keep(b, owner, name, value, &err) : forget(b, owner, name, &err);
    if (r < 0) {
        channel_send_error(b, tag, &err);
        return true;
    }
    egress_secret(b, owner, name, value);
    channel_send_ok(b, tag);
    return true;
}

struct listing {
    const char *owner;
    struct arena arena;
    const char *flat[2 * MOST_OF_OWNER + 1]; /* name, when it was set, in ms */
    size_t n;
};

static bool list_one(void *context, int dir, const char *file, const char *owner, const char *name)
{
    struct listing *l = context;
    struct stat st;

    if (strcmp(owner, l->owner) != 0 || fstatat(dir, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    const char *copy = arena_copy(&l->arena, name, strlen(name));
    const char *when = arena_printf(&l->arena, "%lld", (long long)st.st_mtim.tv_sec * 1000);
    if (copy && when) {
        l->flat[l->n++] = copy;
        l->flat[l->n++] = when;
    }
    return l->n < (size_t)2 * MOST_OF_OWNER;
}

/* Of pairs: the name is the first. */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool secret_list(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct listing l = {.owner = m->texts[0]};
    scoped_buf struct buf answer;
    struct err err;

    buf_init(&answer, 1UL << 20);
    if (!protocol_id_is_valid(l.owner))
        return false;
    arena_init(&l.arena, 1UL << 20);
    pack_u64(&answer, tag);
    int r = for_each(b, list_one, &l, &err);
    qsort(l.flat, l.n / 2, 2 * sizeof(l.flat[0]), by_name);
    pack_list(&answer, l.flat);
    if (r == 0 && buf_done(&answer) < 0)
        r = err_set(&err, ERR_LIMIT, ENOMEM, "list the secrets");
    if (r < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send(b, ANSWER_NAMES, &answer, NULL, 0);
    arena_clear(&l.arena);
    return true;
}
