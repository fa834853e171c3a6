/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for the operator of the daemon, on stderr: level=info event=listening
 * address='127.0.0.1:7070' Values are escaped and quoted, whatever they hold. Not the audit: that
 * is audit/audit.h. */
#pragma once

#include "base/err.h"

/* Pairs of key and value, ended by NULL: log_info("front_started", "pid", text, NULL). A value that
 * is NULL is left out. */
void log_info(const char *event, ...) __attribute__((sentinel));
void log_warning(const char *event, ...) __attribute__((sentinel));
void log_error(const char *event, ...) __attribute__((sentinel));
/* With what went wrong, and a word on what about (or NULL). */
void log_err(const char *event, const char *about, const struct err *err);
