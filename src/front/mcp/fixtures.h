/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance suite of the Model Context Protocol wants a server to have, by its names.
 * Only in the test build of carrel-front (-DCARREL_MCP_FIXTURES): no program that is installed has
 * any of it (tests/conformance/mcp_fixtures.c). */
#pragma once

#include "front/mcp/mcp.h"

json_t *fixtures_capabilities(void);
void fixtures_tools(json_t *list);
void fixtures_resources(json_t *list);
void fixtures_templates(json_t *list);
/* Whether it was theirs, and is or will be answered. */
bool fixtures_answer(struct mcp_ask *ask, const char *method);
bool fixtures_call(struct mcp_ask *ask, const char *name);
bool fixtures_read(struct mcp_ask *ask, const char *uri);
/* The client's answer to a request of ours. */
void fixtures_reply(struct mcp_ask *ask);
void fixtures_left(struct mcp_ask *ask);
