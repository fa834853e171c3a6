/* SPDX-License-Identifier: Apache-2.0 */
#include "front/mcp/fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"

enum {
    STEP_MS = 50,
};

#define PNG                                                                                        \
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJg" \
    "gg=="
#define WAV   "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
#define IMAGE "{'type':'image','data':'" PNG "','mimeType':'image/png'}"
#define ASK(message, name, type)                                                                   \
    "{'method':'elicitation/create','params':{'mode':'form','message':'" message                   \
    "','requestedSchema':{'type':'object','properties':{'" name "':{'type':'" type                 \
    "'}},'required':['" name "']}}}"
#define SAMPLE(text, most)                                                                         \
    "{'method':'sampling/createMessage','params':{'messages':[{'role':'user','content':{'type':"   \
    "'text','text':'" text "'}}],'maxTokens':" most "}}"
#define ROOTS "{'method':'roots/list','params':{}}"

/* JSON, written with ' for ". */
static json_t *parsed(const char *text)
{
    char *copy = strdup(text);

    for (char *p = copy; p && *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *value = copy ? json_loads(copy, JSON_DECODE_ANY, NULL) : NULL;
    free(copy);
    return value;
}

/* --- what is always the same --- */

struct fixed {
    const char *name;
    const char *result;
};

static const struct fixed tools[] = {
    {"test_simple_text",
     "{'content':[{'type':'text','text':'This is a simple text response for testing.'}]}"},
    {"test_image_content", "{'content':[" IMAGE "]}"},
    {"test_audio_content",
     "{'content':[{'type':'audio','data':'" WAV "','mimeType':'audio/wav'}]}"},
    {"test_embedded_resource",
     "{'content':[{'type':'resource','resource':{'uri':'test://embedded-resource','mimeType':"
     "'text/plain','text':'This is an embedded resource content.'}}]}"},
    {"test_multiple_content_types",
     "{'content':[{'type':'text','text':'Multiple content types test:'}," IMAGE
     ",{'type':'resource','resource':{'uri':'test://mixed-content-resource','mimeType':"
     "'application/json','text':'{\\'test\\':\\'data\\',\\'value\\':123}'}}]}"},
    {"test_error_handling", "{'isError':true,'content':[{'type':'text','text':'This tool "
                            "intentionally returns an error for testing'}]}"},
    /* These are done below. */
    {"test_tool_with_progress", NULL},
    {"test_tool_with_logging", NULL},
    {"test_logging_tool", NULL},
    {"test_sampling", NULL},
    {"test_elicitation", NULL},
    {"test_elicitation_sep1034_defaults", NULL},
    {"test_elicitation_sep1330_enums", NULL},
    {"test_missing_capability", NULL},
    {"test_streaming_elicitation", NULL},
    {"test_trigger_tool_change", NULL},
    {"test_trigger_prompt_change", NULL},
    {"test_input_required_result_elicitation", NULL},
    {"test_input_required_result_sampling", NULL},
    {"test_input_required_result_list_roots", NULL},
    {"test_input_required_result_request_state", NULL},
    {"test_input_required_result_multiple_inputs", NULL},
    {"test_input_required_result_multi_round", NULL},
    {"test_input_required_result_tampered_state", NULL},
    {"test_input_required_result_capabilities", NULL},
};

static const struct fixed prompts[] = {
    {"test_simple_prompt", "[{'role':'user','content':{'type':'text','text':'This is a simple "
                           "prompt for testing.'}}]"},
    {"test_prompt_with_arguments", NULL},
    {"test_prompt_with_embedded_resource", NULL},
    {"test_prompt_with_image", "[{'role':'user','content':" IMAGE
                               "},{'role':'user','content':{'type':'text','text':'Please analyze "
                               "the image above.'}}]"},
    {"test_input_required_result_prompt", NULL},
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

json_t *fixtures_capabilities(void)
{
    return parsed("{'tools':{'listChanged':true},'resources':{'subscribe':true,'listChanged':true},"
                  "'prompts':{'listChanged':true},'logging':{},'completions':{}}");
}

void fixtures_tools(json_t *list)
{
    for (size_t i = 0; i < COUNT(tools); i++) {
        json_t *tool = parsed("{'description':'A fixture.','inputSchema':{'type':'object'}}");
        json_object_set_new(tool, "name", json_string(tools[i].name));
        json_array_append_new(list, tool);
    }
}

void fixtures_resources(json_t *list)
{
    json_array_extend(
        list, parsed("[{'uri':'test://static-text','name':'static-text','description':'A text.',"
                     "'mimeType':'text/plain'},{'uri':'test://static-binary','name':"
                     "'static-binary','description':'Bytes.','mimeType':'image/png'},{'uri':"
                     "'test://watched-resource','name':'watched-resource','description':'It could "
                     "change.','mimeType':'text/plain'}]"));
}

void fixtures_templates(json_t *list)
{
    json_array_append_new(list, parsed("{'uriTemplate':'test://template/{id}/data','name':"
                                       "'template','description':'Data for an id.','mimeType':"
                                       "'application/json'}"));
}

static void tell(struct mcp_ask *ask, json_t *result)
{
    mcp_result(ask, result);
}

static void tell_text(struct mcp_ask *ask, const char *text)
{
    tell(ask, json_pack("{s:[{s:s, s:s}]}", "content", "type", "text", "text", text));
}

bool fixtures_read(struct mcp_ask *ask, const char *uri)
{
    char id[64];
    json_t *content = json_pack("{s:s}", "uri", uri);

    if (strcmp(uri, "test://static-text") == 0 || strcmp(uri, "test://watched-resource") == 0) {
        json_object_update(content,
                           parsed("{'mimeType':'text/plain','text':'This is the content of the "
                                  "static text resource.'}"));
    } else if (strcmp(uri, "test://static-binary") == 0) {
        json_object_update(content, parsed("{'mimeType':'image/png','blob':'" PNG "'}"));
    } else if (sscanf(uri, "test://template/%63[^/]/data", id) == 1) {
        json_object_set_new(content, "mimeType", json_string("application/json"));
        json_object_set_new(content, "text",
                            json_sprintf("{\"id\":\"%s\",\"templateTest\":true,\"data\":\"Data for "
                                         "ID: %s\"}",
                                         id, id));
    } else {
        json_decref(content);
        return false;
    }
    json_t *result = json_pack("{s:[o]}", "contents", content);
    if (ask->modern)
        json_object_update(result, parsed("{'ttlMs':0,'cacheScope':'private'}"));
    tell(ask, result);
    return true;
}

/* --- what asks the client back: the newer protocol --- */

static const json_t *capability(const struct mcp_ask *ask, const char *name)
{
    return json_object_get(
        json_object_get(json_object_get(ask->params, "_meta"), MCP_META "clientCapabilities"),
        name);
}

/* The client's answer to one of our questions, if it is of the kind that was wanted. */
static const json_t *reply(const struct mcp_ask *ask, const char *key, const char *member)
{
    const json_t *one = json_object_get(json_object_get(ask->params, "inputResponses"), key);

    return json_object_get(one, member) ? one : NULL;
}

/* Takes the questions. */
static void require(struct mcp_ask *ask, json_t *questions, const char *state)
{
    json_t *result =
        json_pack("{s:s, s:o}", "resultType", "input_required", "inputRequests", questions);

    if (state) {
        char seal[FRONT_HASH];
        char text[200];
        snprintf(text, sizeof(text), "%s|%s", ask->front->admin_hash, state);
        hash_hex(text, strlen(text), seal);
        json_object_set_new(result, "requestState", json_sprintf("%s.%s", state, seal));
    }
    tell(ask, result);
}

/* Whether the state is one that we have given; ret: without its seal. False: answered. */
static bool take_state(struct mcp_ask *ask, char ret[32])
{
    const char *state = json_string_value(json_object_get(ask->params, "requestState"));
    const char *dot = state ? strchr(state, '.') : NULL;
    char seal[FRONT_HASH];
    char text[200];

    *ret = '\0';
    if (dot && dot - state < 32) {
        memcpy(ret, state, (size_t)(dot - state));
        ret[dot - state] = '\0';
        snprintf(text, sizeof(text), "%s|%s", ask->front->admin_hash, ret);
        hash_hex(text, strlen(text), seal);
        if (strcmp(seal, dot + 1) == 0)
            return true;
    }
    mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "requestState is not one of ours");
    return false;
}

static json_t *question(const char *key, const char *text)
{
    return json_pack("{s:o}", key, parsed(text));
}

static void ask_name(struct mcp_ask *ask)
{
    const json_t *one = reply(ask, "user_name", "content");
    const char *name = json_string_value(json_object_get(json_object_get(one, "content"), "name"));
    char text[200];

    if (!name) {
        require(ask, question("user_name", ASK("What is your name?", "name", "string")), NULL);
        return;
    }
    snprintf(text, sizeof(text), "Hello, %s!", name);
    tell_text(ask, text);
}

static void ask_steps(struct mcp_ask *ask)
{
    char state[32];

    if (!json_object_get(ask->params, "requestState")) {
        require(ask, question("step1", ASK("Step 1: What is your name?", "name", "string")), "one");
    } else if (take_state(ask, state)) {
        if (strcmp(state, "one") == 0)
            require(
                ask,
                question("step2", ASK("Step 2: What is your favorite color?", "color", "string")),
                "two");
        else
            tell_text(ask, "all steps are done");
    }
}

static void ask_several(struct mcp_ask *ask, bool only_declared)
{
    json_t *all = json_object();
    char state[32];

    if (json_object_get(ask->params, "requestState")) {
        if (take_state(ask, state))
            tell_text(ask, "all is there");
        return;
    }
    if (json_object_get(ask->params, "inputResponses")) {
        tell_text(ask, "all is there");
        return;
    }
    if (!only_declared || capability(ask, "elicitation"))
        json_object_set_new(all, "user_name", parsed(ASK("What is your name?", "name", "string")));
    if (!only_declared || capability(ask, "sampling"))
        json_object_set_new(all, "greeting", parsed(SAMPLE("Generate a greeting", "50")));
    if (!only_declared || capability(ask, "roots"))
        json_object_set_new(all, "client_roots", parsed(ROOTS));
    require(ask, all, only_declared ? NULL : "several");
}

static void ask_state(struct mcp_ask *ask)
{
    char state[32];

    if (!json_object_get(ask->params, "requestState"))
        require(ask, question("confirm", ASK("Please confirm", "ok", "boolean")), "confirm");
    else if (take_state(ask, state))
        tell_text(ask, "state-ok");
}

static void ask_one(struct mcp_ask *ask, const char *key, const char *member, const char *text)
{
    const json_t *one = reply(ask, key, member);
    char *dump = one ? json_dumps(one, JSON_COMPACT) : NULL;

    if (dump)
        tell_text(ask, dump);
    else
        require(ask, question(key, text), NULL);
    free(dump);
}

static bool call_modern(struct mcp_ask *ask, const char *name)
{
    static const char prefix[] = "test_input_required_result_";
    size_t n = sizeof(prefix) - 1;

    if (strcmp(name, "test_streaming_elicitation") == 0) {
        ask_name(ask);
        return true;
    }
    if (strncmp(name, prefix, n) != 0)
        return false;
    name += n;
    if (strcmp(name, "elicitation") == 0)
        ask_name(ask);
    else if (strcmp(name, "sampling") == 0)
        ask_one(ask, "capital_question", "content",
                SAMPLE("What is the capital of France?", "100"));
    else if (strcmp(name, "list_roots") == 0)
        ask_one(ask, "client_roots", "roots", ROOTS);
    else if (strcmp(name, "multiple_inputs") == 0)
        ask_several(ask, false);
    else if (strcmp(name, "capabilities") == 0)
        ask_several(ask, true);
    else if (strcmp(name, "multi_round") == 0)
        ask_steps(ask);
    else
        ask_state(ask);
    return true;
}

/* --- what takes its time, and what asks back in the older protocol --- */

struct fixture {
    struct timer timer;
    struct mcp_ask *ask;
    char name[64];
    unsigned step;
    char id[28]; /* of the request that the client is to answer */
};

void fixtures_left(struct mcp_ask *ask)
{
    struct fixture *f = ask->fixture;

    if (f)
        timer_stop(ask->front->events, &f->timer);
    free(f);
    ask->fixture = NULL;
}

static void do_step(struct fixture *f)
{
    static const char *const words[] = {"Tool execution started", "Tool processing data",
                                        "Tool execution completed"};
    struct mcp_ask *ask = f->ask;
    bool progress = strcmp(f->name, "test_tool_with_progress") == 0;

    if (progress && ask->token)
        mcp_notify(ask, "notifications/progress",
                   json_pack("{s:O, s:i, s:i}", "progressToken", ask->token, "progress",
                             (int)f->step * 50, "total", 100));
    if (!progress)
        mcp_notify(ask, "notifications/message",
                   json_pack("{s:s, s:s}", "level", "info", "data", words[f->step]));
    if (++f->step == 3) {
        tell_text(ask, "done");
        return;
    }
    ignore(timer_set(ask->front->events, &f->timer, now_ms() + STEP_MS));
}

static void ring(struct timer *timer)
{
    do_step((struct fixture *)(void *)timer);
}

static struct fixture *keep(struct mcp_ask *ask, const char *name)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->timer.ring = ring;
    f->ask = ask;
    snprintf(f->name, sizeof(f->name), "%s", name);
    ask->fixture = f;
    return f;
}

