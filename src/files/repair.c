/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a tree its owner's again: to read and write, and to search what is a directory. What
 * belongs to another, or has a flag that only a privileged one can lift, stays as it is and is
 * told. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files/core/call.h"

enum {
    LEFT_TOLD = 100,
    FCHMODAT2 = 452, /* Linux 6.6; the same number everywhere */
};

struct repair {
    struct files_call *call;
    uint64_t changed;
    uint64_t left_count;
    struct emit left; /* never sent by itself */
};

static mode_t wanted(const struct stat *st)
{
    mode_t mode = st->st_mode & 07777U;

    if (S_ISDIR(st->st_mode))
        return mode | 0700U;
    return mode | 0600U | (mode & 0111U ? 0100U : 0U);
}

static int change(int dir, const char *name, mode_t mode)
{
    if (syscall(FCHMODAT2, dir, name, mode, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (errno != ENOSYS && errno != EPERM)
        return -errno;
    /* An old kernel, or a filter that does not know the call: a link put there just now would be
     * followed, to something that this user may change anyway. */
    return fchmodat(dir, name, mode, 0) < 0 ? -errno : 0;
}

static void leave(struct repair *r, const char *path, int error)
{
    const char *base = strcmp(r->call->m->path, "/") == 0 ? "" : r->call->m->path;
    const char *code = files_error_code(error, NULL);
    struct buf full;

    if (++r->left_count > LEFT_TOLD)
        return;
    buf_init(&full, 1 << 20);
    buf_str(&full, base);
    buf_str(&full, *path || !*base ? "/" : "");
    buf_str(&full, path);
    if (buf_done(&full) == 0) {
        emit_comma(&r->left);
        emit_raw(&r->left, "{");
        emit_bytes(&r->left, "path", full.p, full.n);
        emit_bytes(&r->left, "code", code, strlen(code));
        emit_raw(&r->left, "}");
    }
    buf_clear(&full);
}

static void repair(struct repair *r, int dir, const char *name, const char *path,
                   const struct stat *st)
{
    if (S_ISLNK(st->st_mode) || wanted(st) == (st->st_mode & 07777U))
        return;
    int error = change(dir, name, wanted(st));
    if (error == -ENOENT)
        return; /* gone meanwhile */
    if (error < 0)
        leave(r, path, -error);
    else
        r->changed++;
}

/* A directory is called for before it is opened: it can be, after this. */
static enum walk_answer on_entry(void *context, const struct tree_entry *entry)
{
    struct repair *r = context;
    char top[FILES_PATH];

    if (r->call->gone)
        return WALK_STOP;
    if (entry->depth == 1 && strcmp(r->call->m->path, "/") == 0 &&
        strlen(entry->name) + 2 <= sizeof(top)) {
        top[0] = '/';
        memcpy(top + 1, entry->name, strlen(entry->name) + 1);
        if (files_check_reserved(top) == -EBUSY)
            return WALK_PAST;
    }
    repair(r, entry->dir, entry->name, entry->path, &entry->st);
    return WALK_ON;
}

static void on_failed(void *context, const char *path, int error)
{
    leave(context, path, error);
}

static void answer(struct repair *r)
{
    struct emit e;

    emit_begin(&e, r->call, false, FILES_TYPE_JSON);
    emit_raw(&e, "{");
    emit_number(&e, "changed", (int64_t)r->changed);
    emit_number(&e, "left_count", (int64_t)r->left_count);
    emit_comma(&e);
    emit_raw(&e, "\"left\":");
    emit_raw(&r->left, "]");
    emit_raw(&e, buf_done(&r->left.b) == 0 ? r->left.b.p : "[]");
    emit_raw(&e, "}");
    emit_finish(&e, 200);
}

void files_repair(struct files_call *call)
{
    struct repair r = {.call = call};
    const char *path = call->m->path;
    struct stat st;

    if (fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        answer_errno(call, errno, path);
        return;
    }
    emit_begin(&r.left, call, false, FILES_TYPE_JSON);
    emit_raw(&r.left, "[");
    if (files_check_reserved(path) == 0)
        repair(&r, AT_FDCWD, path, "", &st);
    int error = S_ISDIR(st.st_mode) ? files_walk(path, UINT_MAX, on_entry, on_failed, &r) : 0;
    if (error < 0 && r.left_count == 0)
        leave(&r, "", -error);
    answer(&r);
    buf_clear(&r.left.b);
}
