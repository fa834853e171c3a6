/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define PROC_FILE_BYTES (1UL << 20)

/* Whether one of the words of text[0..n), divided by `by`, is `word`. */
static bool has_word(const char *text, size_t n, const char *by, const char *word)
{
    size_t length = strlen(word);

    while (n > 0) {
        size_t part = 0;
        while (part < n && !strchr(by, text[part]))
            part++;
        if (part == length && memcmp(text, word, length) == 0)
            return true;
        if (part == n)
            break;
        text += part + 1;
        n -= part + 1;
    }
    return false;
}

/* The kernel writes spaces and the like in paths as \040. */
static void unescape(char *path)
{
    char *to = path;

    for (const char *at = path; *at; at++) {
        if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] && at[3]) {
            *to++ = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
            at += 3;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
}

/* Line "4:memory:/path" of /proc/self/cgroup; the v2 line is "0::/path". */
static const char *own_path(const char *own, const char *controller, size_t *ret_n)
{
    for (const char *line = own; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *names = strchr(line, ':');
        const char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        size_t n = (size_t)(path - names - 1);
        if (*controller ? !has_word(names + 1, n, ",", controller) : n != 0)
            continue;
        *ret_n = strcspn(path + 1, "\n");
        return path + 1;
    }
    return NULL;
}

/* Field `number` (from 1) of a line, as a copy; 0 or -ENAMETOOLONG. */
static int field(const char *line, int number, char *text, size_t size)
{
    while (--number > 0) {
        line += strcspn(line, " \n");
        line += *line == ' ';
    }
    size_t n = strcspn(line, " \n");
    if (n >= size)
        return -ENAMETOOLONG;
    memcpy(text, line, n);
    text[n] = '\0';
    unescape(text);
    return 0;
}

/* Whether this line of mountinfo is the hierarchy: "... - cgroup source rw,memory". */
static bool serves(const char *line, size_t n, const char *controller)
{
    const char *dash = memmem(line, n, " - ", 3);
    char type[16];
    char options[256];

    if (!dash || field(dash + 3, 1, type, sizeof(type)) < 0 ||
        field(dash + 3, 3, options, sizeof(options)) < 0)
        return false;
    if (!*controller)
        return strcmp(type, "cgroup2") == 0;
    return strcmp(type, "cgroup") == 0 && has_word(options, strlen(options), ",", controller);
}

/* A mount may show only a part of the hierarchy, from `root` on. */
static int join(const char *point, const char *root, const char *path, size_t n,
                struct cgroup_spot *ret)
{
    size_t skip = strcmp(root, "/") == 0 ? 0 : strlen(root);

    if (point[0] != '/' || n == 0 || path[0] != '/')
        return -ENOENT;
    if (skip > n || memcmp(root, path, skip) != 0 || (skip < n && path[skip] != '/'))
        return -ENOENT;
    path += skip;
    n -= skip;
    if (n >= 3 && memcmp(path, "/..", 3) == 0) /* outside of our cgroup namespace */
        return -ENOENT;
    if (n == 1)
        n = 0; /* "/": the mount point itself */
    int length = snprintf(ret->path, sizeof(ret->path), "%s%.*s", point, (int)n, path);
    if (length < 0 || (size_t)length >= sizeof(ret->path))
        return -ENAMETOOLONG;
    ret->mount_length = strlen(point);
    return 0;
}

int cgroup_locate(const char *mountinfo, const char *own, const char *controller,
                  struct cgroup_spot *ret)
{
    size_t n;
    const char *path = own_path(own, controller, &n);

    for (const char *line = mountinfo; path && *line;) {
        size_t length = strcspn(line, "\n");
        char point[PATH_MAX];
        char root[PATH_MAX];
        if (serves(line, length, controller) && field(line, 4, root, sizeof(root)) == 0 &&
            field(line, 5, point, sizeof(point)) == 0 && join(point, root, path, n, ret) == 0)
            return 0;
        line += length + (line[length] == '\n');
    }
    return -ENOENT;
}

static int read_all(int dir, const char *path, char *text, size_t size)
{
    scoped_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;

    text[0] = '\0';
    if (fd < 0)
        return -errno;
    while (n < size - 1) {
        ssize_t got = read(fd, text + n, size - 1 - n);
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    return (int)n;
}

int cgroup_find(const char *controller, struct cgroup_spot *ret)
{
    char own[8192];
    char *mounts = malloc(PROC_FILE_BYTES);
    int r = -ENOMEM;

    if (mounts)
        r = read_all(AT_FDCWD, "/proc/self/mountinfo", mounts, PROC_FILE_BYTES);
    if (r >= 0)
        r = read_all(AT_FDCWD, "/proc/self/cgroup", own, sizeof(own));
    if (r >= 0)
        r = cgroup_locate(mounts, own, controller, ret);
    free(mounts);
    return r;
}

ssize_t cgroup_read(int group, const char *file, char *text, size_t size)
{
    return read_all(group, file, text, size);
}

int cgroup_write(int group, const char *file, const char *text)
{
    scoped_fd int fd = openat(group, file, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int cgroup_number(int group, const char *file, const char *key, uint64_t *ret)
{
    char text[8192];
    ssize_t n = cgroup_read(group, file, text, sizeof(text));

    if (n < 0)
        return (int)n;
    const char *at = text;
    size_t length = key ? strlen(key) : 0;
    while (key && !(strncmp(at, key, length) == 0 && at[length] == ' ')) {
        at = strchr(at, '\n');
        if (!at)
            return -ENODATA;
        at++;
    }
    at += key ? length + 1 : 0;
    if (*at < '0' || *at > '9')
        return -ENODATA;
    *ret = strtoull(at, NULL, 10);
    return 0;
}

bool cgroup_lists(int group, const char *file, const char *word)
{
    char text[1024] = "";

    (void)cgroup_read(group, file, text, sizeof(text)); /* an empty text where it fails */
    return has_word(text, strlen(text), " \n", word);
}
