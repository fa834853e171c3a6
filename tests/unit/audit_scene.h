/* SPDX-License-Identifier: Apache-2.0 */
/* A record in a directory of its own, for the tests that write chains and damage them. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "base/fd.h"
#include "unit.h"

/* A program need not use all of it. Not inline: sanitized, that compiles half as fast. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

enum {
    SEGMENT = 1 << 20,
    FILE_MAX = 4 << 20
};

static char dir[64];

static const char *path_of(uint32_t number)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%09u.jsonl", dir, number);
    return path;
}

static void new_dir(void)
{
    snprintf(dir, sizeof(dir), "audit-XXXXXX");
    if (!mkdtemp(dir))
        abort();
}

static int remove_dir(void)
{
    DIR *stream = opendir(dir);
    struct dirent *entry;

    while (stream && (entry = readdir(stream)))
        (void)unlinkat(dirfd(stream), entry->d_name, 0);
    if (stream)
        closedir(stream);
    return rmdir(dir);
}

static uint64_t add(struct audit *audit, const char *operation, const char *details)
{
    uint64_t seq = audit_add(audit, &(struct audit_record){.actor = "key:k1",
                                                           .workspace = "w1",
                                                           .request = "r1",
                                                           .operation = operation,
                                                           .result = "ok",
                                                           .details = details});
    audit_push(audit);
    return seq;
}

/* Until it is on disk; false when writing failed. */
static bool wait_for(struct audit *audit, uint64_t seq)
{
    struct pollfd fd = {.fd = audit_fd(audit), .events = POLLIN};
    struct err err;

    while (audit_hear(audit) < seq) {
        if (audit_has_failed(audit, &err))
            return false;
        (void)poll(&fd, 1, -1);
    }
    return true;
}

/* A chain of n records, each in a batch of its own. */
static int make_chain(int n, uint64_t segment_bytes)
{
    struct audit *audit;
    struct err err;

    new_dir();
    CHECK(audit_open(&audit, dir, -1, segment_bytes, &err) == 0);
    for (int i = 0; i < n; i++)
        CHECK(wait_for(audit, add(audit, "exec.start", "{\"argv\":[\"true\"]}")));
    audit_close(audit);
    return 0;
}

static char *read_file(uint32_t number, size_t *ret_n)
{
    static char bytes[FILE_MAX];
    scoped_fd int fd = open(path_of(number), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes) - 1);

    *ret_n = n < 0 ? 0 : (size_t)n;
    bytes[*ret_n] = '\0';
    return bytes;
}

static void write_file(uint32_t number, const char *bytes, size_t n)
{
    scoped_fd int fd = open(path_of(number), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (write(fd, bytes, n) != (ssize_t)n)
        abort();
}

static char *line_at(char *text, int line)
{
    for (; line > 1; line--)
        text = strchr(text, '\n') + 1;
    return text;
}

static struct audit_report verify(const char *head)
{
    struct audit_report report = {0};
    struct err err = {0};

    if (audit_verify(dir, head, &report, &err) < 0)
        snprintf(report.problem, sizeof(report.problem), "cannot be read: %.200s", err.msg);
    return report;
}

#pragma GCC diagnostic pop
