/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/findings.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

int plan_json_bytes(json_t *object, const char *name, const char *bytes)
{
    scoped_buf struct buf b = {0};
    char key[32];
    size_t n = strlen(bytes);

    buf_init(&b, 2 * n + 8);
    if (bytes_are_utf8(bytes, n))
        return json_object_set_new(object, name, json_stringn(bytes, n));
    bytes_add_base64(&b, bytes, n);
    snprintf(key, sizeof(key), "%s_b64", name);
    return buf_done(&b) < 0 ? -1 : json_object_set_new(object, key, json_stringn(b.p, b.n));
}

/* Messages name files, whose names are any bytes; a name may also have been cut in a character. */
static json_t *words(const char *message)
{
    char text[PLAN_MESSAGE];
    size_t n = strnlen(message, sizeof(text) - 1);

    memcpy(text, message, n);
    for (size_t i = 0; i < n && !bytes_are_utf8(text, n); i++) {
        if ((unsigned char)text[i] >= 0x80)
            text[i] = '?';
    }
    return json_stringn(text, n);
}

json_t *plan_finding_json(const struct plan *plan, const struct plan_finding *finding)
{
    json_t *object = json_object();
    int r = 0;

    if (!object)
        return NULL;
    if (finding->operation != PLAN_NOBODY) {
        const struct plan_operation *operation = &plan->operations[finding->operation];
        r = json_object_set_new(object, "operation", json_integer(finding->operation));
        if ((unsigned)operation->kind < PLAN_KIND_COUNT_)
            r |= json_object_set_new(object, "op", json_string(plan_kind_names[operation->kind]));
    }
    if (finding->path)
        r |= plan_json_bytes(object, "path", finding->path);
    r |= json_object_set_new(object, "rule", json_string(finding->rule));
    r |= json_object_set_new(object, "severity",
                             json_string(plan_severity_names[finding->severity]));
    r |= json_object_set_new(object, "message", words(finding->message));
    r |= json_object_set_new(object, "remedy", json_string(finding->remedy));
    if (r == 0)
        return object;
    json_decref(object);
    return NULL;
}

int plan_load_any(struct plan *ret, int dir, unsigned char hash[PLAN_HASH], struct err *err)
{
    struct err none;

    if (plan_load(ret, dir, "manifest", hash, err) == 0)
        return 0;
    return err->code == ERR_NOT_FOUND && plan_load(ret, dir, "look", hash, &none) == 0 ? 0 : -1;
}
