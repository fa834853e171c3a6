/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of a tree, a line for each thing in it; with hashes, also which files are the same. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "files/core/search.h"

enum {
    HASH = 32,
    HEX = 64,
    BLOCK = 1 << 18,
    MOST_SEEN = 2000000,    /* files that are compared */
    MOST_PATHS = 256 << 20, /* bytes of their paths */
    MOST_LINK = 4096,
};

struct seen {
    uint64_t size;
    size_t path; /* in inventory.paths */
    unsigned char hash[HASH];
};

struct inventory {
    struct files_call *call;
    struct emit e;
    struct buf path;
    struct buf paths;
    struct seen *seen;
    size_t n;
    size_t cap;
    uint64_t files;
    uint64_t directories;
    uint64_t others;
    uint64_t bytes;
    uint64_t unread; /* directories and files that could not be read */
    bool truncated;  /* too many to compare */
    EVP_MD *sha256;
    EVP_MD_CTX *digest;
    unsigned char *block;
};

/* Of what is there now, if it is still a file. 0 or -errno. */
static int hash_file(struct inventory *v, const struct tree_entry *entry, unsigned char *ret)
{
    scoped_fd int fd =
        openat(entry->dir, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENXIO;
    if (EVP_DigestInit_ex2(v->digest, v->sha256, NULL) != 1)
        return -ENOMEM;
    /* A file that grows as fast as it is read has no end of its own. */
    uint64_t left = (uint64_t)entry->st.st_size + BLOCK;
    while ((n = read(fd, v->block, BLOCK)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if ((uint64_t)n > left)
            return -ESTALE;
        left -= (uint64_t)n;
        if (EVP_DigestUpdate(v->digest, v->block, (size_t)n) != 1)
            return -ENOMEM;
        if (left > BLOCK && files_client_left(v->call))
            return -EPIPE;
    }
    return EVP_DigestFinal_ex(v->digest, ret, NULL) == 1 ? 0 : -ENOMEM;
}

/* Keeps it for the comparison at the end. Empty files are all alike, and of no interest. */
static void keep(struct inventory *v, uint64_t size, const unsigned char *hash, const char *path)
{
    if (size == 0 || v->truncated)
        return;
    if (v->n == v->cap && v->cap < MOST_SEEN) {
        size_t cap = v->cap ? 2 * v->cap : 1024;
        cap = cap < MOST_SEEN ? cap : MOST_SEEN;
        struct seen *seen = reallocarray(v->seen, cap, sizeof(*seen));
        if (seen) {
            v->seen = seen;
            v->cap = cap;
        }
    }
    size_t at = v->paths.n;
    if (v->n < v->cap)
        buf_add(&v->paths, path, strlen(path) + 1);
    if (v->n == v->cap || v->paths.failed) {
        v->truncated = true;
        return;
    }
    struct seen *one = &v->seen[v->n++];
    one->size = size;
    one->path = at;
    memcpy(one->hash, hash, HASH);
}

static void tell_hash(struct inventory *v, const struct tree_entry *entry, const char *path)
{
    unsigned char hash[HASH];
    char hex[HEX + 1];
    int r = hash_file(v, entry, hash);

    if (r < 0) {
        const char *code = files_error_code(-r, NULL);
        v->unread++;
        emit_bytes(&v->e, "error", code, strlen(code));
        return;
    }
    bytes_to_hex(hash, HASH, hex);
    emit_bytes(&v->e, "sha256", hex, HEX);
    keep(v, (uint64_t)entry->st.st_size, hash, path);
}

static void count(struct inventory *v, const struct stat *st)
{
    if (S_ISDIR(st->st_mode)) {
        v->directories++;
    } else if (S_ISREG(st->st_mode)) {
        v->files++;
        v->bytes += (uint64_t)st->st_size;
    } else {
        v->others++;
    }
}

static enum walk_answer see(void *context, const struct tree_entry *entry)
{
    struct inventory *v = context;
    const char *path = search_path(&v->path, v->call->m->path, entry->path);
    char target[MOST_LINK];
    ssize_t n = -1;

    if (!path)
        return WALK_STOP;
    if (S_ISLNK(entry->st.st_mode))
        n = readlinkat(entry->dir, entry->name, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    count(v, &entry->st);
    emit_raw(&v->e, "{");
    emit_entry_members(&v->e, path, &entry->st, n >= 0 ? target : NULL);
    if (S_ISREG(entry->st.st_mode) && v->call->m->flags & FILES_HASH)
        tell_hash(v, entry, path);
    emit_raw(&v->e, "}\n");
    if (!emit_alive(&v->e))
        return WALK_STOP;
    return search_passes(v->call->m->path, entry) ? WALK_PAST : WALK_ON;
}

static void see_failure(void *context, const char *path, int error)
{
    struct inventory *v = context;
    const char *whole = search_path(&v->path, v->call->m->path, path);
    const char *code = files_error_code(error, NULL);

    v->unread++;
    if (!whole)
        return;
    emit_raw(&v->e, "{");
    emit_bytes(&v->e, "path", whole, strlen(whole));
    emit_bytes(&v->e, "error", code, strlen(code));
    emit_raw(&v->e, "}\n");
}

/* --- what is the same --- */

static int compare(const void *a, const void *b)
{
    const struct seen *x = a;
    const struct seen *y = b;

    if (x->size != y->size)
        return x->size < y->size ? 1 : -1; /* the largest first */
    int r = memcmp(x->hash, y->hash, HASH);
    return r ? r : (x->path > y->path) - (x->path < y->path);
}

static bool is_same(const struct seen *x, const struct seen *y)
{
    return x->size == y->size && memcmp(x->hash, y->hash, HASH) == 0;
}

static void tell_same(struct inventory *v, const struct seen *first, size_t n)
{
    char hex[HEX + 1];

    bytes_to_hex(first->hash, HASH, hex);
    emit_comma(&v->e);
    emit_raw(&v->e, "{");
    emit_bytes(&v->e, "sha256", hex, HEX);
    emit_number(&v->e, "size", (int64_t)first->size);
    emit_raw(&v->e, ",\"paths\":[");
    for (size_t i = 0; i < n && emit_alive(&v->e); i++) {
        const char *path = v->paths.p + first[i].path;
        emit_value(&v->e, path, strlen(path));
    }
    emit_raw(&v->e, "]}");
}

static void tell_summary(struct inventory *v)
{
    emit_raw(&v->e, "{\"summary\":{");
    emit_number(&v->e, "files", (int64_t)v->files);
    emit_number(&v->e, "directories", (int64_t)v->directories);
    emit_number(&v->e, "others", (int64_t)v->others);
    emit_number(&v->e, "bytes", (int64_t)v->bytes);
    emit_number(&v->e, "unread", (int64_t)v->unread);
    emit_raw(&v->e, ",\"duplicates\":[");
    if (v->n > 1)
        qsort(v->seen, v->n, sizeof(v->seen[0]), compare);
    for (size_t i = 0, next; i < v->n; i = next) {
        for (next = i + 1; next < v->n && is_same(&v->seen[i], &v->seen[next]);)
            next++;
        if (next - i > 1)
            tell_same(v, &v->seen[i], next - i);
    }
    emit_raw(&v->e, v->truncated ? "],\"duplicates_truncated\":true}}\n" : "]}}\n");
}

/* Nothing inside has a say in it: no configuration is read. */
static int prepare(struct inventory *v)
{
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
        return -ENOMEM;
    v->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    v->digest = EVP_MD_CTX_new();
    v->block = malloc(BLOCK);
    return v->sha256 && v->digest && v->block ? 0 : -ENOMEM;
}

void files_inventory(struct files_call *call)
{
    struct inventory v = {.call = call};
    scoped_fd int fd = open(call->m->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    int r = fd < 0 ? -errno : prepare(&v);

    scope_close(&fd);
    buf_init(&v.paths, MOST_PATHS);
    if (r < 0) {
        answer_errno(call, r, call->m->path);
    } else {
        emit_begin(&v.e, call, true, FILES_TYPE_NDJSON);
        r = files_walk(call->m->path, UINT32_MAX, see, see_failure, &v);
        if (r == 0)
            tell_summary(&v);
        else
            call->gone = true; /* the client sees an answer that is cut off */
        emit_finish(&v.e, 200);
    }
    EVP_MD_CTX_free(v.digest);
    EVP_MD_free(v.sha256);
    free(v.block);
    free(v.seen);
    buf_clear(&v.paths);
    buf_clear(&v.path);
}
