/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provision/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    BLOCK = 1 << 16,
    MOST_MEMBERS = 8,
};

#define MOST_BYTES (1LL << 30) /* of one member */

static int broken(struct archive *a, const char *name, struct err *err)
{
    const char *why = archive_error_string(a);

    return err_set(err, ERR_INVALID, 0, "%.100s cannot be unpacked: %.120s", name,
                   why && *why ? why : "it is damaged");
}

static int write_member(struct archive *a, const char *name, int fd, struct err *err)
{
    static char bytes[BLOCK];
    long long total = 0;
    la_ssize_t n;

    while ((n = archive_read_data(a, bytes, sizeof(bytes))) > 0) {
        total += n;
        if (total > MOST_BYTES)
            return err_set(err, ERR_LIMIT, 0, "%.100s holds a file of more than 1 GiB", name);
        for (la_ssize_t at = 0; at < n;) {
            ssize_t written = write(fd, bytes + at, (size_t)(n - at));
            if (written < 0 && errno == EINTR)
                continue;
            if (written < 0)
                return err_set(err, ERR_IO, errno, "unpack %.100s", name);
            at += written;
        }
    }
    if (n < 0)
        return broken(a, name, err);
    if (fchmod(fd, 0755) < 0 || fsync(fd) < 0)
        return err_set(err, ERR_IO, errno, "unpack %.100s", name);
    return 0;
}

/* The entry the reader is at, if it is asked for. */
static int take(struct archive *a, struct archive_entry *entry, const char *name,
                const struct unpack_member *member, int dir, struct err *err)
{
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
        return err_set(err, ERR_INVALID, 0, "'%s' in %.100s is no plain file", member->name, name);
    scoped_fd int fd = openat(dir, member->to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (fd < 0 && errno == EEXIST)
        return err_set(err, ERR_INVALID, 0, "'%s' is in %.100s twice", member->name, name);
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "make '%s'", member->to);
    return write_member(a, name, fd, err);
}

static int read_all(struct archive *a, const char *name, const struct unpack_member *members,
                    size_t count, int dir, struct err *err)
{
    struct archive_entry *entry;
    bool seen[MOST_MEMBERS] = {false};
    int r;

    while ((r = archive_read_next_header(a, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        const char *path = archive_entry_pathname(entry);
        for (size_t i = 0; path && i < count; i++) {
            if (strcmp(path, members[i].name) != 0)
                continue;
            if (take(a, entry, name, &members[i], dir, err) < 0)
                return -1;
            seen[i] = true;
        }
    }
    if (r != ARCHIVE_EOF)
        return broken(a, name, err);
    for (size_t i = 0; i < count; i++) {
        if (!seen[i])
            return err_set(err, ERR_INVALID, 0, "'%s' is missing in %.100s", members[i].name, name);
    }
    return 0;
}

int unpack_members(int fd, const char *archive, const struct unpack_member *members, size_t count,
                   int dir, struct err *err)
{
    struct archive *a = archive_read_new();
    int r = -1;

    if (!a || count > MOST_MEMBERS)
        return err_set(err, ERR_LIMIT, ENOMEM, "unpack %.100s", archive);
    if (archive_read_support_format_zip(a) != ARCHIVE_OK ||
        archive_read_support_format_tar(a) != ARCHIVE_OK ||
        archive_read_support_filter_gzip(a) != ARCHIVE_OK || lseek(fd, 0, SEEK_SET) < 0 ||
        archive_read_open_fd(a, fd, BLOCK) != ARCHIVE_OK)
        (void)broken(a, archive, err);
    else
        r = read_all(a, archive, members, count, dir, err);
    (void)archive_read_free(a);
    return r;
}