static const char enums[] =
    "{'type':'object','properties':{'untitledSingle':{'type':'string','enum':['option1','option2',"
    "'option3']},'titledSingle':{'type':'string','oneOf':[{'const':'value1','title':'First "
    "Option'},{'const':'value2','title':'Second Option'},{'const':'value3','title':'Third "
    "Option'}]},'legacyEnum':{'type':'string','enum':['opt1','opt2','opt3'],'enumNames':['Option "
    "One','Option Two','Option Three']},'untitledMulti':{'type':'array','items':{'type':'string',"
    "'enum':['option1','option2','option3']}},'titledMulti':{'type':'array','items':{'anyOf':[{"
    "'const':'value1','title':'First Choice'},{'const':'value2','title':'Second Choice'},{'const':"
    "'value3','title':'Third Choice'}]}}},'required':[]}";
static const char defaults[] =
    "{'type':'object','properties':{'name':{'type':'string','default':'John Doe'},'age':{'type':"
    "'integer','default':30},'score':{'type':'number','default':95.5},'status':{'type':'string',"
    "'enum':['active','inactive','pending'],'default':'active'},'verified':{'type':'boolean',"
    "'default':true}},'required':[]}";
static const char user[] =
    "{'type':'object','properties':{'username':{'type':'string','description':'The response'},"
    "'email':{'type':'string','description':'The address'}},'required':['username','email']}";

