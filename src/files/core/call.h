/* SPDX-License-Identifier: Apache-2.0 */
/* One call inside the file server, in a thread of its own: what is asked, and how it is answered.
 * The root of this process is the root of the sandbox: paths and links mean what they mean there.
 * Calls block as long as they like; a client that has left shows as a failed write.
 *
 *   dispatch (serve.c) --> files_read, files_write, ... --> answer_*   exactly one answer each */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"
#include "policy/glob.h"
#include "protocol/files.h"
#include "sys/tree_walk.h"

struct files_call {
    const struct files_message *m;
    int stream;
    int hidden;    /* a directory on the mount of the root that nobody inside sees, for files that
                      are not whole yet; -1: there is none */
    int replaced;  /* holds a file that another took the place of: the file system frees it when the
                      answer is out; -1 */
    bool asleep;   /* no sandbox: what fails is passed on, see protocol/files_asleep.h */
    bool answered; /* the head has been sent */
    bool pieces;   /* ... and the body has no size */
    bool gone;     /* the client has disconnected or the stream failed; stop working */
    uint32_t body_left; /* bytes of the piece of the body that is being read */
    bool body_ended;    /* well */
};

/* --- reading the body (body.c), out of its pieces */
/* >0 bytes, 0 at the good end, -EPIPE: it was broken off. */
ssize_t body_read(struct files_call *call, void *bytes, size_t size);
/* Exactly n: 0, or -EPIPE when it ends before. */
int body_exactly(struct files_call *call, void *bytes, size_t n);
/* For what takes long without a word to the client: whether it has left meanwhile. */
bool files_client_left(struct files_call *call);

/* --- answering */
/* The table errno -> status, code: ENOENT 404 file_not_found, EACCES and EPERM 403
 * permission_denied, EISDIR 409 is_directory, ENOTDIR 409 not_a_directory, ENAMETOOLONG, EINVAL and
 * ELOOP 400 invalid_path, EEXIST 409 already_exists, ENOTEMPTY 409 not_empty, ENOSPC and EDQUOT 507
 * disk_full, EROFS 403 read_only, EBUSY 409 reserved, EAGAIN (a lease) 423 locked, EFBIG 413
 * too_large, ETXTBSY 409 busy, EXDEV 409 cross_device, EPIPE 400 incomplete_body, ECANCELED 412
 * precondition_failed, ESTALE 409 changed, others 500 io_error.  */
void answer_errno(struct files_call *call, int error, const char *path);
/* With a code and a sentence of its own. */
void answer_error(struct files_call *call, unsigned status, const char *code, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));
/* 204, nothing more. */
void answer_empty(struct files_call *call);
/* The head; after it the body: exactly head->size bytes by answer_bytes and answer_file, or, of
 * unknown size, pieces by these and answer_end. False: the client has gone. */
bool answer_begin(struct files_call *call, const struct files_head *head);
bool answer_bytes(struct files_call *call, const void *bytes, size_t n);
/* Head and all of its body, head->size bytes, at once. */
bool answer_whole(struct files_call *call, const struct files_head *head, const void *bytes);
/* Of a regular file, n bytes from `from`, by the kernel where it can. A file that has become
 * shorter cuts the answer off. */
bool answer_file(struct files_call *call, int fd, uint64_t from, uint64_t n);
/* The head, and so many bytes of a file as it says; a small one at once, or, when it has become
 * shorter, not at all. */
bool answer_whole_file(struct files_call *call, const struct files_head *head, int fd,
                       uint64_t from);
void answer_end(struct files_call *call);

/* --- JSON out (emit.c): gathers, and sends what is gathered when there is much of it */
struct emit {
    struct files_call *call;
    struct buf b;
    bool streamed; /* pieces of unknown size; else all is kept and sent with its size */
    enum files_type type;
    char last;   /* the last character, to know where a comma goes */
    int64_t day; /* of the last time that was told */
    char day_name[32];
    size_t day_n; /* 0: none was */
};

/* Of unknown size: the head is sent now. Otherwise emit_finish sends one with the size. */
void emit_begin(struct emit *e, struct files_call *call, bool streamed, enum files_type type);
void emit_raw(struct emit *e, const char *json);                    /* as it is */
void emit_number(struct emit *e, const char *name, int64_t number); /* "name":number */
/* "name":"text" where the bytes are UTF-8 without NUL; else "name_b64":"…" */
void emit_bytes(struct emit *e, const char *name, const void *bytes, size_t n);
/* The same as a value without a key: "text", or {"b64":"…"}. */
void emit_value(struct emit *e, const void *bytes, size_t n);
/* Between members: a comma unless an object or list has just begun. Called by all of the above
 * that write a key. */
