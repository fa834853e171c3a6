/* SPDX-License-Identifier: Apache-2.0 */
/* Where records go, as it is written: https://HOST:PORT[/PATH], http://…, file:/PATH, syslog:,
 * syslog+unix:/PATH, syslog+udp://HOST[:PORT], syslog+tcp://HOST[:PORT]. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum target_kind {
    TARGET_BULK,
    TARGET_FILE,
    TARGET_SYSLOG_UNIX,
    TARGET_SYSLOG_UDP,
    TARGET_SYSLOG_TCP,
    TARGET_COUNT_,
};

struct target {
    enum target_kind kind;
    char text[1024]; /* as it was written */
    char host[256];  /* without brackets */
    char path[1024]; /* of a file or socket */
    uint16_t port;   /* 0: none */
    bool is_tls;
    bool is_loopback;
};

int target_parse(const char *text, struct target *ret, struct err *err);
