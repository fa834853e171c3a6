/* SPDX-License-Identifier: Apache-2.0 */
/* What a record is held against: public keys and signed heads, of its own and kept elsewhere; and
 * what these show that the chain alone does not. */
#include "client/audit/audit_proof.h"

#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"

/* --- heads and keys, from wherever they are --- */

static size_t take_bytes(char *bytes, size_t one, size_t n, void *context)
{
    struct buf *b = context;

    buf_add(b, bytes, one * n);
    return b->failed ? 0 : one * n;
}

static bool is_url(const char *text)
{
    return strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0;
}

/* Somebody else's server: nothing of ours is sent to it. */
static int fetch(const char *url, struct buf *ret, struct err *err)
{
    char why[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();

    buf_init(ret, CALL_MOST_ANSWER);
    if (!curl)
        return err_set(err, ERR_LIMIT, ENOMEM, "open libcurl");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 20L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 300L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, ret);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    if (code == CURLE_OK && buf_done(ret) == 0)
        return 0;
    buf_clear(ret);
    return err_set(err, ERR_IO, 0, "get '%.200s': %s", url, *why ? why : curl_easy_strerror(code));
}

/* From the state directory, or from the daemon. 1: there are none. */
static int read_own(const struct audit_options *o, struct daemon *daemon, const char *name,
                    struct buf *ret, struct err *err)
{
    char dir[WHERE_PATH];
    char path[WHERE_PATH + 32];
    struct call call;

    if (!o->remote) {
        if (where_state(o->common.state, dir, sizeof(dir), err) < 0)
            return -1;
        snprintf(path, sizeof(path), "%s/heads/%s", dir, name);
        return audit_read_file(AT_FDCWD, path, ret, err);
    }
    snprintf(path, sizeof(path), "/v1/audit/%s", strcmp(name, "keys") == 0 ? "keys" : "heads");
    buf_init(ret, CALL_MOST_ANSWER);
    if (call_open(&call, daemon, err) < 0)
        return -1;
    call.accept = "*/*";
    int r = call_wait(&call, "GET", path, err);
    if (r == 0)
        buf_add(ret, call.answer.p, call.answer.n);
    call_close(&call);
    if (r == 0 && buf_done(ret) < 0)
        r = err_set(err, ERR_LIMIT, ENOMEM, "read what the daemon answers");
    return r < 0 ? -1 : ret->n == 0;
}

int proof_read_keys(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
                    struct err *err)
{
    scoped_buf struct buf text;

    buf_init(&text, 1 << 16);
    proof->has_key = o->key;
    if (o->key && strncmp(o->key, "ed25519:", 8) == 0)
        return audit_keys_parse(o->key, &proof->keys, err);
    int r = o->key ? audit_read_file(AT_FDCWD, o->key, &text, err)
                   : read_own(o, daemon, "keys", &text, err);
    if (r > 0 && o->key)
        return err_set(err, ERR_NOT_FOUND, 0, "there is no file '%s' with a key", o->key);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return audit_keys_parse(text.p, &proof->keys, err);
}

static void note_trouble(struct proof *proof, const char *where, const struct err *err)
{
    if (!proof->trouble[0])
        snprintf(proof->trouble, sizeof(proof->trouble), "%.128s: %.250s", where, err->msg);
}

/* Heads that are not signed are trouble, and told with the rest; what cannot be read is an error.
 */
static int add_heads(struct proof *proof, const char *where, const struct buf *text, bool own,
                     struct err *err)
{
    proof->anchors.newest = 0;
    if (!text->n)
        return 0;
    if (audit_anchors_add(&proof->anchors, text->p, text->n, &proof->keys, own, err) == 0)
        return 0;
    if (err->code != ERR_CONFLICT)
        return -1;
    note_trouble(proof, where, err);
    return 0;
}

static int read_given(const struct audit_options *o, struct proof *proof, struct err *err)
{
    scoped_buf struct buf text;

    buf_init(&text, 1);
    if (!o->head)
        return 0;
    if (bytes_are_hex(o->head, 64)) {
        proof->hash = o->head;
        return 0;
    }
    proof->has_heads = true;
    int r = is_url(o->head) ? fetch(o->head, &text, err)
                            : audit_read_file(AT_FDCWD, o->head, &text, err);
    if (r > 0)
        return err_set(
            err, ERR_NOT_FOUND, 0,
            "'%.200s' is neither a file with heads nor an address nor the hash of a record",
            o->head);
    if (r < 0 || add_heads(proof, o->head, &text, false, err) < 0)
        return -1;
    proof->kept = proof->anchors.newest;
    if (!proof->kept && !proof->trouble[0])
        snprintf(proof->trouble, sizeof(proof->trouble), "'%.200s' holds no signed head", o->head);
    return 0;
}