void emit_comma(struct emit *e);
/* Whether it is still worth going on. */
bool emit_alive(struct emit *e);
void emit_finish(struct emit *e, unsigned status);
/* {"path":…,"type":"file|directory|symlink|fifo|socket|device","size":…,"mode":"0644",
 * "uid":…,"gid":…,"mtime":…,"etag":…(files),"target":…(links)}: the same for stat, lists, and all
 * that speak of a file. */
/* The uid of the tree's owner on the host, where the host's are seen: told as the user's inside. */
void emit_own_id(uint64_t id);
void emit_entry(struct emit *e, const char *path, const struct stat *st, const char *link_target);
/* Without the braces, for entries with more to say. */
void emit_entry_members(struct emit *e, const char *path, const struct stat *st,
                        const char *link_target);
/* {"path":…,"type":…,"error":…} for what was not looked at, or cannot be; 0: of no known type, of
 * no error. */
void emit_unlooked(struct emit *e, const char *path, mode_t type, int error);
/* The code of answer_errno's table, and its sentence. */
const char *files_error_code(int error, const char **ret_words);

/* --- shared by the operations */
/* Device, inode, size and times: changes whenever the content does. With its quotes. */
void files_etag(const struct stat *st, char etag[FILES_ETAG]);
/* Opens for reading without waiting for anybody: O_NONBLOCK, not a FIFO, device or socket
 * (-ENXIO, told as 409 not_a_file). `links`: follow the last one. fd or -errno. */
int files_open(const char *path, bool links, struct stat *ret);
/* -EBUSY for what Carrel provides itself and mounts things on: "/usr", "/proc", … and "/" itself.
 * Below them the kernel answers. */
int files_check_reserved(const char *path);

/* The operations, one function each; each answers. */
typedef void files_operation(struct files_call *call);
files_operation files_read, files_text, files_stat, files_list, files_write, files_append,
    files_edit, files_remove, files_move, files_copy, files_mkdir, files_chmod, files_symlink,
    files_glob, files_grep, files_watch, files_inventory, files_batch_read, files_batch_write,
    files_pack_tree, files_unpack_tree, files_repair, files_connect;

/* new.c: a file that is written as a whole: write to fd between begin and commit. `dirs`:
 * directories that are to be synced once all is done (NULL: at once). A link at the end of the path
 * is followed, as a shell's ">" does; what is there must be a regular file that may be written to,
 * or nothing. */
struct dirty;

struct files_new {
    int fd;
    int dir;         /* where it comes to be, */
    char name[256];  /* under this name */
    int at;          /* where it is until then: dir, or call->hidden */
    char temp[48];   /* ... and its name there; "": none yet */
    bool replaces;   /* something, when it was begun: */
    struct stat old; /* that */
    int held;        /* ... while its place is taken; -1 */
    /* "" or as in a request; to be set before the commit, which fails with -ECANCELED. */
    const char *if_match;
    const char *if_none_match;
    struct stat st; /* after the commit */
};

int files_new_begin(struct files_call *call, const char *path, uint64_t mode, bool parents,
                    struct files_new *ret);
/* Syncs it, gives it its name (in the place of what is there), syncs the directory: or all that
 * with `dirs`, later. On failure as files_new_abort. */
int files_new_commit(struct files_call *call, struct files_new *new, struct dirty *dirs);
void files_new_abort(struct files_new *new);
struct dirty *dirty_new(void);
int dirty_sync(struct dirty *dirs); /* and frees it */

/* walk.c: every entry below a directory, as sys/tree_walk.h has them, with `st` and in order. */
enum walk_answer {
    WALK_ON,
    WALK_PAST /* not into this directory */,
    WALK_STOP
};

/* 0, 1 stopped, -errno for the beginning; what cannot be read further down is told by `failed`
 * (may be NULL) and passed over. */
int files_walk(const char *path, unsigned depth,
               enum walk_answer (*each)(void *, const struct tree_entry *),
               void (*failed)(void *, const char *path, int error), void *context);
