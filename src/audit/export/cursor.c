/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "audit/export/export.h"
#include "audit/line.h"
#include "base/fd.h"

#define STATUS "status.json" /* of the daemon's exporter, for its front */
#define DEAD   "dead.jsonl"

#define MOST_DEAD (64L << 20) /* then what is there is kept as one older file, once */

/* What root makes here by hand is to be read by the daemon's exporter, too. */
static void give_to_owner(int dir, int fd)
{
    struct stat st;

    if (geteuid() == 0 && fstat(dir, &st) == 0)
        ignore(fchown(fd, st.st_uid, st.st_gid) == 0); /* else root's */
}

static int write_whole(int dir, const char *name, const char *text, bool sync)
{
    char other[64];

    snprintf(other, sizeof(other), "%s.new", name);
    scoped_fd int fd =
        openat(dir, other, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
    size_t n = strlen(text);
    if (fd >= 0)
        give_to_owner(dir, fd);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n || (sync && fsync(fd) < 0) ||
        renameat(dir, other, dir, name) < 0 || (sync && fsync(dir) < 0))
        return -1;
    return 0;
}

static int open_spool(const struct cursor *c)
{
    return open(c->spool, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int read_cursor(struct cursor *c, int dir, struct err *err)
{
    char text[4096];
    scoped_fd int fd = openat(dir, c->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT ? 0 : err_set(err, ERR_IO, errno, "open '%s/%s'", c->spool, c->name);
    ssize_t n = read(fd, text, sizeof(text));
    json_t *root = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
    const char *target = json_string_value(json_object_get(root, "target"));
    const char *id = json_string_value(json_object_get(root, "id"));
    json_int_t seq = json_integer_value(json_object_get(root, "seq"));
    bool good =
        target && strcmp(target, c->target) == 0 && seq >= 0 && id && strlen(id) < sizeof(c->id);
    if (good) {
        c->seq = (uint64_t)seq;
        c->sent = (uint64_t)json_integer_value(json_object_get(root, "sent"));
        c->dead = (uint64_t)json_integer_value(json_object_get(root, "dead"));
        memcpy(c->id, id, strlen(id) + 1);
    }
    json_decref(root);
    return good ? 0
                : err_set(err, ERR_INVALID, 0,
                          "'%s/%s' is not a cursor (take it away, and everything is sent again, "
                          "under the same ids)",
                          c->spool, c->name);
}

int cursor_open(struct cursor *c, const char *spool, const char *target, const char *more,
                struct err *err)
{
    char text[2048];
    char hash[AUDIT_HEX];

    *c = (struct cursor){.spool = spool, .target = target};
    scoped_fd int dir = open_spool(c);
    if (dir < 0)
        return err_set(err, ERR_IO, errno, "open '%s'", spool);
    snprintf(text, sizeof(text), "%s %s", target, more);
    if (audit_hash(text, strlen(text), hash) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "name a cursor");
    snprintf(c->name, sizeof(c->name), "cursor-%.16s.json", hash);
    return read_cursor(c, dir, err);
}

static char *encode(const struct cursor *c)
{
    json_t *root = json_pack("{s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:s}", "target", c->target, "seq",
                             (json_int_t)c->seq, "id", c->id, "sent", (json_int_t)c->sent, "dead",
                             (json_int_t)c->dead, "retries", (json_int_t)c->retries, "behind_since",
                             (json_int_t)c->behind_since, "error", c->error);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return text;
}

int cursor_save(const struct cursor *c, struct err *err)
{
    char *text = encode(c);
    scoped_fd int dir = open_spool(c);
    bool good = text && dir >= 0 && write_whole(dir, c->name, text, true) == 0;
    int saved = errno;

    free(text);
    if (!good)
        return err_set(err, ERR_IO, saved, "write '%s/%s'", c->spool, c->name);
    cursor_tell(c);
    return 0;
}

void cursor_tell(const struct cursor *c)
{
    char *text = c->is_main ? encode(c) : NULL;
    scoped_fd int dir = text ? open_spool(c) : -1;

    if (dir >= 0)
        ignore(write_whole(dir, STATUS, text, false) == 0); /* for show */
    free(text);
}

int cursor_bury(const struct cursor *c, const struct bulk_item *item, const char *doc,
                struct err *err)
{
    scoped_fd int dir = open_spool(c);
    struct stat st = {0};
    json_t *root = json_pack("{s:s, s:s, s:s, s:s#}", "target", c->target, "id", item->id, "error",
                             item->reason, "document", doc + item->at, (int)item->n);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

    if (dir >= 0 && fstatat(dir, DEAD, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > MOST_DEAD)
        ignore(renameat(dir, DEAD, dir, DEAD ".old") == 0); /* the record has it all */
    scoped_fd int fd =
        dir < 0 ? -1
                : openat(dir, DEAD, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (fd >= 0)
        give_to_owner(dir, fd);
    bool known = fd >= 0 && fstat(fd, &st) == 0;
    bool good = text && known && write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
                write(fd, "\n", 1) == 1 && fdatasync(fd) == 0;
    int saved = errno;
    if (known && !good)
        ignore(ftruncate(fd, st.st_size) == 0); /* it comes again, and would be glued to it */
    free(text);
    json_decref(root);
    return good ? 0 : err_set(err, ERR_IO, saved, "write '%s/" DEAD "'", c->spool);
}
