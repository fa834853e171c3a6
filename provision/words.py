# SPDX-License-Identifier: Apache-2.0
"""What a person or a program reads: failures, lines on standard error, sizes, JSON. Nothing of it drives a terminal."""
import json
import os
import sys

FAILED = 125  # the exit status of every failure of Carrel's own


class Failure(Exception):
    """What went wrong, and what to do. `cause` is the OSError behind it, whose words follow."""

    def __init__(self, message, cause=None):
        why = getattr(cause, "strerror", None)
        super().__init__(f"{message}: {why}" if why else message)


def misleads(c):
    """A character that is not seen, or changes how others are shown."""
    return (c < 0x20 or 0x7F <= c < 0xA0 or c in (0xAD, 0x61C, 0xFEFF) or 0x200B <= c <= 0x200F or 0x2028 <= c <= 0x202E
            or 0x2060 <= c <= 0x206F or 0xFFF9 <= c <= 0xFFFB or 0xE0000 <= c <= 0xE0FFF)


def escape(text):
    """Text on one line, whatever it holds. Bytes that are no UTF-8 are those that surrogateescape has kept."""
    def shown(char):
        c = ord(char)
        if 0xDC80 <= c <= 0xDCFF:
            return f"\\x{c - 0xDC00:02x}"
        if not misleads(c) and not 0xD800 <= c <= 0xDFFF:
            return char
        return f"\\x{c:02x}" if c < 0x80 else f"\\u{{{c:x}}}"
    return "".join(map(shown, text))


def put_error(line):
    try:
        os.write(2, line.encode() + b"\n")
    except OSError:
        pass  # nobody reads it


def say(message):
    put_error(f"carrel: {escape(str(message))}")


def put(text):
    """To standard output; returns the exit status."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python does not try again as it ends
        say(Failure("standard output cannot be written", error))
        return FAILED


def put_json(value):
    """One line. On a terminal nothing but letters: text inside may hold what drives it."""
    return put(json.dumps(value, ensure_ascii=sys.stdout.isatty()) + "\n")


def size(count):
    """"12", "1.5K", "20M"."""
    if count < 1024:
        return str(count)
    value, unit = count / 1024, 0
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}{'KMGTPE'[unit]}" if value < 10 else f"{value:.0f}{'KMGTPE'[unit]}"


def unique(pairs):
    object_ = dict(pairs)
    if len(object_) != len(pairs):
        twice = next(name for name, _ in pairs if sum(other == name for other, _ in pairs) > 1)
        raise ValueError(f"duplicate key \"{twice[:40]}\"")
    return object_


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def is_text(value):
    """Whether every text in it is one: without NUL, and of whole characters."""
    if isinstance(value, str):
        return "\0" not in value and not any(0xD800 <= ord(c) <= 0xDFFF for c in value)
    if isinstance(value, dict):
        return all(is_text(name) and is_text(item) for name, item in value.items())
    return not isinstance(value, list) or all(map(is_text, value))


def read_json(data):
    """JSON from anybody: bytes to a value without duplicate keys and odd texts. A ValueError says why not."""
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)
        if is_text(value):
            return value
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"line {1 + data[:error.start].count(10)}: it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    raise ValueError("a text in it has a NUL or half a character")
