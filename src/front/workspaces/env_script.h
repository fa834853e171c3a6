/* SPDX-License-Identifier: Apache-2.0 */
/* The script that makes environments inside a workspace, and what it says. It runs with the rights
 * of the workspace and no others: whoever has made the files there can make it say anything. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* For "sh -c", with the arguments NAME ("carrel-env"), WHAT, VERSION and CLEAR: WHAT is "python",
 * "node", "both", "report", "clean" or "settle" (what was staged, VERSION "both": and Node);
 * otherwise VERSION "" is any; CLEAR "clear" replaces what there is. */
extern const char env_script[];

/* With what it ends, besides 0. */
enum env_end {
    ENV_NO_TOOLS = 40,
    ENV_NO_VERSION = 41,
    ENV_EXISTS = 42,
    ENV_BROKEN = 43,
    ENV_FAILED = 44,
    ENV_FULL = 45,
    ENV_LOCKED = 46,
    ENV_IN_THE_WAY = 47,
    ENV_STAGED = 48, /* the sandbox has to start anew, and "settle" to be run in it */
};

/* Its output, lines of a key and values with tabs between, as
 *   {"tools": {"uv", "bun"}, "python": {…} | null, "node": {…} | null, "interpreters": […],
 *    "why": "…"}
 * Lines that are not understood are passed over. NULL: out of memory. */
json_t *env_report(const char *text, size_t n);
