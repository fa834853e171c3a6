/* SPDX-License-Identifier: Apache-2.0 */
#include "front/e2b/sandbox.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

bool e2b_find(struct call *call, struct lifetime *ret)
{
    const char *id = call->params[0];
    struct err err;
    int found = store_workspace_get(call->front->store, &call->arena, id, &call->workspace, &err);

    if (found < 0) {
        call_fail(call, &err);
        return false;
    }
    if (found == 1 && actor_may_see(&call->actor, call->workspace.owner, id) &&
        e2b_lifetime(call, ret))
        return true;
    call_error(call, 404, "not_found",
               "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
    return false;
}

const char *sandbox_note(struct call *call, const struct store_workspace *w, const char *name)
{
    char label[64];
    json_t *labels = json_parsed(w->labels);

    snprintf(label, sizeof(label), E2B_LABEL "%s", name);
    const char *text = json_string_value(json_object_get(labels, label));
    const char *copy = text ? arena_copy(&call->arena, text, strlen(text)) : NULL;
    json_decref(labels);
    return copy ? copy : "";
}

json_t *sandbox_metadata(const struct store_workspace *w)
{
    json_t *labels = json_parsed(w->labels);
    json_t *shown = json_object();
    const char *name;
    json_t *value;

    json_object_foreach(labels, name, value)
    {
        if (strncmp(name, E2B_LABEL, strlen(E2B_LABEL)) != 0 && json_is_string(value))
            json_object_set(shown, name, value);
    }
    json_decref(labels);
    return shown;
}

static const char *template_of(struct call *call, const struct store_workspace *w)
{
    const char *name = sandbox_note(call, w, "template");

    return *name ? name : "base";
}

/* Below which names of ports are reached: what the client calls us by, without "api.". None is
 * below a number but that of this host itself. */
static json_t *domain(const struct call *call)
{
    const char *host = http_header(http_request_of(call->x), "host");
    const char *colon = host ? strrchr(host, ':') : NULL;

    if (!host || strlen(host) > 255)
        return json_null();
    if (strncasecmp(host, "api.", 4) == 0)
        return json_string(host + 4);
    if (strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0)
        return json_sprintf("localhost%s", colon ? colon : "");
    if (host[0] == '[' || strspn(host, "0123456789.:") == strlen(host))
        return json_null();
    return json_string(host);
}

json_t *sandbox_brief(struct call *call, const struct lifetime *l)
{
    const struct store_workspace *w = &call->workspace;
    json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "sandboxID", w->id, "templateID",
                               template_of(call, w), "clientID", "carrel", "envdVersion",
                               E2B_VERSION, "envdAccessToken", l->token, "domain", domain(call));

    json_object_set_new(object, "trafficAccessToken",
                        l->private_ports ? json_string(l->port_token) : json_null());
    return object;
}

json_t *sandbox_listed(struct call *call, const struct store_workspace *w, const struct lifetime *l)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    long pages = sysconf(_SC_PHYS_PAGES);
    int64_t ends = w->ends_ms ? w->ends_ms : w->updated_ms;

    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:s, s:s, s:o, s:[], s:s}",
                     "sandboxID", w->id, "templateID", template_of(call, w), "clientID", "carrel",
                     "startedAt", time_json(l->started_ms), "endAt", time_json(ends), "cpuCount",
                     (json_int_t)(cpus > 0 ? cpus : 1), "memoryMB",
                     (json_int_t)(pages > 0 ? pages / 256 : 512), "diskSizeMB", (json_int_t)10240,
                     "state", l->paused ? "paused" : "running", "envdVersion", E2B_VERSION,
                     "metadata", sandbox_metadata(w), "volumeMounts", "alias",
                     template_of(call, w));
}

static bool pauses(const struct lifetime *l)
{
    return strcmp(l->at_end, "sleep") == 0 || strcmp(l->at_end, "freeze") == 0;
}

json_t *sandbox_detail(struct call *call, const struct lifetime *l)
{
    json_t *object = sandbox_listed(call, &call->workspace, l);
    json_t *policy = json_parsed(call->workspace.policy);
    const json_t *network = json_object_get(policy, "network");
    const char *word = json_string_value(network);
    bool internet = network && !(word && strcmp(word, "none") == 0);

    json_object_update_new(
        object, json_pack("{s:s, s:o, s:b, s:{s:b}, s:{s:s, s:b}}", "envdAccessToken", l->token,
                          "domain", domain(call), "allowInternetAccess", internet, "network",
                          "allowPublicTraffic", !l->private_ports, "lifecycle", "onTimeout",
                          pauses(l) ? "pause" : "kill", "autoResume", l->resume));
    if (l->paused)
        json_object_set_new(
            object, "pauseMode",
            json_string(front_is_frozen(call->front, call->workspace.id) ? "full" : "filesystem"));
    json_decref(policy);
    return object;
}
