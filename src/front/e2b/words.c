/* SPDX-License-Identifier: Apache-2.0 */
/* Our errors as E2B's clients know them: what class of theirs they raise hangs on status, code and,
 * of 502, the words. */
#include <string.h>

#include "base/bytes.h"
#include "front/e2b/e2b.h"

static const char *message_of(const json_t *object, const char **ret_code)
{
    const json_t *error = json_object_get(object, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *code = json_string_value(json_object_get(error, "code"));

    *ret_code = code ? code : "";
    return message ? message : "the daemon gave no reason";
}

static bool is_ours(const json_t *object)
{
    return json_is_object(json_object_get(object, "error"));
}

json_t *e2b_words(struct call *call, int *status, json_t *object)
{
    const char *code;

    (void)call;
    if (*status < 400 || !is_ours(object)) {
        bool is_empty = json_is_object(object) && json_object_size(object) == 0;
        if (*status >= 400 || !is_empty)
            return object;
        json_decref(object);
        return NULL; /* without a body it stays without one */
    }
    const char *message = message_of(object, &code);
    if (strcmp(code, "disk_full") == 0)
        *status = 507;
    if (strcmp(code, "is_directory") == 0 || strcmp(code, "not_a_directory") == 0)
        *status = 400;
    json_t *said = json_pack("{s:i, s:s}", "code", *status, "message", message);
    json_decref(object);
    return said;
}

const char *e2b_rpc_code(int status, const char *ours, int *ret_status)
{
    static const struct {
        int status;
        int theirs;
        const char *code;
    } table[] = {{400, 400, "invalid_argument"},    {401, 401, "unauthenticated"},
                 {403, 403, "permission_denied"},   {404, 404, "not_found"},
                 {409, 400, "failed_precondition"}, {413, 429, "resource_exhausted"},
                 {429, 429, "resource_exhausted"},  {501, 501, "unimplemented"},
                 {502, 502, "unavailable"},         {503, 503, "unavailable"},
                 {504, 504, "deadline_exceeded"},   {507, 429, "resource_exhausted"}};

    if (strcmp(ours, "unsupported") == 0)
        status = 501;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].status == status) {
            *ret_status = table[i].theirs;
            return table[i].code;
        }
    }
    *ret_status = 500;
    return "internal";
}

json_t *e2b_rpc_words(struct call *call, int *status, json_t *object)
{
    const char *ours;

    (void)call;
    if (*status < 400 || !is_ours(object))
        return object;
    const char *message = message_of(object, &ours);
    const char *code = e2b_rpc_code(*status, ours, status);
    json_t *said = json_pack("{s:s, s:s}", "code", code, "message", message);
    json_decref(object);
    return said;
}

json_t *e2b_port_words(struct call *call, int *status, json_t *object)
{
    const char *code = json_string_value(json_object_get(json_object_get(object, "error"), "code"));
    bool closed = code && strncmp(code, "port_", 5) == 0;

    if (*status < 500 || !closed)
        return e2b_words(call, status, object);
    *status = 502;
    json_t *said = json_pack("{s:s, s:s, s:i, s:i}", "sandboxId", call->workspace.id, "message",
                             "The sandbox is running but port is not open", "port",
                             (int)call->number, "code", 502);
    json_decref(object);
    return said;
}
