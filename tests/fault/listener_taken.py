#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Where a container's manager already listens to system calls the kernel allows no second listener: Carrel then runs
with the same refusals and tells of none; and not at all with the host's network, whose connections it could not look at."""
import ctypes
import errno
import json
import os
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, SYS_SECCOMP, SET_MODE_FILTER, NEW_LISTENER = 38, 317, 1, 8


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(Instruction))]


def listen():
    """A filter that allows everything, and has a listener."""
    allow = Instruction(6, 0, 0, 0x7FFF0000)
    program = Program(1, ctypes.pointer(allow))
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    fd = LIBC.syscall(SYS_SECCOMP, SET_MODE_FILTER, NEW_LISTENER, ctypes.byref(program))
    if fd < 0:
        sys.exit(f"no listener: {errno.errorcode[ctypes.get_errno()]}")


PROBE = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.mount(None, b"/tmp", b"tmpfs", 0, None)
print(errno.errorcode[ctypes.get_errno()])
libc.unshare(0x10000000)
print(errno.errorcode[ctypes.get_errno()])
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
except OSError as error:
    print(errno.errorcode[error.errno])
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
print("loopback")
"""


def run():
    command = [os.environ["CARREL"], "run", "--json", "--", "python3", "-c", PROBE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


if os.uname().machine != "x86_64":
    SYS_SECCOMP = 277
free = run()
listen()
taken = run()
assert free["stdout"] == "EPERM\nEPERM\nEAFNOSUPPORT\nloopback\n", free
assert taken["stdout"] == free["stdout"], (free, taken)
assert len(free["denials"]) >= 3 and taken["denials"] == [], (free["denials"], taken["denials"])
host = subprocess.run([os.environ["CARREL"], "run", "--net", "host", "--", "true"], capture_output=True, text=True, check=False)
assert host.returncode == 125 and "metadata" in host.stderr, (host.returncode, host.stderr)
print("the same refusals, with a listener and without")
