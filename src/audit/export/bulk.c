/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/export/bulk.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void say(struct bulk_item *item, json_int_t status, const json_t *error)
{
    const char *type = json_string_value(json_object_get(error, "type"));
    const char *reason = json_string_value(json_object_get(error, "reason"));

    snprintf(item->reason, sizeof(item->reason), "status %lld%s%s%s%s", (long long)status,
             type ? ", " : "", type ? type : "", reason ? ": " : "", reason ? reason : "");
    /* Ends up in files and logs: no control characters, and no character cut in two. */
    for (char *c = item->reason; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 0x7f)
            *c = '?';
}

/* Anything but a clear no is tried again: rights that are missing, an index that is not there yet
 * and a full disk are mended by people, and until then nothing may be lost. */
static enum bulk_verdict judge_status(json_int_t status)
{
    if ((status >= 200 && status < 300) || status == 409)
        return BULK_DONE;
    return status == 400 || status == 413 ? BULK_DEAD : BULK_RETRY;
}

static bool judge_item(const json_t *answer, struct bulk_item *item)
{
    const json_t *one = json_object_get(answer, "create");
    const char *id = json_string_value(json_object_get(one, "_id"));
    const json_t *status = json_object_get(one, "status");

    if (json_object_size(answer) != 1 || !id || strcmp(id, item->id) != 0 ||
        !json_is_integer(status))
        return false;
    item->verdict = judge_status(json_integer_value(status));
    item->reason[0] = '\0';
    if (item->verdict != BULK_DONE)
        say(item, json_integer_value(status), json_object_get(one, "error"));
    return true;
}

bool bulk_judge(const char *answer, size_t n, struct bulk_item **items, size_t count)
{
    json_t *root = json_loadb(answer, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(root, "items");
    bool good = json_is_array(list) && json_array_size(list) == count &&
                json_is_boolean(json_object_get(root, "errors"));

    for (size_t i = 0; good && i < count; i++)
        good = judge_item(json_array_get(list, i), items[i]);
    /* What was said of some is not taken when the rest is not to be believed. */
    for (size_t i = 0; !good && i < count; i++) {
        items[i]->verdict = BULK_RETRY;
        items[i]->reason[0] = '\0';
    }
    json_decref(root);
    return good;
}

bool bulk_is_own_error(const char *answer, size_t n, long status)
{
    json_t *root = json_loadb(answer, n, 0, NULL);
    bool own = json_integer_value(json_object_get(root, "status")) == status &&
               json_is_object(json_object_get(root, "error"));

    json_decref(root);
    return own;
}
