/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/net/try */
#include "front/network/routes.h"

#include <stdlib.h>
#include <string.h>

#include "base/pack.h"
#include "front/core/sandbox_request.h"
#include "policy/network.h"
#include "protocol/broker.h"
#include "protocol/egress.h"

const struct route network_routes[] = {
    {HTTP_GET, "/v1/workspaces/{ws}/net/try", READERS, 0, 0, network_try, "url", IN_PLAN},
    {HTTP_GET, "/v1/secrets", OWNERS, 0, 0, secrets_list, "owner", NOT_IN_PLAN},
    {HTTP_PUT, "/v1/secrets/{name}", OWNERS, BODY_SMALL, 0, secret_put, "owner", NOT_IN_PLAN},
    {HTTP_DELETE, "/v1/secrets/{name}", OWNERS, 0, 0, secret_remove, "owner", NOT_IN_PLAN},
    ROUTES_END,
};

enum {
    MESSAGE_BYTES = 4000000, /* of the broker's protocol */
    LONGEST_URL = 2048,
    HTTPS = 443,
    HTTP = 80,
};

/* --- the broker is told --- */

/* What is wrong with a policy a command is told. */
static void ignore_refusal(struct call *call, int status, json_t *object)
{
    (void)call;
    (void)status;
    json_decref(object);
}

static bool ask(struct call *call, const struct sandbox_request *wanted, call_heard *then)
{
    uint64_t tag = call_expect(call, then);
    struct buf b;

    if (!tag)
        return false;
    buf_init(&b, MESSAGE_BYTES);
    protocol_pack_exec(&b, tag, &wanted->message);
    broker_send(call->front->channel, REQUEST_NETWORK, &b);
    return true;
}

static bool make_request(struct call *call, struct sandbox_request *ret)
{
    static const char *const argv[] = {"net", NULL};
    char id[28];

    if (!sandbox_request_plain(call, argv, ret))
        return false;
    make_id('x', id);
    ret->message.exec = arena_copy(&call->arena, id, strlen(id));
    return ret->message.exec != NULL;
}

bool network_tell(struct call *call, call_heard *then)
{
    void (*refused)(struct call *, int, json_t *) = call->refused;
    struct sandbox_request wanted;

    if (!front_is_awake(call->front, call->workspace.id))
        return false;
    call->refused = ignore_refusal;
    bool made = make_request(call, &wanted);
    call->refused = refused;
    return made && ask(call, &wanted, then);
}

/* --- which rule would decide --- */

struct trial {
    const char *url;
    char name[NETWORK_NAME];
    uint16_t port;
    uint64_t net; /* enum carrel_net of the policy */
};

/* "https://HOST[:PORT]/…", "http://…", or "HOST[:PORT]", which is of https. */
static bool parse_url(const char *url, struct trial *ret)
{
    const char *at = strstr(url, "://");
    bool plain = at && strncmp(url, "http://", 7) == 0;
    char *end;

    if (at && !plain && strncmp(url, "https://", 8) != 0)
        return false;
    at = at ? at + 3 : url;
    size_t n = strcspn(at, "/?#");
    const char *colon = memchr(at, ':', n);
    size_t host = colon ? (size_t)(colon - at) : n;
    ret->port = plain ? HTTP : HTTPS;
    if (colon) {
        unsigned long port = strtoul(colon + 1, &end, 10);
        if (end != at + n || port < 1 || port > UINT16_MAX || colon[1] < '0' || colon[1] > '9')
            return false;
        ret->port = (uint16_t)port;
    }
    return network_name(at, host, ret->name);
}

static void answer_trial(struct call *call, const struct trial *t, const char *rule,
                         const char *why, bool allowed)
{
    call_json(call, 200,
              json_pack("{s:s, s:s, s:i, s:b, s:s?, s:s}", "url", t->url, "host", t->name, "port",
                        (int)t->port, "allowed", allowed, "rule", rule, "why", why));
}

static size_t parse_rules(const char *const *texts, struct network_rule *rules)
{
    struct err err;
    size_t n = 0;

    while (texts && texts[n] && n < NETWORK_MOST &&
           network_parse_rule(texts[n], &rules[n], &err) == 0)
        n++;
    return n;
}

static void decide(struct call *call, const struct trial *t, const char *const *texts)
{
    struct network_rule *rules = arena_alloc(&call->arena, NETWORK_MOST * sizeof(*rules));
    char text[NETWORK_RULE];

    if (!rules) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    size_t n = parse_rules(texts, rules);
    const struct network_rule *rule = network_decide(rules, n, t->name, t->port);
    if (!rule && network_decide(rules, n, t->name, 0))
        answer_trial(call, t, NULL, "the name is allowed, but not at that port", false);
    else if (!rule)
        answer_trial(call, t, NULL, "no rule allows it", false);
    else
        answer_trial(call, t, network_rule_text(rule, text),
                     rule->deny
                         ? "a rule denies it"
                         : "a rule allows it; where it leads, and what is sent, is looked at "
                           "when it is connected to",
                     !rule->deny);
}

static void heard_rules(struct call *call, struct answer *answer)
{
    const struct trial *t = call->context;
    const char **texts = call_texts(call, answer, EGRESS_RULES);

    if (texts)
        decide(call, t, texts);
}

void network_try(struct call *call)
{
    struct trial *t = arena_alloc(&call->arena, sizeof(*t));
    struct sandbox_request wanted;

    if (!t) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    if (!call_text(call, "url", &t->url))
        return;
    if (!t->url || strlen(t->url) > LONGEST_URL || !parse_url(t->url, t)) {
        call_bad_field(call, "url",
                       "an address such as https://api.example.com/ whose host is a "
                       "name");
        return;
    }
    if (!make_request(call, &wanted))
        return;
    if (wanted.message.spec.net == CARREL_NET_HOST) {
        answer_trial(call, t, NULL, "the policy says network host: whatever the host reaches",
                     true);
        return;
    }
    if (wanted.message.spec.net != CARREL_NET_ALLOW) {
        answer_trial(call, t, NULL, "the policy names no hosts (\"network\": {\"allow\": [...]})",
                     false);
        return;
    }
    call->context = t;
    if (!ask(call, &wanted, heard_rules))
        call_error(call, 503, "unavailable", "out of memory");
}