static void ask_client(struct mcp_ask *ask, const char *name)
{
    const json_t *args = json_object_get(ask->params, "arguments");
    json_t *params;
    bool samples = strcmp(name, "test_sampling") == 0;

    if (samples) {
        const char *prompt = json_string_value(json_object_get(args, "prompt"));
        params = parsed("{'maxTokens':100}");
        json_object_set_new(params, "messages",
                            json_pack("[{s:s, s:{s:s, s:s}}]", "role", "user", "content", "type",
                                      "text", "text", prompt ? prompt : ""));
    } else {
        const char *message = json_string_value(json_object_get(args, "message"));
        params = json_pack("{s:s, s:o}", "message", message ? message : "Please answer",
                           "requestedSchema",
                           parsed(strstr(name, "sep1034")   ? defaults
                                  : strstr(name, "sep1330") ? enums
                                                            : user));
    }
    if (!mcp_stream(ask))
        return;
    struct fixture *f = keep(ask, name);
    make_id('f', f->id);
    mcp_send(ask, json_pack("{s:s, s:s, s:s, s:o}", "jsonrpc", "2.0", "id", f->id, "method",
                            samples ? "sampling/createMessage" : "elicitation/create", "params",
                            params));
}

static void answered(struct fixture *f, const json_t *result)
{
    const char *said =
        json_string_value(json_object_get(json_object_get(result, "content"), "text"));
    const char *action = json_string_value(json_object_get(result, "action"));
    char *content = json_dumps(json_object_get(result, "content"), JSON_COMPACT);
    char text[1024];

    if (strcmp(f->name, "test_sampling") == 0)
        snprintf(text, sizeof(text), "LLM response: %s", said ? said : "");
    else
        snprintf(text, sizeof(text), "%s: action=%s, content=%s",
                 strcmp(f->name, "test_elicitation") == 0 ? "User response"
                                                          : "Elicitation completed",
                 action ? action : "", content ? content : "{}");
    free(content);
    f->id[0] = '\0';
    tell_text(f->ask, text);
}

