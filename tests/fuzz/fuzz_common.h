/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an archive, into a directory on a tmpfs that is emptied each
 * time. Nothing may come to be beside it, the answer is one of the known ones,
 * and nothing is left out of sight. */
#pragma once

#include <dirent.h>

#include "../unit/archive_scene.h"
#include "fuzz.h"

static char fuzz_base[64];
static int fuzz_hidden = -1;

static void fuzz_leave(void)
{
    scene_remove(fuzz_base);
}

static void fuzz_begin(void)
{
    if (fuzz_hidden >= 0)
        return;
    const char *scratch =
        getenv("FUZZ_TMP"); /* of tests/fuzz/run; one thread: NOLINT(concurrency-mt-unsafe) */
    (void)snprintf(fuzz_base, sizeof(fuzz_base), "%s/fuzz-unpack-XXXXXX",
                   scratch ? scratch : "/tmp");
    MUST(mkdtemp(fuzz_base) && atexit(fuzz_leave) == 0);
    char hidden[80];
    (void)snprintf(hidden, sizeof(hidden), "%s/hidden", fuzz_base);
    MUST(mkdir(hidden, 0700) == 0);
    fuzz_hidden = open(hidden, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(fuzz_hidden >= 0);
}

/* How many names a directory has. */
static unsigned fuzz_count(const char *path)
{
    struct stat st;
    unsigned n = 0;
    struct dirent *entry;
    DIR *dir = opendir(path);

    MUST(dir && stat(path, &st) == 0);
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.' ||
             (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0);
    (void)closedir(dir);
    return n;
}

static void fuzz_unpack(const uint8_t *data, size_t size, uint64_t flags)
{
    char dest[96];
    char hidden[96];
    struct answer a;

    fuzz_begin();
    (void)snprintf(dest, sizeof(dest), "%s/in", fuzz_base);
    (void)snprintf(hidden, sizeof(hidden), "%s/hidden", fuzz_base);
    struct files_message m = {.op = FILES_UNPACK, .path = dest, .flags = flags};
    struct scene_feed feed = {.body = (const char *)data, .n = size};
    scene_call(files_unpack_tree, &m, fuzz_hidden, &feed, &a);
    MUST(a.whole);
    MUST(a.head.status == 200 || a.head.status == 400 || a.head.status == 409 ||
         a.head.status == 413 || a.head.status == 403 || a.head.status == 503 ||
         a.head.status == 507);
    MUST(fuzz_count(hidden) == 0 && fuzz_count(fuzz_base) == 2);
    buf_clear(&a.b);
    scene_remove(dest);
}
