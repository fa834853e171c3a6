/* SPDX-License-Identifier: Apache-2.0 */
/* A file of heads grows as long as the record is kept: what is wanted of it is found without
 * reading the rest. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/head.h"
#include "base/fd.h"

enum {
    NEAR_ENOUGH = 4096, /* bytes that are read through rather than halved once more */
    TAIL = 2 * AUDIT_HEAD,
};

static ssize_t read_at(int fd, char *to, size_t size, off_t at)
{
    ssize_t n;

    do
        n = pread(fd, to, size, at);
    while (n < 0 && errno == EINTR);
    return n;
}

/* The first head that begins behind `from`, and where; false: none that is whole. */
static bool head_behind(int fd, off_t from, struct audit_head *ret, off_t *ret_at)
{
    char bytes[TAIL];
    ssize_t n = read_at(fd, bytes, sizeof(bytes), from);
    const char *before = n > 0 ? memchr(bytes, '\n', (size_t)n) : NULL;

    if (!before)
        return false;
    const char *line = before + 1;
    const char *end = memchr(line, '\n', (size_t)(bytes + n - line));
    *ret_at = from + (line - bytes);
    return end && audit_head_parse(line, (size_t)(end - line), ret);
}

off_t audit_heads_seek(int fd, uint64_t seq)
{
    struct audit_head head;
    struct stat st;
    off_t low = 0;

    off_t high = fstat(fd, &st) == 0 ? st.st_size : 0;
    while (high - low > NEAR_ENOUGH) {
        off_t middle = low + (high - low) / 2;
        off_t at = 0;
        if (head_behind(fd, middle, &head, &at) && head.seq < seq && at < high)
            low = at;
        else /* also when that is no head: then more is read than had to be, and nothing left out */
            high = middle;
    }
    return low;
}

bool audit_heads_find(int dir, const char *path, uint64_t seq, struct audit_head *ret)
{
    struct audit_lines lines;
    const char *line;
    bool found = false;
    size_t n;

    scoped_fd int fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return false;
    off_t from = audit_heads_seek(fd, seq);
    audit_lines_init(&lines, &fd);
    audit_lines_seek(&lines, from);
    while (!found && audit_lines_next(&lines, &line, &n) == 1) {
        bool is_head = audit_head_parse(line, n, ret);
        if (is_head && ret->seq > seq)
            break;
        found = is_head && ret->seq == seq;
    }
    audit_lines_clear(&lines);
    return found;
}

int audit_heads_last(int fd, struct audit_head *ret, off_t *ret_whole)
{
    char bytes[TAIL];
    struct stat st;

    *ret = (struct audit_head){0};
    if (fstat(fd, &st) < 0)
        return -errno;
    off_t from = st.st_size > TAIL ? st.st_size - TAIL : 0;
    ssize_t end = read_at(fd, bytes, sizeof(bytes), from);
    if (end < 0)
        return -errno;
    while (end > 0 && bytes[end - 1] != '\n')
        end--;
    *ret_whole = from + end;
    if (end == 0)
        return from ? -EBADMSG : 0;
    ssize_t start = end - 1;
    while (start > 0 && bytes[start - 1] != '\n')
        start--;
    return audit_head_parse(bytes + start, (size_t)(end - 1 - start), ret) ? 1 : -EBADMSG;
}
