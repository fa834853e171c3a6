/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/sink/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define KEY       "sink/key"
#define KEY_NEW   "sink/key.new"
#define KEYS      "heads/keys"
#define HEADS     "heads/heads.jsonl"
#define LAST      "sink/last" /* the number of the newest head: one that was taken away is missed */
#define TAG       "ed25519-private:"
#define SINK_NAME "the sink's file (setting 'audit_sink_file')"

static int sync_dir(const char *path)
{
    scoped_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -1 : fsync(fd);
}

/* --- the key --- */

static int save_key(EVP_PKEY *pair, struct err *err)
{
    unsigned char bytes[AUDIT_KEY_BYTES];
    char text[sizeof(TAG) + 2 * sizeof(bytes) + 1] = TAG;
    size_t n = sizeof(bytes);

    if (EVP_PKEY_get_raw_private_key(pair, bytes, &n) != 1 || n != sizeof(bytes))
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no Ed25519");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + sizeof(TAG) - 1 + 2 * i, 3, "%02x", bytes[i]);
    text[sizeof(text) - 2] = '\n';
    ignore(unlink(KEY_NEW) == 0); /* of a start that was interrupted */
    scoped_fd int fd = open(KEY_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = fd >= 0 && fd_write_all(fd, text, sizeof(text) - 1) == 0 && fsync(fd) == 0 &&
                rename(KEY_NEW, KEY) == 0 && sync_dir("sink") == 0;
    int saved = errno;
    explicit_bzero(bytes, sizeof(bytes));
    explicit_bzero(text, sizeof(text));
    return good ? 0 : err_set(err, ERR_IO, saved, "write the key that signs heads");
}

static int make_key(EVP_PKEY **ret, struct err *err)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    bool good = context && EVP_PKEY_keygen_init(context) == 1 && EVP_PKEY_keygen(context, ret) == 1;

    EVP_PKEY_CTX_free(context);
    if (!good)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no Ed25519");
    return save_key(*ret, err);
}

static int parse_key(const char *text, size_t n, EVP_PKEY **ret, struct err *err)
{
    unsigned char bytes[AUDIT_KEY_BYTES];
    bool good = n >= sizeof(TAG) - 1 + 2 * sizeof(bytes) && memcmp(text, TAG, sizeof(TAG) - 1) == 0;

    for (size_t i = 0; good && i < sizeof(bytes); i++) {
        char two[3] = {text[sizeof(TAG) - 1 + 2 * i], text[sizeof(TAG) + 2 * i], '\0'};
        char *end;
        bytes[i] = (unsigned char)strtoul(two, &end, 16);
        good = end == two + 2;
    }
    if (good)
        *ret = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, bytes, sizeof(bytes));
    explicit_bzero(bytes, sizeof(bytes));
    if (!good || !*ret)
        return err_set(err, ERR_INVALID, 0,
                       "'" KEY "' does not hold a key (take it away, and a new one is made; what "
                       "was signed with the old one stays good)");
    return 0;
}

static int read_key(EVP_PKEY **ret, struct err *err)
{
    char text[256];
    struct stat st;
    scoped_fd int fd = open(KEY, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return make_key(ret, err);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "open '" KEY "'");
    if (st.st_uid != geteuid() || (st.st_mode & 077))
        return err_set(err, ERR_DENIED, 0, "'" KEY "' can be read or written by others");
    ssize_t n = read(fd, text, sizeof(text));
    if (n < 0)
        return err_set(err, ERR_IO, errno, "read '" KEY "'");
    int r = parse_key(text, (size_t)n, ret, err);
    explicit_bzero(text, sizeof(text));
    return r;
}

/* Adds ours to the public ones, unless it is there. */
static int publish_key(EVP_PKEY *pair, struct err *err)
{
    scoped_buf struct buf text;
    char line[AUDIT_KEY_TEXT + 1];
    struct audit_key key;

    if (audit_read_file(AT_FDCWD, KEYS, &text, err) < 0)
        return -1;
    if (audit_key_of(pair, &key) < 0)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no Ed25519");
    audit_key_text(&key, line);
    if (text.n && strstr(text.p, line))
        return 0;
    size_t whole = text.n; /* one that a crash has torn goes */
    while (whole > 0 && text.p[whole - 1] != '\n')
        whole--;
    scoped_fd int fd = open(KEYS, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
    line[AUDIT_KEY_TEXT - 1] = '\n';
    if (fd < 0 || (whole < text.n && ftruncate(fd, (off_t)whole) < 0) ||
        fd_write_all(fd, line, AUDIT_KEY_TEXT) < 0 || fsync(fd) < 0 || sync_dir("heads") < 0)
        return err_set(err, ERR_IO, errno, "write '" KEYS "'");
    return 0;
}

/* --- heads --- */

/* A last line that was torn is cut off: the next would be glued to it. */
static int cut_torn(int fd, off_t whole, const char *name, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || (st.st_size > whole && ftruncate(fd, whole) < 0))
        return err_set(err, ERR_IO, errno, "cut a torn line off %s", name);
    return 0;
}

