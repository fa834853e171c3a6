/* SPDX-License-Identifier: Apache-2.0 */
/* Their networks are lists of addresses, ours of names. What can be said by names is; "everything"
 * is what the setting e2b_network says. */
#include <string.h>

#include "front/e2b/network.h"
#include "front/e2b/sandbox.h"

#define EVERYTHING "0.0.0.0/0"

static bool refuse(struct call *call, const char *what)
{
    call_error(call, 400, "unsupported",
               "\"%.200s\" is not supported by this daemon: what is reached is said by names of "
               "hosts, in allowOut",
               what);
    return false;
}

static bool is_everything(const char *text)
{
    return strcmp(text, EVERYTHING) == 0 || strcmp(text, "::/0") == 0;
}

static bool is_address(const char *text)
{
    return strspn(text, "0123456789./") == strlen(text) || strchr(text, ':');
}

/* The setting's, as a list. */
static json_t *usual(struct call *call)
{
    const char *text = call->front->settings->e2b_network;
    json_t *list = json_array();

    while (*text) {
        size_t n = strcspn(text, ", ");
        if (n)
            json_array_append_new(list, json_stringn(text, n));
        text += n + (text[n] != '\0');
    }
    return list;
}

/* Names into the list; whether everything is wanted besides. False: answered. */
static bool read_allowed(struct call *call, json_t *allowed, json_t *list, bool *ret_everything)
{
    json_t *one;
    size_t i;

    json_array_foreach(allowed, i, one)
    {
        const char *text = json_string_value(one);
        if (text && is_everything(text))
            *ret_everything = true;
        else if (!text || is_address(text))
            return refuse(call, text ? text : "network.allowOut");
        else
            json_array_append(list, one);
    }
    return true;
}

static bool read_denied(struct call *call, json_t *denied, bool *ret_everything)
{
    json_t *one;
    size_t i;

    json_array_foreach(denied, i, one)
    {
        const char *text = json_string_value(one);
        if (!text || !is_everything(text))
            return refuse(call, text ? text : "network.denyOut");
        *ret_everything = true;
    }
    return true;
}

bool network_wanted(struct call *call, const json_t *internet, const json_t *lists, json_t **ret)
{
    json_t *allowed = json_object_get(lists, "allowOut");
    json_t *names = json_array();
    bool nothing = json_is_false(internet);
    bool everything = json_array_size(allowed) == 0;

    *ret = NULL;
    bool fits = json_object_size(json_object_get(lists, "rules")) == 0 &&
                json_object_size(json_object_get(lists, "egressProxy")) == 0 &&
                json_array_size(json_object_get(lists, "dnsServers")) == 0;
    if (!fits)
        (void)refuse(call, "network.rules, egressProxy or dnsServers");
    if (!fits || !read_denied(call, json_object_get(lists, "denyOut"), &nothing) ||
        !read_allowed(call, allowed, names, &everything)) {
        json_decref(names);
        return false;
    }
    if (everything && !nothing) {
        json_t *more = usual(call);
        json_array_extend(names, more);
        json_decref(more);
    }
    *ret = json_array_size(names) ? json_pack("{s:O}", "allow", names) : json_string("none");
    json_decref(names);
    return true;
}

static void updated(struct e2b *e, int status, json_t *object)
{
    if (status >= 400)
        e2b_refuse(e, status, object);
    else
        call_empty(e->call);
}

void network_update(struct call *call)
{
    const json_t *internet = json_object_get(call->body, "allow_internet_access");
    json_t *network = NULL;
    struct lifetime l;

    if (!e2b_find(call, &l) || !network_wanted(call, internet, call->body, &network))
        return;
    json_t *policy = json_parsed(call->workspace.policy);
    json_object_set_new(policy, "network", network);
    struct e2b *e = e2b_begin(call, NULL);
    if (e)
        e2b_ask(e, HTTP_PATCH, json_pack("{s:O}", "policy", policy), updated, "/v1/workspaces/%s",
                call->workspace.id);
    json_decref(policy);
}
