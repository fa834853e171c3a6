/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a prepared run: everything that would be done, and what this host cannot give. */
#pragma once

#include "base/err.h"
#include "carrel.h"
#include "sandbox/run.h"

int explain(const struct run *run, enum carrel_format format, char **ret_text, struct err *err);