void fixtures_reply(struct mcp_ask *ask)
{
    const char *id = json_string_value(ask->id);

    for (struct mcp_ask *a = ask->front->mcp->asks; id && a; a = a->next) {
        struct fixture *f = a->fixture;
        if (f && *f->id && strcmp(f->id, id) == 0 && strcmp(a->session, ask->session) == 0) {
            answered(f, json_object_get(ask->message, "result"));
            return;
        }
    }
}

/* --- changes that are told --- */

static bool wants(const struct mcp_ask *ask, const char *what)
{
    return json_is_true(json_object_get(json_object_get(ask->params, "notifications"), what));
}

static void announce(struct mcp_ask *ask, const char *what, const char *method)
{
    for (struct mcp_ask *a = ask->front->mcp->asks; a; a = a->next) {
        if (a->streams && a->modern && wants(a, what))
            mcp_notify(a, method,
                       json_pack("{s:{s:O}}", "_meta", MCP_META "subscriptionId", a->id));
    }
    tell_text(ask, "changed");
}

static void subscribe(struct mcp_ask *ask)
{
    static const char *const known[] = {"toolsListChanged", "promptsListChanged",
                                        "resourcesListChanged"};
    json_t *kept = json_object();

    if (!mcp_stream(ask))
        return;
    for (size_t i = 0; i < COUNT(known); i++) {
        if (wants(ask, known[i]))
            json_object_set_new(kept, known[i], json_true());
    }
    mcp_notify(ask, "notifications/subscriptions/acknowledged",
               json_pack("{s:o, s:{s:O}}", "notifications", kept, "_meta",
                         MCP_META "subscriptionId", ask->id));
}

