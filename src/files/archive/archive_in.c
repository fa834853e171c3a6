/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking. What the archive says is only believed where it can do no harm: see landing.h. Refused
 * entries are told and passed over; an archive that is malformed, lies about its sizes or grows
 * without measure ends the call, and so does anything the file system refuses. Files that were
 * whole by then stay: each of them is one that was asked for, and complete. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <iconv.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "files/archive/archive.h"
#include "files/archive/landing.h"

enum {
    READ = 1 << 16,
    FILTERS = 2, /* one kind of compression, and none */
    HEAVY = 4,   /* calls at a time whose decompression takes much memory */
};

struct tar {
    struct landing *p;
    struct archive *a;
    uint64_t in;
    int error; /* of the body */
    unsigned char bytes[READ];
};

/* Names are told apart by bytes: libarchive asks for a conversion only to find that there is none.
 * Its tables are read before this process is where they could be anybody's. */
void files_archive_prepare(void)
{
    iconv_t none = iconv_open("ANSI_X3.4-1968", "UTF-8");

    if (none != (iconv_t)-1)
        (void)iconv_close(none);
}

static la_ssize_t feed(struct archive *a, void *context, const void **ret)
{
    struct tar *t = context;
    ssize_t n = body_read(t->p->call, t->bytes, sizeof(t->bytes));

    if (n < 0) {
        t->error = (int)n;
        archive_set_error(a, EIO, "the body ended early");
        return -1;
    }
    t->in += (uint64_t)n;
    *ret = t->bytes;
    return n;
}

/* What libarchive could not go on with. */
static int broken(struct tar *t)
{
    const char *words = archive_error_string(t->a);

    if (t->error)
        return t->error;
    if (archive_errno(t->a) == ENOMEM)
        return -ENOMEM;
    return landing_fail(t->p, -EBADMSG, words && *words ? words : "it ends early");
}

/* All bytes of an entry, to the file if there is one. */
static int take_data(struct tar *t, bool write, uint64_t size)
{
    const void *bytes;
    la_int64_t at;
    uint64_t end = 0;
    size_t n;
    int r;

    while ((r = archive_read_data_block(t->a, &bytes, &n, &at)) == ARCHIVE_OK) {
        if (at < 0 || (uint64_t)at < end || (uint64_t)at > size || n > size - (uint64_t)at)
            return landing_fail(t->p, -EBADMSG, "an entry has more bytes than it says");
        end = (uint64_t)at + n;
        r = landing_ratio(t->p, t->in, (uint64_t)archive_filter_bytes(t->a, 0));
        if (r == 0 && write && n > 0)
            r = landing_write(t->p, bytes, n, (uint64_t)at);
        if (r < 0)
            return r;
    }
    return r == ARCHIVE_EOF ? 0 : broken(t);
}

static int take_file(struct tar *t, struct archive_entry *entry, const char *path,
                     const struct landing_stamp *stamp)
{
    uint64_t size = (uint64_t)archive_entry_size(entry);
    bool holes = archive_entry_sparse_count(entry) > 0;

    if (path[0] == '\0' || archive_entry_size(entry) < 0)
        return landing_fail(t->p, -EBADMSG, "an entry has no name or no size");
    int r = landing_file(t->p, path, holes ? 0 : size);
    if (r < 0)
        return r;
    if (r > 0)
        return take_data(t, false, size);
    r = take_data(t, true, size);
    if (r < 0)
        landing_file_drop(t->p);
    return r < 0 ? r : landing_file_end(t->p, size, stamp);
}

static int take_hardlink(struct tar *t, const char *path, const char *target)
{
    char clean[FILES_PATH];
    const char *why = landing_name(t->p, target, strlen(target), clean);

    if (why) {
        landing_skip(t->p, path, strlen(path), "a hard link to what the archive has not unpacked");
        return 0;
    }
    return landing_hardlink(t->p, path, clean);
}

static int take_named(struct tar *t, struct archive_entry *entry, const char *path)
{
    struct landing_stamp stamp = {
        .mode = archive_entry_perm(entry),
        .timed = archive_entry_mtime_is_set(entry) != 0,
        .mtime = {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)},
    };
    const char *link = archive_entry_hardlink(entry);

    if (link)
        return take_hardlink(t, path, link);
    if (archive_entry_xattr_count(entry) > 0 || archive_entry_acl_types(entry) != 0)
        landing_skip(t->p, path, strlen(path), "its extended attributes are left out");
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return take_file(t, entry, path, &stamp);
    case AE_IFDIR:
        return landing_directory(t->p, path, &stamp);
    case AE_IFLNK:
        link = archive_entry_symlink(entry);
        return landing_symlink(t->p, path, link ? link : "", &stamp);
    default:
        landing_skip(t->p, path, strlen(path), "it is a pipe, a socket or a device");
        return 0;
    }
}

