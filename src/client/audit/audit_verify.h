/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "client/core/client.h"

struct audit_options {
    struct args_common common;
    bool follow;
    bool remote; /* ask the daemon instead of reading its files */
    bool pem;
    bool gzip;
    const char *count;
    const char *workspace;
    const char *operation;
    const char *actor;
    const char *result;
    const char *from;
    const char *to;
    const char *after;
    const char *until;
    const char *head;
    const char *key;
    const char *index;
    const char *auth;
    const char *ca;
    const char *spool;
};

/* Each returns the exit status. */
int audit_verify_verb(const struct audit_options *options, struct err *err);
int audit_export_verb(const struct audit_options *options, struct err *err);
int audit_key_verb(const struct audit_options *options, struct err *err);
