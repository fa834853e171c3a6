/* SPDX-License-Identifier: Apache-2.0 */
/* DIR: who owns what in it, the lock that keeps a second daemon out, and the admin key.
 *
 *                        as root                       rootless
 *   DIR                  root, 0711                    ours, 0700
 *   DIR/db, DIR/execs    the front's, 0700             ours, 0700
 *   DIR/audit            root, group the front's, 0750 ours, 0700
 *   DIR/heads, export    the sink's, the exporter's, group the front's, 0750
 *   DIR/sink             the sink's, 0700              ours, 0700
 *   DIR/<bucket>         root, 0711                    ours, 0700
 *   .../threads, .carrel root, 0700                    ours, 0700
 *   DIR/.carrel          root, 0700                    ours, 0700
 *   .../skills           root, 0755                    ours, 0700
 *   DIR/admin.key, lock  root, 0600                    ours, 0600
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fd.h"
#include "broker/broker.h"
#include "broker/state.h"
#include "sys/path.h"

enum {
    LOCK_TRIES = 40,
    LOCK_PAUSE_MS = 50,
    KEY_BYTES = 32,
    KEY_TEXT = 3 + 52, /* "ck_" and base 32 */
};

static bool has_two_users(const struct broker *b)
{
    return b->front_uid != geteuid();
}

enum whose {
    OURS,
    FRONTS,
    SINKS,
    EXPORTERS,
};

struct state_entry {
    const char *name;
    mode_t shared; /* as root */
    enum whose whose;
    bool group; /* only its group is the front's */
};

/* What was made elsewhere and taken in keeps its owner; only what lets others further in than here
 * is taken away. */
static int set_rights(const struct broker *b, int fd, const struct state_entry *place, bool made)
{
    const uid_t uids[] = {[OURS] = geteuid(),
                          [FRONTS] = b->front_uid,
                          [SINKS] = b->sink_uid,
                          [EXPORTERS] = b->export_uid};
    uid_t uid = uids[place->whose];
    gid_t gid = place->whose != OURS || place->group ? b->front_gid : getegid();
    mode_t mode = has_two_users(b) ? place->shared : 0700;
    bool exactly = made || place->whose != OURS || place->group;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -1;
    if (exactly && has_two_users(b) && (st.st_uid != uid || st.st_gid != gid) &&
        fchown(fd, uid, gid) < 0)
        return -1;
    if (!exactly)
        mode = st.st_mode & (0700 | mode);
    return (st.st_mode & 07777) == mode ? 0 : fchmod(fd, mode);
}

static int open_dir(const struct broker *b, int above, const struct state_entry *place,
                    struct err *err)
{
    bool made = mkdirat(above, place->name, 0700) == 0;

