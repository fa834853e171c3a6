/* SPDX-License-Identifier: Apache-2.0 */
/* Archives, out and in. Names are bytes and stay what they are: no library that knows of languages
 * touches them on the way out or, in a zip, on the way in.
 *
 *   files_pack_tree (archive_out.c) --> tar_item, zip_item (tar_write.c, zip_write.c) --> stream
 *   stream --> files_unpack_tree (archive_in.c) --> unpack_tar, unpack_zip (zip_read.c)
 *          --> landing_* (landing.c)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "files/core/call.h"

/* --- out */
struct packer {
    struct files_call *call;
    uint64_t written;   /* bytes of the archive so far */
    struct buf central; /* zip: what is told again at its end */
    uint64_t entries;
    struct squeeze *squeeze; /* zip_write.c's */
    size_t n;
    char bytes[FILES_PIECE];
};

struct pack_item {
    const char *name; /* relative, without a slash at its end */
    struct stat st;
    const char *target; /* of a symbolic link; with `hard`, the earlier name of the same file */
    bool hard;
    int fd; /* a regular file's */
};

void pack_bytes(struct packer *p, const void *bytes, size_t n);
void pack_flush(struct packer *p);
void tar_item(struct packer *p, const struct pack_item *item);
void tar_finish(struct packer *p);
void zip_item(struct packer *p, const struct pack_item *item);
void zip_finish(struct packer *p);
void zip_clear(struct packer *p);
/* What an entry takes at the end of a zip, which is kept until then. */
size_t zip_central_size(size_t name_length);

enum {
    PACK_NAME = 60000, /* longest name of an entry: a zip's length of it has 16 bits */
    ZIP_CENTRAL_MOST = 64 << 20,
};

/* --- in */
/* Once, before the process joins a sandbox: what libarchive would else look for in there. */
void files_archive_prepare(void);
struct landing;
/* Both give 0 or -errno; -EBADMSG: it is no archive of this kind, -E2BIG: more than is taken (for
 * both landing_fail has said why), -EPIPE: the body ended early. */
int unpack_tar(struct landing *p);
int unpack_zip(struct landing *p);