/* Not waited for: one that a power cut has lost only leaves an older number. */
static int save_last(uint64_t seq, struct err *err)
{
    char text[32];
    scoped_fd int fd = open(LAST, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);

    int n = snprintf(text, sizeof(text), "%020ju\n", (uintmax_t)seq);
    if (fd < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return err_set(err, ERR_IO, errno, "write '" LAST "'");
    return 0;
}

static int read_signed(uint64_t *ret, struct err *err)
{
    char text[32] = "";
    scoped_fd int fd = open(LAST, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if ((fd < 0 && errno != ENOENT) || (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0))
        return err_set(err, ERR_IO, errno, "read '" LAST "'");
    *ret = strtoull(text, NULL, 10);
    return 0;
}

int keep_check(const struct keep *keep, struct err *err)
{
    if (keep->signed_seq <= keep->last.seq)
        return 0;
    return err_set(err, ERR_CONFLICT, 0,
                   "the newest head in '" HEADS "' is of record %ju, but one of record %ju was "
                   "signed: heads were taken away. Put the file back (to begin anew, keep " HEADS
                   " and " LAST " elsewhere and take them away)",
                   (uintmax_t)keep->last.seq, (uintmax_t)keep->signed_seq);
}

static int read_last(struct keep *keep, struct err *err)
{
    off_t whole = 0;
    int r = audit_heads_last(keep->heads, &keep->last, &whole);

    if (r == -EBADMSG)
        return err_set(err, ERR_CONFLICT, 0, "the last line of '" HEADS "' is not a head");
    if (r < 0)
        return err_set(err, ERR_IO, -r, "read '" HEADS "'");
    if (cut_torn(keep->heads, whole, "'" HEADS "'", err) < 0)
        return -1;
    return read_signed(&keep->signed_seq, err);
}

/* Its own file may hold what others wrote: only the rest of a head is ever cut off. */
static int mend_file(int fd, struct err *err)
{
    static const char begin[] = "{\"head\":1,";
    char bytes[sizeof(begin) - 1];
    struct audit_head last;
    off_t whole = 0;

    int r = audit_heads_last(fd, &last, &whole);
    ssize_t n = r < 0 ? -1 : pread(fd, bytes, sizeof(bytes), whole);
    return n > 0 && memcmp(bytes, begin, (size_t)n) == 0 ? cut_torn(fd, whole, SINK_NAME, err) : 0;
}

/* All of it is on disk, or nothing is there. */
static int append(int fd, const char *line, size_t n, const char *name, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at %s", name);
    if (fd_write_all(fd, line, n) < 0 || fdatasync(fd) < 0) {
        int saved = errno;
        ignore(ftruncate(fd, st.st_size) == 0); /* else the next start does */
        return err_set(err, ERR_IO, saved, "write a head to %s", name);
    }
    return 0;
}

static int open_heads(struct keep *keep, struct err *err)
{
    scope_close(&keep->heads);
    keep->heads = open(HEADS, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (keep->heads < 0 || sync_dir("heads") < 0)
        return err_set(err, ERR_IO, errno, "open '" HEADS "'");
    return 0;
}

int keep_open(struct keep *keep, const char *sink, int file, struct err *err)
{
    *keep = (struct keep){.heads = -1, .file = strncmp(sink, "file", 4) == 0 ? file : -1};
    snprintf(keep->sink, sizeof(keep->sink), "%s", sink);
    if (read_key(&keep->pair, err) < 0 || publish_key(keep->pair, err) < 0 ||
        open_heads(keep, err) < 0)
        return -1;
    if (keep->file >= 0 && mend_file(keep->file, err) < 0)
        return -1;
    return read_last(keep, err);
}

void keep_close(struct keep *keep)
{
    EVP_PKEY_free(keep->pair);
    scope_close(&keep->heads);
}

int keep_head(struct keep *keep, uint64_t seq, const char hash[AUDIT_HEX], struct err *err)
{
    struct audit_head head = {.seq = seq};
    char line[AUDIT_HEAD + 1];

    memcpy(head.hash, hash, AUDIT_HEX);
    memcpy(head.sink, keep->sink, sizeof(head.sink));
    audit_now(head.time);
    if (audit_head_sign(&head, keep->pair) < 0)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no Ed25519");
    audit_head_encode(&head, line);
    size_t n = strlen(line);
    line[n++] = '\n';
    if (keep->heads < 0 && open_heads(keep, err) < 0) /* taken away by keep_forget */
        return -1;
    /* Elsewhere first: what is only here could be missed there. Twice there does no harm. */
    if (keep->file >= 0 && append(keep->file, line, n, SINK_NAME, err) < 0)
        return -1;
    if (append(keep->heads, line, n, "'" HEADS "'", err) < 0)
        return -1;
    keep->last = head;
    return save_last(seq, err);
}

int keep_forget(struct keep *keep, uint64_t seq, struct err *err)
{
    struct audit_lines lines;
    struct audit_head head;
    const char *line;
    size_t n;
    int r = 0;

    scoped_fd int old = open(HEADS, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    scoped_fd int fd =
        open(HEADS ".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
    bool good = old >= 0 && fd >= 0;
    off_t from = good ? audit_heads_seek(old, seq) : 0;
    audit_lines_init(&lines, &old);
    audit_lines_seek(&lines, from);
    while (good && (r = audit_lines_next(&lines, &line, &n)) == 1) {
        bool is_old = audit_head_parse(line, n, &head) && head.seq < seq;
        good = is_old || (fd_write_all(fd, line, n) == 0 && fd_write_all(fd, "\n", 1) == 0);
    }
    audit_lines_clear(&lines);
    if (!good || r < 0 || fsync(fd) < 0 || rename(HEADS ".new", HEADS) < 0)
        return err_set(err, ERR_IO, errno, "take old heads out of '" HEADS "'");
    return open_heads(keep, err);
}