bool fixtures_call(struct mcp_ask *ask, const char *name)
{
    for (size_t i = 0; i < COUNT(tools); i++) {
        if (tools[i].result && strcmp(tools[i].name, name) == 0) {
            tell(ask, parsed(tools[i].result));
            return true;
        }
    }
    if (strcmp(name, "test_missing_capability") == 0) {
        if (capability(ask, "sampling"))
            tell_text(ask, "it is there");
        else
            mcp_error(ask, 400, MCP_LACKS_CAPABILITY,
                      parsed("{'requiredCapabilities':{'sampling':{}}}"), "it needs sampling");
        return true;
    }
    if (strcmp(name, "test_trigger_tool_change") == 0 ||
        strcmp(name, "test_trigger_prompt_change") == 0) {
        bool of_tools = strstr(name, "tool_change");
        announce(ask, of_tools ? "toolsListChanged" : "promptsListChanged",
                 of_tools ? "notifications/tools/list_changed"
                          : "notifications/prompts/list_changed");
        return true;
    }
    if (strcmp(name, "test_logging_tool") == 0) {
        if (json_object_get(json_object_get(ask->params, "_meta"), MCP_META "logLevel") &&
            mcp_stream(ask))
            mcp_notify(ask, "notifications/message", parsed("{'level':'info','data':'a word'}"));
        tell_text(ask, "done");
        return true;
    }
    if (strcmp(name, "test_tool_with_progress") == 0 ||
        strcmp(name, "test_tool_with_logging") == 0) {
        if (mcp_stream(ask))
            do_step(keep(ask, name));
        return true;
    }
    if (ask->modern)
        return call_modern(ask, name);
    if (strncmp(name, "test_elicitation", 16) != 0 && strcmp(name, "test_sampling") != 0)
        return false;
    ask_client(ask, name);
    return true;
}

