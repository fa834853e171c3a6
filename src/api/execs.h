/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that Carrel starts itself in the call's workspace, under its policy. */
#pragma once

#include "api/call.h"
#include "front/job.h"

/* Without `then` its output is the answer, raw. With it, `then` is called once it runs: it has an
 * input to be given, and the answer is its result. */
void execs_own(struct call *call, const char *const *argv, void (*then)(struct call *));
/* The job of such a call while it runs; NULL before. */
struct job *execs_job_of(const struct call *call);
