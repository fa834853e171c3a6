/* SPDX-License-Identifier: Apache-2.0 */
/* A literal replacement in a text file: read, replaced, and put in place of what was read, if that
 * is what is still there; else all again. Line endings stay what they are in the file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"

enum {
    MOST = 64 << 20, /* bytes of the file, of what is replaced, and of what comes out */
    TRIES = 64,      /* against eight who edit the same, nobody ever needs so many */
};

struct text {
    char *p;
    size_t n;
};

struct edit {
    struct text old;
    struct text by;
    struct text file;
    size_t count;
    struct stat st; /* of the file that was read */
};

static void text_free(struct text *text)
{
    free(text->p);
    *text = (struct text){0};
}

/* --- line endings --- */

static size_t count_bytes(const struct text *text, char c)
{
    size_t count = 0;

    for (size_t i = 0; i < text->n; i++)
        count += text->p[i] == c;
    return count;
}

/* Every LF as CRLF, or every CRLF as LF. */
static int with_endings(const struct text *text, bool crlf, struct text *ret)
{
    char *to = malloc(text->n + (crlf ? count_bytes(text, '\n') : 0) + 1);
    size_t n = 0;

    if (!to)
        return -ENOMEM;
    for (size_t i = 0; i < text->n; i++) {
        bool ends = text->p[i] == '\n';
        bool has_cr = ends && i > 0 && text->p[i - 1] == '\r';
        if (ends && crlf && !has_cr)
            to[n++] = '\r';
        if (has_cr && !crlf)
            n--;
        to[n++] = text->p[i];
    }
    *ret = (struct text){to, n};
    return 0;
}

/* Whether all its lines end with CRLF. */
static bool is_crlf(const struct text *text)
{
    size_t count = 0;

    for (size_t i = 0; i < text->n; i++) {
        if (text->p[i] != '\n')
            continue;
        if (i == 0 || text->p[i - 1] != '\r')
            return false;
        count++;
    }
    return count > 0;
}

/* --- finding --- */

static size_t count_hits(const struct text *in, const struct text *what)
{
    size_t count = 0;
    const char *end = in->p + in->n;

    for (const char *at = in->p; (at = memmem(at, (size_t)(end - at), what->p, what->n));
         at += what->n)
        count++;
    return count;
}

/* Both in the form in which the first is in the file. */
static int use_endings(struct edit *edit, bool crlf)
{
    struct text old = {0};
    struct text by = {0};
    int r = with_endings(&edit->old, crlf, &old);

    if (r == 0)
        r = with_endings(&edit->by, crlf, &by);
    if (r < 0) {
        text_free(&old);
        return r;
    }
    text_free(&edit->old);
    text_free(&edit->by);
    edit->old = old;
    edit->by = by;
    return 0;
}

static int find(struct edit *edit)
{
    edit->count = count_hits(&edit->file, &edit->old);
    if (edit->count > 0) {
        /* What has no line ending itself brings in those of the file. */
        bool foreign = count_bytes(&edit->old, '\n') == 0 && count_bytes(&edit->by, '\n') > 0;
        return foreign && is_crlf(&edit->file) ? use_endings(edit, true) : 0;
    }
    for (int crlf = 1; crlf >= 0 && edit->count == 0; crlf--) {
        int r = use_endings(edit, crlf);
        if (r < 0)
            return r;
        edit->count = count_hits(&edit->file, &edit->old);
    }
    return 0;
}

/* --- reading and writing --- */

