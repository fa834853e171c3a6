/* SPDX-License-Identifier: Apache-2.0 */
/* Whose a connection is: the kernel knows in which control group the socket at its other end was
 * made, and each command has one of its own where the host gives them. It is asked over a socket of
 * the sandbox's network, which its pid 1 has made. */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/egress.h"

enum {
    ANSWER = 4096,
    LISTENS = 10, /* TCP_LISTEN */
    STALE = 8,    /* answers to earlier questions that are passed over */
};

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

/* As IPv4: the only kind of address there is inside. */
static bool as_v4(const struct sockaddr_storage *from, struct sockaddr_in *ret)
{
    struct sockaddr_in6 v6;

    memcpy(&v6, from, sizeof(v6));
    memcpy(ret, from, sizeof(*ret));
    if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        memcpy(&ret->sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(ret->sin_addr));
    else if (from->ss_family != AF_INET)
        return false;
    ret->sin_family = AF_INET;
    return true;
}

static uint64_t group_in(struct nlmsghdr *head)
{
    struct inet_diag_msg *message = NLMSG_DATA(head);
    struct rtattr *a = (struct rtattr *)(void *)(message + 1);
    size_t left = head->nlmsg_len - NLMSG_LENGTH(sizeof(*message));
    uint64_t group = 0;

    while (left >= sizeof(*a) && a->rta_len >= sizeof(*a) && a->rta_len <= left) {
        size_t step = RTA_ALIGN(a->rta_len);
        if (a->rta_type == INET_DIAG_CGROUP_ID && a->rta_len == RTA_LENGTH(sizeof(group)))
            memcpy(&group, RTA_DATA(a), sizeof(group));
        if (step >= left)
            break;
        left -= step;
        a = (struct rtattr *)(void *)((char *)a + step);
    }
    return group;
}

/* 0: it does not say. The kernel answers while it is asked. */
static uint64_t ask(struct box *box, struct question *q, bool listens)
{
    union {
        struct nlmsghdr head;
        char room[ANSWER];
    } answer;

    q->head = (struct nlmsghdr){.nlmsg_len = sizeof(*q),
                                .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                .nlmsg_flags = NLM_F_REQUEST,
                                .nlmsg_seq = ++box->questions};
    if (send(box->diag, q, sizeof(*q), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return 0;
    for (int i = 0; i < STALE; i++) {
        ssize_t n = recv(box->diag, &answer, sizeof(answer), MSG_DONTWAIT);
        if (n < (ssize_t)sizeof(answer.head) || answer.head.nlmsg_len > (size_t)n)
            return 0;
        if (answer.head.nlmsg_seq != q->head.nlmsg_seq)
            continue;
        const struct inet_diag_msg *message = NLMSG_DATA(&answer.head);
        if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
            answer.head.nlmsg_len < NLMSG_LENGTH(sizeof(*message)) ||
            (message->idiag_state == LISTENS) != listens)
            return 0; /* it has gone; one that listens at its port is another */
        return group_in(&answer.head);
    }
    return 0;
}

/* Of the socket at `at`, connected to `to`. For datagrams the kernel takes them the other way
 * round. */
static uint64_t group_of(struct box *box, int protocol, const struct sockaddr_in *at,
                         const struct sockaddr_in *to, bool listens)
{
    bool swapped = protocol == IPPROTO_UDP;
    const struct sockaddr_in *source = swapped ? to : at;
    const struct sockaddr_in *target = swapped ? at : to;
    struct question q = {.body = {.sdiag_family = AF_INET,
                                  .sdiag_protocol = (uint8_t)protocol,
                                  .idiag_states = UINT32_MAX}};

    q.body.id.idiag_sport = source->sin_port;
    q.body.id.idiag_dport = target->sin_port;
    q.body.id.idiag_src[0] = source->sin_addr.s_addr;
    q.body.id.idiag_dst[0] = target->sin_addr.s_addr;
    q.body.id.idiag_cookie[0] = q.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return ask(box, &q, listens);
}

void who_begin(struct box *box)
{
    const struct sockaddr_in nobody = {.sin_family = AF_INET};
    struct sockaddr_storage name_server = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(name_server);
    struct sockaddr_in at;

    if (getsockname(box->tcp.fd, (struct sockaddr *)&name_server, &n) == 0 &&
        as_v4(&name_server, &at))
        box->base_group = group_of(box, IPPROTO_TCP, &at, &nobody, true);
}

uint64_t who_asks(struct box *box, int protocol, const struct sockaddr_storage *peer,
                  const struct sockaddr_storage *here)
{
    struct sockaddr_in at;
    struct sockaddr_in to;

    if (box->base_group == 0 || !as_v4(peer, &at) || !as_v4(here, &to))
        return EGRESS_NOBODY;
    uint64_t group = group_of(box, protocol, &at, &to, false);
    return group == box->base_group ? EGRESS_UNGROUPED : group;
}

uint64_t who_connects(struct box *box, int fd)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    struct sockaddr_storage here = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(peer);
    socklen_t m = sizeof(here);

    return getpeername(fd, (struct sockaddr *)&peer, &n) == 0 &&
                   getsockname(fd, (struct sockaddr *)&here, &m) == 0
               ? who_asks(box, IPPROTO_TCP, &peer, &here)
               : EGRESS_NOBODY;
}
