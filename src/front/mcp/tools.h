/* SPDX-License-Identifier: Apache-2.0 */
/* A tool, as one row: what it takes, and the route that does it. */
#pragma once

#include "front/mcp/mcp.h"

enum mcp_type {
    MCP_TEXT,
    MCP_PATH, /* absolute inside; one that does not begin with / is below / */
    MCP_NUMBER,
    MCP_FLAG,
    MCP_TEXTS,
    MCP_MAP, /* of texts */
};

enum mcp_place {
    IN_TOOL,  /* the tool's own */
    IN_BODY,  /* a member of the JSON body */
    IN_QUERY, /* a flag is 0 or 1 there */
    IN_PATH,  /* {name} of the path */
    IN_FILE,  /* the end of the path */
    IN_BYTES, /* the body itself */
};

struct mcp_field {
    const char *name;
    enum mcp_type type;
    enum mcp_place place;
    const char *as; /* its name there; NULL: the same */
    bool is_needed;
    int64_t least;
    int64_t most; /* 0: any */
    const char *what;
};

enum {
    READS = 1,      /* changes nothing */
    DESTROYS = 2,   /* what it changes may be lost */
    REPEATS = 4,    /* again is the same as once */
    OPEN_WORLD = 8, /* commands may reach beyond */
    NO_WORKSPACE = 16,
    LASTS = 32, /* the answer is a stream, so that nobody takes it for lost */
};

struct mcp_tool {
    const char *name;
    const char *title;
    const char *what;
    unsigned hints;
    enum http_method method;
    const char *path;  /* after the workspace, or whole without one */
    const char *query; /* besides what its fields say; or NULL */
    const char *body;  /* members that its body always has, as JSON; or NULL */
    const char *gives; /* of the result: "name:type" with a blank between; types: s i n b o a; ?: or
                          null; *: may be absent */
    void (*own)(struct mcp_ask *); /* more than one request to a route */
    struct mcp_field fields[8];    /* up to the first without a name */
};

extern const struct mcp_tool mcp_tools[];
extern const size_t mcp_tool_count;
