/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of files in an address, as any client may encode them. What is taken is absolute, stays
 * below where it begins, and encoded again comes out as the same bytes. */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "http/server.h"
#include "protocol/files.h"

static void must_stay_below(const char *path)
{
    MUST(path[0] == '/' && strlen(path) < FILES_PATH);
    MUST(!strstr(path, "//") && !strstr(path, "/../") && !strstr(path, "/./"));
    const char *last = strrchr(path, '/');
    MUST(strcmp(last, "/..") != 0 && strcmp(last, "/.") != 0);
    MUST(path[1] == '\0' || last[1] != '\0');
}

static void encode(const char *path, bool slashes, char *to)
{
    for (; *path; path++) {
        if (*path == '/' && !slashes)
            *to++ = '/';
        else
            to += snprintf(to, 4, "%%%02x", (unsigned char)*path);
    }
    *to = '\0';
}

static void must_be_read_again(const char *path)
{
    static char encoded[3 * FILES_PATH + 2];
    static char again[3 * FILES_PATH + 2];

    encode(path, false, encoded);
    MUST(http_decode_path(encoded, again) && strcmp(path, again) == 0);
    encoded[0] = '/';
    encode(path, true, encoded + 1);
    MUST(http_decode_path(encoded, again) && strcmp(path, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char *path = malloc(size + 2);

    if (text && path) {
        memcpy(text, data, size);
        text[size] = '\0';
        if (http_decode_path(text, path) && files_path_is_valid(path)) {
            must_stay_below(path);
            must_be_read_again(path);
        }
    }
    free(text);
    free(path);
    return 0;
}
