/* SPDX-License-Identifier: Apache-2.0 */
/* Questions from inside, and the answers to them, which must be messages that a resolver can read;
 * and the names that are asked for keep their addresses. */
#include "fuzz.h"

#include <arpa/nameser.h>
#include <string.h>

#include "egress/dns.h"
#include "egress/names.h"

static void must_be_an_answer(const unsigned char *reply, size_t n, const struct dns_question *q,
                              enum dns_code code, uint32_t address)
{
    ns_msg m;
    ns_rr rr;
    char name[NETWORK_NAME];

    MUST(n >= NS_HFIXEDSZ && n <= DNS_ANSWER && ns_initparse(reply, (int)n, &m) == 0);
    MUST(ns_msg_getflag(m, ns_f_qr) == 1 && ns_msg_getflag(m, ns_f_rcode) == (int)code);
    MUST(ns_msg_count(m, ns_s_qd) == (q->end != 0) && ns_msg_count(m, ns_s_an) == (address != 0));
    if (!address)
        return;
    MUST(ns_parserr(&m, ns_s_an, 0, &rr) == 0 && ns_rr_rdlen(rr) == 4);
    MUST(network_name(ns_rr_name(rr), strlen(ns_rr_name(rr)), name) && strcmp(name, q->name) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct names names;
    unsigned char reply[DNS_ANSWER];
    struct dns_question q;
    enum dns_code code = DNS_FAILED;
    unsigned char *exact = malloc(size ? size : 1);

    MUST(exact);
    memcpy(exact, data, size);
    if (dns_read(exact, size, &q, &code)) {
        uint32_t address = code == DNS_OK && *q.name ? names_give(&names, q.name) : 0;
        MUST(code != DNS_OK || q.end > NS_HFIXEDSZ);
        MUST(q.end <= size && strlen(q.shown) <= EGRESS_TEXT);
        for (const char *p = q.shown; *p; p++)
            MUST(*p > ' ' && *p < 0x7f);
        MUST(!address || strcmp(names_find(&names, address), q.name) == 0);
        must_be_an_answer(reply, dns_write(exact, &q, code, address, reply), &q, code, address);
    }
    if (names.count > 1000)
        names_clear(&names);
    free(exact);
    return 0;
}
