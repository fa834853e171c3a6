/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns.h"

#include <arpa/nameser.h>
#include <stdio.h>
#include <string.h>

enum {
    ID = 0,
    FLAGS = 2,
    QUESTIONS = 4,
    ANSWERS = 6,
    IS_ANSWER = 0x80,  /* of the first byte of flags */
    OPCODE = 0x78,     /* ... */
    WANTS_MORE = 0x01, /* recursion is desired */
    GIVES_MORE = 0x80, /* of the second: and available */
    POINTER = 0xc0,
};

static bool is_plain(ns_msg *m)
{
    return ns_msg_count(*m, ns_s_qd) == 1 && ns_msg_count(*m, ns_s_an) == 0 &&
           ns_msg_count(*m, ns_s_ns) == 0;
}

/* Behind the name, which no question has a reason to compress: 0 then. */
static size_t end_of_question(const unsigned char *message, size_t n)
{
    size_t at = NS_HFIXEDSZ;

    while (at < n && message[at] != 0) {
        if (message[at] & POINTER)
            return 0;
        at += 1U + message[at];
    }
    return at + 1 + NS_QFIXEDSZ <= n ? at + 1 + NS_QFIXEDSZ : 0;
}

bool dns_read(const unsigned char *message, size_t n, struct dns_question *ret,
              enum dns_code *ret_code)
{
    ns_msg m;
    ns_rr rr;

    ret->name[0] = '\0';
    ret->shown[0] = '\0';
    ret->asks_address = false;
    ret->end = 0;
    if (n < NS_HFIXEDSZ || n > DNS_MOST || (message[FLAGS] & IS_ANSWER))
        return false;
    *ret_code = DNS_NOT_DONE;
    if (message[FLAGS] & OPCODE)
        return true;
    *ret_code = DNS_MALFORMED;
    size_t end = end_of_question(message, n);
    if (end == 0 || ns_initparse(message, (int)n, &m) < 0 || !is_plain(&m) ||
        ns_parserr(&m, ns_s_qd, 0, &rr) < 0)
        return true;
    ret->end = end;
    *ret_code = ns_rr_class(rr) == ns_c_in ? DNS_OK : DNS_REFUSED;
    const char *name = ns_rr_name(rr);
    snprintf(ret->shown, sizeof(ret->shown), "%.*s", EGRESS_TEXT, *name ? name : ".");
    ret->asks_address = ns_rr_type(rr) == ns_t_a || ns_rr_type(rr) == ns_t_any;
    if (!network_name(name, strlen(name), ret->name))
        ret->name[0] = '\0';
    return true;
}

size_t dns_write(const unsigned char *message, const struct dns_question *question,
                 enum dns_code code, uint32_t address, unsigned char ret[DNS_ANSWER])
{
    const unsigned char record[] = {POINTER,
                                    NS_HFIXEDSZ,
                                    0,
                                    ns_t_a,
                                    0,
                                    ns_c_in,
                                    0,
                                    0,
                                    0,
                                    DNS_TTL,
                                    0,
                                    NS_INADDRSZ,
                                    (unsigned char)(address >> 24),
                                    (unsigned char)(address >> 16),
                                    (unsigned char)(address >> 8),
                                    (unsigned char)address};
    size_t n = question->end ? question->end : NS_HFIXEDSZ;

    memcpy(ret, message, n);
    ret[FLAGS] = (unsigned char)(IS_ANSWER | (message[FLAGS] & (OPCODE | WANTS_MORE)));
    ret[FLAGS + 1] = (unsigned char)(GIVES_MORE | code);
    memset(ret + QUESTIONS, 0, NS_HFIXEDSZ - QUESTIONS);
    ret[QUESTIONS + 1] = question->end != 0;
    if (address == 0)
        return n;
    ret[ANSWERS + 1] = 1;
    memcpy(ret + n, record, sizeof(record));
    return n + sizeof(record);
}