/* A copy of the record by itself has nothing beside it; a state directory has, and there a daemon
 * makes a key before its first record. What cannot be looked through is no such copy. */
static bool is_bare_copy(const char *state)
{
    DIR *dir = opendir(state);
    const struct dirent *entry;
    bool is_bare = dir;

    /* A stream of its own; NOLINTNEXTLINE(concurrency-mt-unsafe) */
    while (is_bare && (entry = readdir(dir)))
        is_bare = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                  strcmp(entry->d_name, "audit") == 0;
    if (dir)
        (void)closedir(dir);
    return is_bare;
}

/* What is beside the record; `last` before the heads, which may go on meanwhile. */
static int read_beside(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
                       struct err *err)
{
    scoped_buf struct buf keys;
    scoped_buf struct buf heads;
    char dir[WHERE_PATH];
    char path[WHERE_PATH + 16];
    char text[32] = "";

    buf_init(&keys, 1);
    buf_init(&heads, 1);
    if (!o->remote) {
        if (where_state(o->common.state, dir, sizeof(dir), err) < 0)
            return -1;
        proof->has_signer = !is_bare_copy(dir);
        snprintf(path, sizeof(path), "%s/sink/last", dir);
        scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC); /* of others: then it is not known */
        if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
            proof->last = strtoull(text, NULL, 10);
    }
    if (read_own(o, daemon, "keys", &keys, err) < 0 ||
        read_own(o, daemon, "heads.jsonl", &heads, err) < 0 ||
        add_heads(proof, "heads/heads.jsonl", &heads, true, err) < 0)
        return -1;
    proof->has_own_key = keys.n > 0;
    proof->has_signer |= o->remote || keys.n > 0;
    proof->own = proof->anchors.newest;
    return 0;
}

int proof_read(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
               struct err *err)
{
    if (proof_read_keys(o, daemon, proof, err) < 0 || read_given(o, proof, err) < 0 ||
        read_beside(o, daemon, proof, err) < 0)
        return -1;
    audit_anchors_sort(&proof->anchors);
    return 0;
}

/* --- what they show --- */

__attribute__((format(printf, 2, 3))) static void trouble(struct proof *p, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(p->trouble, sizeof(p->trouble), format, args);
    va_end(args);
}

void proof_judge(struct proof *p, const struct audit_report *r)
{
    uint64_t due = r->due_seq > p->last ? r->due_seq : p->last;
    bool is_given = p->has_heads || p->hash;

    if (p->trouble[0])
        return;
    if (!p->own && p->has_signer) {
        trouble(p,
                "%s, and no signed head in heads/heads.jsonl: it was removed or emptied; put it "
                "back",
                p->has_own_key
                    ? "there is a key to sign them"
                    : "this is a daemon's state directory without the key that signs them");
    } else if (p->own && p->own < due) {
        p->is_behind = true;
        trouble(p,
                "heads/heads.jsonl ends with the head of record %ju, but one of record %ju was "
                "signed: heads were taken away, or an earlier file was put back",
                (uintmax_t)p->own, (uintmax_t)due);
    } else if (p->has_heads && p->kept + 1 < r->first_seq) {
        trouble(p,
                "the newest head given is of record %ju, and what is here begins with %ju: give "
                "one that was kept later",
                (uintmax_t)p->kept, (uintmax_t)r->first_seq);
    } else if (r->anew_seq && !is_given) {
        trouble(p,
                "the daemon found no signed head when it wrote record %ju: what was before is "
                "vouched for only by heads kept elsewhere; give them with --head",
                (uintmax_t)r->anew_seq);
    }
}

void proof_rest(const struct proof *p, const struct audit_report *r, struct buf *b)
{
    uint64_t kept = p->hash ? r->kept_seq : p->kept;

    if (p->has_heads || p->hash)
        buf_printf(
            b, "that records after %ju, the newest vouched for by --head, were cut off%s",
            (uintmax_t)kept,
            p->has_key ? "" : ", or replaced and signed with another key; give the key with --key");
    else if (!p->own && r->due_seq)
        buf_printf(b,
                   "that the record was cut off or written anew: it says that records up to %ju "
                   "were signed, and this copy is without heads and key; give heads kept elsewhere "
                   "with --head, and the key with --key",
                   (uintmax_t)r->due_seq);
    else if (!p->own)
        buf_str(b, "that the record was cut off or written anew: beside it is no signed head, and "
                   "no key; give heads kept elsewhere with --head, and the key with --key");
    else
        buf_printf(b,
                   "that the end was cut off, together with its heads or since the newest of "
                   "them%s; keep heads elsewhere and give them with --head%s",
                   p->has_key ? "" : ", or the whole record replaced and signed with another key",
                   p->has_key ? "" : ", and the key with --key");
}