/* --- prompts, and the rest --- */

static void prompts_list(struct mcp_ask *ask)
{
    json_t *list = json_array();

    for (size_t i = 0; i < COUNT(prompts); i++) {
        json_t *prompt = parsed("{'description':'A fixture.'}");
        json_object_set_new(prompt, "name", json_string(prompts[i].name));
        json_array_append_new(list, prompt);
    }
    json_object_set_new(
        json_array_get(list, 1), "arguments",
        parsed("[{'name':'arg1','required':true},{'name':'arg2','required':true}]"));
    json_object_set_new(json_array_get(list, 2), "arguments",
                        parsed("[{'name':'resourceUri','required':true}]"));
    json_t *result = json_pack("{s:o}", "prompts", list);
    if (ask->modern)
        json_object_update(result, parsed("{'ttlMs':1000,'cacheScope':'private'}"));
    tell(ask, result);
}

static json_t *prompt_text(json_t *text)
{
    return json_pack("{s:s, s:{s:s, s:o}}", "role", "user", "content", "type", "text", "text",
                     text);
}

static void prompts_get(struct mcp_ask *ask)
{
    const char *name = json_string_value(json_object_get(ask->params, "name"));
    const json_t *args = json_object_get(ask->params, "arguments");
    const char *one = json_string_value(json_object_get(args, "arg1"));
    const char *two = json_string_value(json_object_get(args, "arg2"));
    const char *uri = json_string_value(json_object_get(args, "resourceUri"));
    json_t *messages = NULL;

    for (size_t i = 0; name && i < COUNT(prompts); i++) {
        if (prompts[i].result && strcmp(prompts[i].name, name) == 0)
            messages = parsed(prompts[i].result);
    }
    if (name && strcmp(name, "test_prompt_with_arguments") == 0) {
        messages = json_pack("[o]", prompt_text(json_sprintf("Prompt with arguments: arg1='%s', "
                                                             "arg2='%s'",
                                                             one ? one : "", two ? two : "")));
    } else if (name && strcmp(name, "test_prompt_with_embedded_resource") == 0) {
        messages =
            json_pack("[{s:s, s:{s:s, s:{s:s, s:s, s:s}}}, o]", "role", "user", "content", "type",
                      "resource", "resource", "uri", uri ? uri : "", "mimeType", "text/plain",
                      "text", "Embedded resource content for testing.",
                      prompt_text(json_string("Please process the embedded resource above.")));
    } else if (name && strcmp(name, "test_input_required_result_prompt") == 0) {
        if (!reply(ask, "user_context", "content")) {
            require(ask,
                    question("user_context",
                             ASK("What context should the prompt use?", "context", "string")),
                    NULL);
            return;
        }
        messages = json_pack("[o]", prompt_text(json_string("with context")));
    }
    if (messages)
        tell(ask, json_pack("{s:o}", "messages", messages));
    else
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "there is no such prompt");
}

bool fixtures_answer(struct mcp_ask *ask, const char *method)
{
    if (strcmp(method, "prompts/list") == 0)
        prompts_list(ask);
    else if (strcmp(method, "prompts/get") == 0)
        prompts_get(ask);
    else if (strcmp(method, "completion/complete") == 0)
        tell(ask, parsed("{'completion':{'values':['paris','park'],'total':2,'hasMore':false}}"));
    else if (ask->modern && strcmp(method, "subscriptions/listen") == 0)
        subscribe(ask);
    else if (!ask->modern && (strcmp(method, "logging/setLevel") == 0 ||
                              strcmp(method, "resources/subscribe") == 0 ||
                              strcmp(method, "resources/unsubscribe") == 0))
        tell(ask, json_object());
    else
        return false;
    return true;
}