static int read_file(const char *path, struct edit *edit)
{
    scoped_fd int fd = files_open(path, true, &edit->st);
    size_t n = 0;

    if (fd < 0)
        return fd;
    if (S_ISDIR(edit->st.st_mode))
        return -EISDIR;
    if (edit->st.st_size > MOST)
        return -EFBIG;
    size_t size = (size_t)edit->st.st_size;
    edit->file.p = malloc(size + 1);
    if (!edit->file.p)
        return -ENOMEM;
    while (n < size) {
        ssize_t got = pread(fd, edit->file.p + n, size - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    edit->file.n = n;
    return 0;
}

static int write_replaced(int fd, const struct edit *edit)
{
    const char *at = edit->file.p;
    const char *end = at + edit->file.n;
    int r = 0;

    while (r == 0) {
        const char *hit = memmem(at, (size_t)(end - at), edit->old.p, edit->old.n);
        r = files_write_all(fd, at, (size_t)((hit ? hit : end) - at));
        if (!hit)
            break;
        if (r == 0)
            r = files_write_all(fd, edit->by.p, edit->by.n);
        at = hit + edit->old.n;
    }
    return r;
}

/* Of what it would be, without making it. */
static bool is_too_large(const struct edit *edit)
{
    size_t added;

    return __builtin_mul_overflow(edit->count, edit->by.n, &added) ||
           __builtin_add_overflow(added, edit->file.n - edit->count * edit->old.n, &added) ||
           added > MOST;
}

static int replace(struct files_call *call, const struct edit *edit, struct stat *ret)
{
    struct files_new new;
    char etag[FILES_ETAG];
    int r = files_new_begin(call, call->m->path, FILES_MOST, false, &new);

    if (r < 0)
        return r;
    files_etag(&edit->st, etag);
    new.if_match = etag; /* what was read, and nothing else */
    r = write_replaced(new.fd, edit);
    if (r < 0)
        files_new_abort(&new);
    else
        r = files_new_commit(call, &new, NULL);
    if (r == 0)
        *ret = new.st;
    return r;
}

/* 0, 1 answered already, -errno. */
static int edit_once(struct files_call *call, struct edit *edit, struct stat *ret)
{
    const struct files_message *m = call->m;
    int r = read_file(m->path, edit);

    if (r < 0)
        return r;
    if (m->if_match[0] && !files_etag_is(m->if_match, &edit->st)) {
        answer_errno(call, ECANCELED, m->path);
        return 1;
    }
    if (memchr(edit->file.p, '\0', edit->file.n)) {
        answer_error(call, 409, "not_a_text_file", "there are NUL bytes in it: not a text file");
        return 1;
    }
    r = find(edit);
    if (r < 0)
        return r;
    if (edit->count == 0) {
        answer_error(call, 409, "string_not_found", "String not found in file");
        return 1;
    }
    if (edit->count > 1 && !(m->flags & FILES_ALL)) {
        answer_error(call, 409, "multiple_occurrences",
                     "the string appears multiple times (%zu): give more of what is around it, or "
                     "ask for all to be replaced",
                     edit->count);
        return 1;
    }
    return is_too_large(edit) ? -EFBIG : replace(call, edit, ret);
}

static int take_text(struct files_call *call, size_t n, struct text *ret)
{
    ret->p = malloc(n + 1);
    ret->n = n;
    return ret->p ? body_exactly(call, ret->p, n) : -ENOMEM;
}

/* The rest of the body, however long. */
static int take_rest(struct files_call *call, struct text *ret)
{
    struct buf b;
    char bytes[16384];
    ssize_t n;

    buf_init(&b, MOST);
    while ((n = body_read(call, bytes, sizeof(bytes))) > 0)
        buf_add(&b, bytes, (size_t)n);
    if (n < 0 || buf_done(&b) < 0) {
        buf_clear(&b);
        return n < 0 ? (int)n : -EFBIG;
    }
    *ret = (struct text){b.p, b.n}; /* a buf's bytes are from malloc, and free frees them */
    return 0;
}

static int take_body(struct files_call *call, struct edit *edit)
{
    uint64_t length;
    int r = body_exactly(call, &length, sizeof(length));

    if (r == 0 && length > MOST)
        r = -EFBIG;
    if (r == 0)
        r = take_text(call, (size_t)length, &edit->old);
    return r == 0 ? take_rest(call, &edit->by) : r;
}

static void answer_edit(struct files_call *call, const struct edit *edit, const struct stat *st)
{
    char etag[FILES_ETAG];
    struct emit e;

    files_etag(st, etag);
    emit_begin(&e, call, false, FILES_TYPE_JSON);
    emit_raw(&e, "{");
    emit_bytes(&e, "path", call->m->path, strlen(call->m->path));
    emit_number(&e, "occurrences", (int64_t)edit->count);
    emit_bytes(&e, "etag", etag, strlen(etag));
    emit_raw(&e, "}");
    emit_finish(&e, 200);
}

void files_edit(struct files_call *call)
{
    struct edit edit = {0};
    struct stat st;
    int r = take_body(call, &edit);

    if (r == 0 && edit.old.n == 0) {
        answer_error(call, 400, "invalid_request", "what is to be replaced is empty");
        r = 1;
    }
    for (int tries = 0; r == 0; tries++) {
        r = edit_once(call, &edit, &st);
        if (r == 0) {
            answer_edit(call, &edit, &st);
            break;
        }
        text_free(&edit.file);
        if (r == -ECANCELED)
            r = tries < TRIES ? 0 : -ESTALE; /* somebody else wrote it meanwhile */
    }
    if (r < 0)
        answer_errno(call, r, call->m->path);
    text_free(&edit.old);
    text_free(&edit.by);
    text_free(&edit.file);
}
