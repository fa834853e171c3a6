/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/store_job.h"

#include <string.h>

#include "base/pack.h"
#include "protocol/broker.h"
#include "protocol/store.h"

/* With a workspace, or about the store alone. */
static const struct {
    const char *name;
    bool has_workspace;
} verbs[] = {{"check", false}, {"mirror", true}, {"hydrate", true}};

void store_job_pack(struct buf *b, uint64_t tag, const struct store_job *job)
{
    pack_u64(b, tag);
    pack_string(b, job->store);
    pack_string(b, job->verb);
    pack_string(b, job->bucket);
    pack_string(b, job->workspace);
    pack_list(b, job->exclude);
    pack_u64(b, job->take_over);
}

static bool is_pattern(const char *pattern)
{
    size_t n = strlen(pattern);

    return n > 0 && n <= STORE_PATTERN && pattern[0] != '-';
}

static bool is_sane(const struct store_job *job)
{
    for (size_t i = 0; job->exclude[i]; i++) {
        if (!is_pattern(job->exclude[i]))
            return false;
    }
    if (!protocol_id_is_valid(job->store))
        return false;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, job->verb) != 0)
            continue;
        if (verbs[i].has_workspace)
            return protocol_id_is_valid(job->bucket) && protocol_id_is_valid(job->workspace);
        return !*job->bucket && !*job->workspace;
    }
    return false;
}

bool store_job_unpack(char *bytes, size_t n, struct arena *arena, uint64_t *ret_tag,
                      struct store_job *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    *ret_tag = unpack_u64(&u);
    ret->store = unpack_bounded(&u, PROTOCOL_ID);
    ret->verb = unpack_bounded(&u, PROTOCOL_ID);
    ret->bucket = unpack_bounded(&u, PROTOCOL_ID);
    ret->workspace = unpack_bounded(&u, PROTOCOL_ID);
    ret->exclude = unpack_list(&u, arena, STORE_EXCLUDES);
    ret->take_over = unpack_upto(&u, 1) == 1;
    return unpack_done(&u) && ret->exclude && is_sane(ret);
}

void protocol_pack_store(struct buf *b, uint64_t tag, const char *name, const char *text)
{
    pack_u64(b, tag);
    pack_string(b, name);
    pack_string(b, text);
}

bool protocol_unpack_store(char *bytes, size_t n, uint64_t *ret_tag, const char **ret_name,
                           char **ret_text)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    *ret_tag = unpack_u64(&u);
    *ret_name = unpack_bounded(&u, PROTOCOL_ID);
    /* It points into the message, which is the caller's to change. */
    *ret_text = (char *)(size_t)unpack_bounded(&u, STORE_TEXT);
    return unpack_done(&u) && protocol_id_is_valid(*ret_name);
}