static int take_entry(struct tar *t, struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);
    char clean[FILES_PATH];
    int r = landing_entry(t->p);

    if (r < 0)
        return r;
    if (!name)
        name = "";
    const char *why = landing_name(t->p, name, strlen(name), clean);
    if (why)
        landing_skip(t->p, name, strlen(name), why);
    else
        r = take_named(t, entry, clean);
    /* What has not been read of it is read here, and so counted. */
    return r < 0 ? r : take_data(t, false, INT64_MAX);
}

static int take_all(struct tar *t)
{
    struct archive_entry *entry;

    for (;;) {
        int r = archive_read_next_header(t->a, &entry);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
            return broken(t);
        r = landing_ratio(t->p, t->in, (uint64_t)archive_filter_bytes(t->a, 0));
        if (r == 0)
            r = take_entry(t, entry);
        if (r < 0)
            return r;
    }
}

/* Those that are built in; for the others libarchive would start programs. */
static bool prepare(struct archive *a)
{
    static int (*const filters[])(struct archive *) = {
        archive_read_support_filter_gzip,
        archive_read_support_filter_xz,
        archive_read_support_filter_zstd,
    };

    if (archive_read_support_format_tar(a) != ARCHIVE_OK)
        return false;
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        if (filters[i](a) != ARCHIVE_OK)
            return false;
    }
    return true;
}

static int read_tar(struct tar *t)
{
    static atomic_int heavy;
    int r = archive_read_open(t->a, t, NULL, feed, NULL);

    if (r != ARCHIVE_OK)
        return broken(t);
    if (archive_filter_count(t->a) > FILTERS)
        return landing_fail(t->p, -EBADMSG, "it is compressed more than once");
    int code = archive_filter_code(t->a, 0);
    if (code != ARCHIVE_FILTER_XZ && code != ARCHIVE_FILTER_ZSTD)
        return take_all(t);
    if (atomic_fetch_add(&heavy, 1) < HEAVY)
        r = take_all(t);
    else
        r = landing_fail(t->p, -EUSERS, "others like it are being unpacked");
    (void)atomic_fetch_sub(&heavy, 1);
    return r;
}

int unpack_tar(struct landing *p)
{
    struct tar *t = calloc(1, sizeof(*t));
    struct archive *a = archive_read_new();
    int r = -ENOMEM;

    if (t && a && prepare(a)) {
        t->p = p;
        t->a = a;
        r = read_tar(t);
    }
    (void)archive_read_free(a);
    free(t);
    return r;
}

/* What stands behind the archive: blocks of zeros, usually. A body that was cut off shows here. */
static int read_rest(struct files_call *call)
{
    char bytes[8192];
    ssize_t n;

    do {
        n = body_read(call, bytes, sizeof(bytes));
    } while (n > 0);
    return (int)n;
}

static void answer(struct landing *p)
{
    struct emit e;

    emit_begin(&e, p->call, false, FILES_TYPE_JSON);
    emit_raw(&e, "{");
    emit_number(&e, "files", (int64_t)p->n_files);
    emit_number(&e, "directories", (int64_t)p->n_directories);
    emit_number(&e, "links", (int64_t)p->n_links);
    emit_number(&e, "bytes", (int64_t)p->bytes);
    emit_number(&e, "skipped_count", (int64_t)p->n_skipped);
    emit_comma(&e);
    emit_raw(&e, "\"skipped\":");
    emit_raw(&p->skipped, "]");
    emit_raw(&e, buf_done(&p->skipped.b) == 0 ? p->skipped.b.p : "[]");
    emit_raw(&e, "}");
    emit_finish(&e, 200);
}

static void answer_failure(struct landing *p, int error)
{
    switch (error) {
    case -EBADMSG:
        answer_error(p->call, 400, "invalid_archive", "the archive cannot be read: %s", p->words);
        break;
    case -E2BIG:
        answer_error(p->call, 413, "too_large", "the archive is not unpacked: %s", p->words);
        break;
    case -EUSERS:
        answer_error(p->call, 503, "unavailable",
                     "the archive cannot be unpacked now: %s; try again, or send it as gzip",
                     p->words);
        break;
    case -EPIPE:
        answer_error(p->call, 400, "incomplete_body", "the body ended before the archive did");
        break;
    default:
        answer_errno(p->call, error, p->failed_path[0] ? p->failed_path : p->call->m->path);
    }
}

void files_unpack_tree(struct files_call *call)
{
    struct landing *p = calloc(1, sizeof(*p)); /* large for the stack of a thread */

    if (!p) {
        answer_errno(call, ENOMEM, call->m->path);
        return;
    }
    int r = landing_begin(p, call);
    if (r == 0)
        r = call->m->flags & FILES_ZIP ? unpack_zip(p) : unpack_tar(p);
    if (r == 0)
        r = read_rest(call);
    if (r == 0)
        r = landing_finish(p);
    else if (p->dest >= 0)
        (void)landing_flush(p); /* files that are whole get their names */
    if (r < 0)
        answer_failure(p, r);
    else
        answer(p);
    landing_clear(p);
    free(p);
}
