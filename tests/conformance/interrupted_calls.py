#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# TAKES: 20
"""A program with a timer: calls that may go are never interrupted by Carrel, and it makes progress."""
import os
import re
import subprocess
import unittest

from ordinary_programs import PYTHON, CarrelTest, write

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in here = {.sin_family = AF_INET};
static struct sockaddr_un stream_at = {.sun_family = AF_UNIX, .sun_path = "/tmp/stream"};
static struct sockaddr_un datagram_at = {.sun_family = AF_UNIX, .sun_path = "/tmp/datagrams"};
static int udp, udp_sender, stream_server, datagrams, datagram_sender;
static char byte[16];

static int connect_udp(void) { return connect(udp_sender, (void *)&here, sizeof(here)); }
static int send_udp(void) {
    int r = (int)sendto(udp, "x", 1, MSG_DONTWAIT, (void *)&here, sizeof(here));
    while (recv(udp, byte, sizeof(byte), MSG_DONTWAIT) > 0) ;
    return r;
}
static int connect_tcp(void) { /* it may wait for the other side, so not blocking */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in6 nobody = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = htons(9)};
    int other = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int r = connect(fd, (void *)&here, sizeof(here));
    if (r < 0 && errno != EINTR) r = connect(other, (void *)&nobody, sizeof(nobody));
    int e = errno;
    close(fd);
    close(other);
    errno = e;
    return r < 0 && e == EINTR ? -1 : 0;
}
static int connect_unix(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int r = connect(fd, (void *)&stream_at, sizeof(stream_at));
    int e = errno;
    if (r == 0) close(accept(stream_server, NULL, NULL));
    close(fd);
    errno = e;
    return r;
}
static int send_unix(void) {
    int r = (int)sendto(datagram_sender, "x", 1, 0, (void *)&datagram_at,
                        offsetof(struct sockaddr_un, sun_path) + 14 /* 16 in all: as long as an IPv4 address */);
    while (recv(datagrams, byte, sizeof(byte), MSG_DONTWAIT) > 0) ;
    return r;
}
static int change_mode(void) { return chmod("/tmp/stream", 0700); }
static int change_bits(void) { return chmod("/tmp", 02777); }

static const struct { const char *name; int (*call)(void); } calls[] = {
    {"connect-udp", connect_udp}, {"send-udp", send_udp}, {"connect-tcp", connect_tcp},
    {"connect-unix", connect_unix}, {"send-unix", send_unix}, {"chmod", change_mode}, {"chmod-setgid", change_bits},
};

static void tick(int n) { (void)n; }
static double seconds(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }

int main(int argc, char **argv) {
    struct itimerval timer = {{0, atoi(argv[1])}, {0, atoi(argv[1])}};
    struct sigaction action = {.sa_handler = tick, .sa_flags = atoi(argv[2]) ? SA_RESTART : 0};
    socklen_t n = sizeof(here);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    strcpy(datagram_at.sun_path, "/tmp/datagram");
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    udp_sender = socket(AF_INET, SOCK_DGRAM, 0);
    stream_server = socket(AF_UNIX, SOCK_STREAM, 0);
    datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
    datagram_sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (bind(udp, (void *)&here, n) || getsockname(udp, (void *)&here, &n) ||
        bind(stream_server, (void *)&stream_at, sizeof(stream_at)) || listen(stream_server, 8) ||
        bind(datagrams, (void *)&datagram_at, sizeof(datagram_at)))
        return 2;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        int interrupted = 0, done = 0, other = 0, wanted = atoi(argv[3]);
        double until = seconds() + atof(argv[4]);
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
        for (; done < wanted && seconds() < until; done++) {
            if (calls[i].call() < 0) { if (errno == EINTR) interrupted++; else other = errno; }
        }
        setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
        printf("%s %d of %d other %d\n", calls[i].name, interrupted, done, other);
    }
    return argc == 5 ? 0 : 1;
}
"""
# Which the listener does itself: before it has heard of one, a signal interrupts it. SECURITY.md says so.
DONE_BY_THE_LISTENER = {"chmod-setgid"}
CONNECTED_BY_THE_ENGINE = {"connect-udp", "connect-tcp"}  # with the host's network


class InterruptedCalls(CarrelTest):
    def setUp(self):
        super().setUp()
        write(f"{self.dir}/timer.c", PROGRAM)
        subprocess.run(["gcc", "-O2", "-static", "-o", f"{self.ws}/timer", f"{self.dir}/timer.c"], check=True)

    def with_timer(self, microseconds, restart, but, *options):
        shown = self.ok(*options, "--", "/timer", str(microseconds), str(restart), "5000", "2")
        if os.environ.get("SHOW"):
            print(*options, microseconds, restart, shown)
        counted = re.findall(r"(\S+) (\d+) of (\d+) other (\d+)", shown)
        self.assertEqual(7, len(counted), shown)
        for name, interrupted, done, other in counted:
            self.assertEqual("0", other, shown)
            if name not in but:
                self.assertEqual("0", interrupted, shown)
                self.assertGreater(int(done), 500, shown)

    def test_with_a_timer_every_call_ends_as_without_one(self):
        for microseconds in (10000, 1000, 200):
            for restart in (0, 1):
                with self.subTest(microseconds=microseconds, restart=restart):
                    self.with_timer(microseconds, restart, DONE_BY_THE_LISTENER)

    def test_with_the_hosts_network_all_but_connections_to_addresses(self):
        """Where Landlock stands behind the filter, Unix sockets go straight on, as datagrams do."""
        if self.run_in("--net", "host", "--", PYTHON, "-c", "import socket; socket.socket(socket.AF_UNIX)").returncode != 0:
            self.skipTest("before Linux 6.12 there are no Unix sockets with the host's network")
        self.with_timer(1000, 0, DONE_BY_THE_LISTENER | CONNECTED_BY_THE_ENGINE, "--net", "host")


if __name__ == "__main__":
    unittest.main()
