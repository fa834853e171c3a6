/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of programs inside, and answers to them, as bytes. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/network.h"
#include "protocol/egress.h"

enum {
    DNS_MOST = 4096,  /* of a question; nobody has that much to ask */
    DNS_ANSWER = 512, /* of an answer: one question and one address always fit */
    DNS_TTL = 60,
};

enum dns_code {
    DNS_OK = 0,
    DNS_MALFORMED = 1,
    DNS_FAILED = 2,
    DNS_NO_SUCH_NAME = 3,
    DNS_NOT_DONE = 4,
    DNS_REFUSED = 5,
};

struct dns_question {
    char name[NETWORK_NAME];     /* "": it is none that network_name knows */
    char shown[EGRESS_TEXT + 1]; /* printable */
    bool asks_address;           /* of IPv4 */
    size_t end;                  /* where in the message the question ends; 0: it is not readable */
};

/* False: it is to be dropped. Otherwise *ret_code is DNS_OK, or what to answer. */
bool dns_read(const unsigned char *message, size_t n, struct dns_question *ret,
              enum dns_code *ret_code);
/* The answer to what dns_read has read; address 0: none. Its length. */
size_t dns_write(const unsigned char *message, const struct dns_question *question,
                 enum dns_code code, uint32_t address, unsigned char ret[DNS_ANSWER]);
