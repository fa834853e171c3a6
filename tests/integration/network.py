#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""`--net none` is loopback of its own and nothing else; `--net host` is the host's."""
import os
import re
import socket
import threading
import unittest

from carreltest import PYTHON, CarrelTest, carrel, write

CONNECT = ("import socket, sys\n"
           "try:\n"
           "    socket.create_connection(('{}', {}), timeout=5).close(); print('connected')\n"
           "except OSError as error: print('refused:', error)\n")


class Network(CarrelTest):
    def test_none_is_the_default_and_reaches_nothing_of_the_host(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            script = CONNECT.format("127.0.0.1", server.getsockname()[1])
            shown = self.ok("--net", "host", "--", PYTHON, "-c", script)
            self.assertTrue(shown.startswith("connected"), "the check itself works")
            for options in ([], ["--net", "none"]):
                self.assertTrue(self.ok(*options, "--", PYTHON, "-c", script).startswith("refused"), options)

    def test_none_has_only_loopback_and_it_is_up(self):
        names = re.findall(r"^ *(\S+):", self.ok("--", "cat", "/proc/net/dev"), re.M)
        self.assertEqual(["lo"], names)
        script = ("import socket\n"
                  "for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):\n"
                  "    server = socket.create_server((address, 0), family=family)\n"
                  "    client = socket.create_connection(server.getsockname()[:2], timeout=5)\n"
                  "    print(client.getpeername()[0])\n")
        self.assertEqual("127.0.0.1\n::1\n", self.ok("--", PYTHON, "-c", script))

    def test_none_cannot_send_anywhere_else(self):
        for address in ("192.0.2.1", "8.8.8.8", "169.254.169.254"):
            shown = self.ok("--", PYTHON, "-c", CONNECT.format(address, 80))
            self.assertIn("unreachable", shown, address)
        self.assertNotEqual(0, self.run_in("--", "getent", "hosts", "example.org").returncode)

    def test_ports_of_two_sandboxes_do_not_meet(self):
        script = "import socket, time; s = socket.create_server(('127.0.0.1', 45678)); time.sleep(1)"
        done = []
        threads = [threading.Thread(target=lambda: done.append(carrel("run", "--", PYTHON, "-c", script, cwd=self.dir)))
                   for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in done:
            self.succeeded(result)

    def test_host_shows_the_hosts_interfaces(self):
        with open("/proc/net/dev", encoding="ascii") as file:
            want = re.findall(r"^ *(\S+):", file.read(), re.M)
        self.assertEqual(want, re.findall(r"^ *(\S+):", self.ok("--net", "host", "--", "cat", "/proc/net/dev"), re.M))

    def test_abstract_sockets_of_the_host_are_out_of_reach_also_with_its_network(self):
        name = f"\0carrel-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
            server.listen()
            # Before Landlock had scopes (Linux 6.12) there are no Unix sockets at all with the host's network.
            script = (f"import socket\n"
                      f"try: socket.socket(socket.AF_UNIX).connect({name!r}); print('connected')\n"
                      f"except OSError: print('refused')\n")
            for mode in ("none", "host"):
                self.assertEqual("refused\n", self.ok("--net", mode, "--", PYTHON, "-c", script), mode)

    def test_host_resolves_names_where_the_host_has_a_resolver(self):
        if os.path.exists("/etc/resolv.conf"):
            self.assertIn("nameserver", self.ok("--net", "host", "-c", "cat /etc/resolv.conf; echo nameserver"))
        self.assertIn("localhost", self.ok("--net", "host", "--", "getent", "ahosts", "localhost"))

    def test_anything_else_is_refused(self):
        for mode in ("", "all", "None", "none,host", "bridge"):
            self.refused("--workspace", self.ws, "--net", mode, words=("--net", "none"))

    def test_a_policy_without_network_cannot_be_widened(self):
        policy = write(self.path("policy.json"), '{"network": "none"}')
        self.refused("--workspace", self.ws, "--policy", policy, "--net", "host", words=("net",))
        policy = write(self.path("policy2.json"), "{}")
        self.refused("--workspace", self.ws, "--policy", policy, "--net", "host", words=("net",))


if __name__ == "__main__":
    unittest.main()
