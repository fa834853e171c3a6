# SPDX-License-Identifier: Apache-2.0
"""One client with Python's http.client, as httpbench is one with a bare socket: the same requests, gaps and lines of output.

    execclient.py COUNT GAP_US SEED PORT KEY PATH BODY
"""

import gc
import http.client
import json
import math
import sys
import time

MASK = (1 << 64) - 1


def gaps(seed, mean_us):
    """In seconds; as next_gap in pace.h makes them."""
    state = seed * 2 + 1
    while True:
        state ^= state >> 12
        state = (state ^ state << 25) & MASK
        state ^= state >> 27
        unit = ((state * 0x2545F4914F6CDD1D & MASK) >> 11) / 9007199254740992
        yield -math.log(1 - unit) * mean_us / 1e6


def main():
    count, gap_us, seed, port = map(int, sys.argv[1:5])
    key, path, body = sys.argv[5:8]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    pauses, lines = gaps(seed, gap_us), []
    gc.disable()  # it would be in some of the figures and not in others
    first = due = time.monotonic()
    for index in range(count):
        due += next(pauses)
        time.sleep(max(0, due - time.monotonic()))
        begin = time.perf_counter_ns()
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        wall = time.perf_counter_ns() - begin
        status = answer.get("exit_code", 125) if response.status == 200 else response.status
        lines.append(f"start 0 {index} {wall} {wall} 0 {status}")
    print("\n".join(lines), f"all {round((time.monotonic() - first) * 1e9)}", sep="\n")


if __name__ == "__main__":
    main()