    if (!made && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make '%s' in the state directory", place->name);
    scoped_fd int fd = path_open_beneath(above, place->name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open '%s' in the state directory", place->name);
    if (set_rights(b, fd, place, made) < 0)
        return err_set(err, ERR_IO, errno, "set owner and mode of '%s' in the state directory",
                       place->name);
    return take_fd(&fd);
}

int state_make_bucket(const struct broker *b, const char *bucket, struct err *err)
{
    static const struct state_entry threads = {"threads", 0700, OURS, false};
    static const struct state_entry skills = {"skills", 0755, OURS, false};
    static const struct state_entry own = {".carrel", 0700, OURS, false};
    static const struct state_entry trash = {"trash", 0700, OURS, false};
    struct state_entry place = {bucket, 0711, OURS, false};
    scoped_fd int top = open_dir(b, b->state, &place, err);
    scoped_fd int threads_fd = top < 0 ? -1 : open_dir(b, top, &threads, err);
    scoped_fd int skills_fd = threads_fd < 0 ? -1 : open_dir(b, top, &skills, err);
    scoped_fd int own_fd = skills_fd < 0 ? -1 : open_dir(b, top, &own, err);
    scoped_fd int trash_fd = own_fd < 0 ? -1 : open_dir(b, own_fd, &trash, err);

    return trash_fd < 0 ? -1 : 0;
}

/* What is in the lock is the pid of who holds it, or of who was killed holding it. */
static int take_lock(struct broker *b, struct err *err)
{
    char pid[32] = "";
    scoped_fd int fd = openat(b->state, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_set(err, ERR_IO, errno, "open the lock of '%s'", b->settings.state);
    int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
    /* A process that a killed broker was just starting has it until it is killed, too. */
    for (int i = 0; r == EWOULDBLOCK && i < LOCK_TRIES; i++) {
        (void)poll(NULL, 0, LOCK_PAUSE_MS);
        r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
    }
    ignore(read(fd, pid, sizeof(pid) - 1) >= 0); /* "" then */
    pid[strspn(pid, "0123456789")] = '\0';
    if (r == EWOULDBLOCK)
        return err_set(err, ERR_CONFLICT, 0, "another carrel serve (pid %s) uses '%s'",
                       *pid ? pid : "unknown", b->settings.state);
    if (r)
        return err_set(err, ERR_IO, r, "lock '%s'", b->settings.state);
    b->was_killed = *pid != '\0';
    int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    /* Never empty, and on disk: who is killed at this point, or loses power, has not stopped. */
    if (pwrite(fd, pid, (size_t)n, 0) != n || ftruncate(fd, n) < 0 || fsync(fd) < 0)
        return err_set(err, ERR_IO, errno, "write the lock of '%s'", b->settings.state);
    b->lock = take_fd(&fd);
    return 0;
}

void state_close(struct broker *b, bool stopped)
{
    /* A start that was refused says what the one before has said. If this fails, the next one
     * believes that we were killed. */
    if (b->lock >= 0 && (stopped || (!b->was_killed && !b->began)))
        ignore(ftruncate(b->lock, 0) == 0);
    scope_close(&b->lock);
    scope_close(&b->state);
}

static void base32(const unsigned char *bytes, size_t n, char *text)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned held = 0;
    unsigned bits = 0;

    for (size_t i = 0; i < n; i++) {
        held = held << 8 | bytes[i];
        for (bits += 8; bits >= 5; bits -= 5)
            *text++ = digits[held >> (bits - 5) & 31];
    }
    if (bits)
        *text++ = digits[held << (5 - bits) & 31];
    *text = '\0';
}

/* Whole or not at all: under another name first. */
static int make_key(const struct broker *b, char key[KEY_TEXT + 2], struct err *err)
{
    unsigned char bytes[KEY_BYTES];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return err_set(err, ERR_IO, errno, "get random bytes for the admin key");
    memcpy(key, "ck_", 3);
    base32(bytes, sizeof(bytes), key + 3);
    explicit_bzero(bytes, sizeof(bytes));
    key[KEY_TEXT] = '\n';
    key[KEY_TEXT + 1] = '\0';
    ignore(unlinkat(b->state, "admin.key.new", 0) == 0); /* of a start that was interrupted */
    scoped_fd int fd =
        openat(b->state, "admin.key.new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, key, KEY_TEXT + 1) != KEY_TEXT + 1 || fsync(fd) < 0 ||
        renameat(b->state, "admin.key.new", b->state, "admin.key") < 0 || fsync(b->state) < 0)
        return err_set(err, ERR_IO, errno, "write the admin key");
    return 0;
}

/* 1: there is none. */
static int read_key(const struct broker *b, char key[KEY_TEXT + 2], struct err *err)
{
    struct stat st;
    scoped_fd int fd = openat(b->state, "admin.key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return 1;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "open the admin key");
    if (st.st_uid != geteuid() || (st.st_mode & 077))
        return err_set(err, ERR_DENIED, 0,
                       "'%s/admin.key' can be read or written by others (chown and chmod 600 it; "
                       "or remove it, and a new one is made)",
                       b->settings.state);
    ssize_t n = read(fd, key, KEY_TEXT + 1);
    key[n > 0 ? n : 0] = '\0';
    if (n < KEY_TEXT || strncmp(key, "ck_", 3) != 0 ||
        strspn(key + 3, "abcdefghijklmnopqrstuvwxyz234567") != KEY_TEXT - 3)
        return err_set(err, ERR_INVALID, 0,
                       "'%s/admin.key' does not hold a key (remove it, and a new one is made)",
                       b->settings.state);
    return 0;
}

/* The broker keeps the hash only, and hands only that on. */
static int open_key(struct broker *b, struct err *err)
{
    char key[KEY_TEXT + 2];
    int r = read_key(b, key, err);

    if (r == 1)
        r = make_key(b, key, err);
    if (r < 0)
        return -1;
    _Static_assert(sizeof(b->admin_hash) == DIGEST_HEX, "a hash is a SHA-256");
    r = digest_hex(key, KEY_TEXT, b->admin_hash);
    explicit_bzero(key, sizeof(key));
    return r < 0 ? err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no SHA-256") : 0;
}

/* A key must not be readable by the way of a directory that others can write. */
static int check_top(struct broker *b, struct stat *ret, struct err *err)
{
    if (fstat(b->state, ret) < 0)
        return err_set(err, ERR_IO, errno, "look at '%s'", b->settings.state);
    if (ret->st_uid != geteuid() && !(geteuid() == 0 && has_two_users(b)))
        return err_set(err, ERR_DENIED, 0, "'%s' belongs to another user", b->settings.state);
    if (ret->st_mode & 022)
        return err_set(err, ERR_DENIED, 0,
                       "'%s' can be written by others (chmod go-w it, or take another directory)",
                       b->settings.state);
    mode_t mode = (ret->st_mode & 07777) | (has_two_users(b) ? 0111 : 0);
    if (mode != (ret->st_mode & 07777) && fchmod(b->state, mode) < 0)
        return err_set(err, ERR_IO, errno, "let the front into '%s'", b->settings.state);
    return 0;
}

/* What of the way there is missing; a directory that cannot be made is told by the next step. */
static void make_parents(const char *path)
{
    char part[PATH_MAX];

    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        size_t n = (size_t)(at - path);
        if (n >= sizeof(part))
            return;
        memcpy(part, path, n);
        part[n] = '\0';
        ignore(mkdir(part, 0755) == 0);
    }
}

static int open_top(struct broker *b, struct err *err)
{
    char real[PATH_MAX];
    const char *path = b->settings.state;

    make_parents(path);
    if (mkdir(path, has_two_users(b) ? 0711 : 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the state directory '%s'", path);
    b->state = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->state < 0)
        return err_set(err, ERR_IO, errno, "open the state directory '%s'", path);
    int r = path_of_fd(b->state, real, sizeof(real));
    if (r < 0 || strlen(real) >= sizeof(b->settings.state))
        return err_set(err, ERR_IO, r < 0 ? -r : ENAMETOOLONG, "find the path of '%s'", path);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (*path == '/' && n > 1)
        snprintf(b->state_named, sizeof(b->state_named), "%.*s", (int)n, path);
    else
        snprintf(b->state_named, sizeof(b->state_named), "%s", real);
    memcpy(b->settings.state, real, strlen(real) + 1);
    return 0;
}

int state_open(struct broker *b, struct err *err)
{
    static const struct state_entry places[] = {
        {"db", 0700, FRONTS, false},   {"execs", 0700, FRONTS, false},
        {"audit", 0750, OURS, true},   {"heads", 0750, SINKS, false},
        {"sink", 0700, SINKS, false},  {"export", 0750, EXPORTERS, false},
        {".carrel", 0700, OURS, false}};
    struct stat st;

    if (open_top(b, err) < 0 || check_top(b, &st, err) < 0 || take_lock(b, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        scoped_fd int fd = open_dir(b, b->state, &places[i], err);
        if (fd < 0)
            return -1;
    }
    bool not_ours = st.st_uid != 0 || !has_two_users(b);
    b->owner_uid = b->settings.owner_uid >= 0 ? (uid_t)b->settings.owner_uid
                   : not_ours                 ? st.st_uid
                                              : b->front_uid;
    b->owner_gid = b->settings.owner_uid >= 0 ? (gid_t)b->settings.owner_uid
                   : not_ours                 ? st.st_gid
                                              : b->front_gid;
    if (state_make_bucket(b, b->settings.bucket, err) < 0)
        return -1;
    return open_key(b, err);
}
