# SPDX-License-Identifier: Apache-2.0
"""DIR/.carrel/tools: the programs that every sandbox sees as /opt/carrel, read-only.

  bin/uv, uvx, bun, bunx    libexec/uv, uvx    wheels/pip-*.whl
  tools.json                {"uv": {"version", "sha256", "archive", "hash"}, "pip": …, "bun": …}

It is replaced whole: made beside it as tools.new, exchanged, and what was there stays as tools.old until the next time, for
the sandboxes that have it mounted. All names are below descriptors: whoever owns the state directory cannot put another
directory in its place."""
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import stat

import unpack
from words import Failure

BLOCK = 1 << 16
TOOLS = ("uv", "pip", "bun")
# The first of a tool's files is the one that is checked; none: its archive is kept.
FILES = {"uv": ("libexec/uv", "libexec/uvx"), "pip": (), "bun": ("bin/bun",)}
LINKS = {"uv": {"bin/uvx": "../libexec/uvx"}, "pip": {}, "bun": {"bin/bunx": "bun"}}
DIRS = ("bin", "libexec", "wheels")
OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


def uv_script():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "uv.sh"), "rb") as file:
        return file.read()


def rename_in(directory, old, new, flags):
    """renameat2, which Python lacks. False: it could not be done."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return call is not None and call(directory, old.encode(), directory, new.encode(), flags) == 0


def remove_tree(directory, name):
    try:
        shutil.rmtree(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        os.unlink(name, dir_fd=directory)


def read_file(directory, path, most=-1):
    """(its bytes, its mode); None: it cannot be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory), "rb") as file:
            return file.read(most), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError:
        return None


def hash_file(directory, path):
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def write_file(directory, path, pieces, mode):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)
    with open(fd, "wb", buffering=0) as file:
        for piece in pieces:
            while piece:
                piece = piece[file.write(piece):]
        os.fchmod(fd, mode)
        os.fsync(fd)


def checked_file(tool, entry):
    """Where the file of a tool is that is checked; None: the record is of no use."""
    if FILES[tool]:
        return FILES[tool][0]
    archive = entry.get("archive")
    return f"wheels/{archive}" if isinstance(archive, str) and "/" not in archive and 0 < len(archive) < 256 else None


def make_state(state):
    """The state directory and those above it; what could not be made is told by the next step."""
    try:
        os.makedirs(os.path.dirname(state.rstrip("/")) or "/", 0o755, exist_ok=True)
        os.mkdir(state, 0o711 if os.geteuid() == 0 else 0o700)
    except OSError:
        pass


class Toolbox:
    """Open, it keeps others from doing the same."""

    def __init__(self, state, make):
        self.path = f"{state}/.carrel"
        self.top = self.lock = self.old = self.fresh = None
        self.list, self.fresh_list = {}, {}
        if make:
            make_state(state)
        self.open_place(state)
        self.take_lock()
        try:
            remove_tree(self.top, "tools.new")  # of one that was killed
        except OSError as error:
            raise Failure(f"remove '{self.path}/tools.new'", error) from None
        self.open_old()

    def open_place(self, state):
        try:
            directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise Failure(f"there is no state directory '{state}'; check --state, or start the daemon there once: carrel serve "
                          "--state DIR") from None
        except OSError as error:
            raise Failure(f"open the state directory '{state}'", error) from None
        try:
            os.mkdir(".carrel", 0o700, dir_fd=directory)
        except FileExistsError:
            pass
        except OSError as error:
            raise Failure(f"make '{self.path}' (who runs the daemon may)", error) from None
        try:
            self.top = os.open(".carrel", OPEN_DIR, dir_fd=directory)
        except OSError as error:
            raise Failure(f"open '{self.path}' (who runs the daemon may)", error) from None
        finally:
            os.close(directory)
        st = os.fstat(self.top)
        if st.st_uid != os.geteuid() or st.st_mode & 0o022:
            raise Failure(f"'{self.path}' belongs to another user, or others can write it; run this as who runs the daemon")

    def take_lock(self):
        try:
            self.lock = os.open("tools.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.top)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"another 'carrel env setup' is at work in '{self.path}'; wait for it") from None
        except OSError as error:
            raise Failure(f"lock '{self.path}/tools.lock'", error) from None

    def open_old(self):
        try:
            self.old = os.open("tools", OPEN_DIR, dir_fd=self.top)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Failure(f"open '{self.path}/tools'", error) from None
        found = read_file(self.old, "tools.json", 1 << 20)
        try:
            listed = json.loads(found[0]) if found else {}
        except (ValueError, RecursionError):
            return
        self.list = listed if isinstance(listed, dict) else {}

    def close(self):
        """Takes away what was begun and not published."""
        if self.fresh is not None:
            try:
                remove_tree(self.top, "tools.new")
            except OSError:
                pass  # the next one does
        for fd in (self.fresh, self.old, self.lock, self.top):
            if fd is not None:
                os.close(fd)
        self.fresh = self.old = self.lock = self.top = None

    # --- what is there ---

    def find(self, tool):
        """What is recorded of a tool that is there, whole; None: it is not."""
        entry = self.list.get(tool)
        if self.old is None or not isinstance(entry, dict) or not isinstance(entry.get("version"), str):
            return None
        path = checked_file(tool, entry)
        digest = path and hash_file(self.old, path)
        return entry if digest and digest == entry.get("sha256") and self.has_others(tool) else None

    def has_others(self, tool):
        """The first of its files was looked at."""
        for path in FILES[tool][1:]:
            try:
                st = os.stat(path, dir_fd=self.old, follow_symlinks=False)
            except OSError:
                return False
            if not stat.S_ISREG(st.st_mode) or st.st_mode & 0o111 != 0o111 or st.st_size == 0:
                return False
        return True

    def names_are_right(self, tool):
        """Whether the names that it is called by are those that publish makes, also when another Carrel has made them."""
        if tool == "uv" and read_file(self.old, "bin/uv") != (uv_script(), 0o755):
            return False
        try:
            return all(os.readlink(name, dir_fd=self.old) == target for name, target in LINKS[tool].items())
        except OSError:
            return False

    # --- the next one ---

    def begin(self):
        """If that was not done yet."""
        if self.fresh is not None:
            return
        try:
            os.mkdir("tools.new", 0o755, dir_fd=self.top)
            self.fresh = os.open("tools.new", OPEN_DIR, dir_fd=self.top)
            os.fchmod(self.fresh, 0o755)
            for name in DIRS:
                os.mkdir(name, 0o755, dir_fd=self.fresh)
                os.chmod(name, 0o755, dir_fd=self.fresh)
        except OSError as error:
            raise Failure(f"make '{self.path}/tools.new'", error) from None

    def spare(self):
        """A file for an archive on its way; gone when it is closed."""
        try:
            fd = os.open("archive", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.fresh)
            os.unlink("archive", dir_fd=self.fresh)
        except OSError as error:
            raise Failure(f"make a file in '{self.path}'", error) from None
        return open(fd, "r+b", buffering=0)

    def add(self, tool, package, file):
        """A tool from its archive, which was checked."""
        entry = {"version": package.version, "archive": package.file, "hash": f"{package.algorithm}:{package.hash}"}
        path = checked_file(tool, entry)
        if not path:
            raise Failure(f"'{package.file[:100]}' is no name for an archive")
        try:
            self.unpack(tool, package, file, path)
            entry["sha256"] = hash_file(self.fresh, path)
            if not entry["sha256"]:
                raise Failure(f"read '{path}' again")
        except Failure:
            self.drop(path, *FILES[tool])
            raise
        self.fresh_list[tool] = entry

    def unpack(self, tool, package, file, path):
        if tool == "bun":
            unpack.members(file, package.file, {"package/bin/bun": path}, self.fresh)
        elif tool == "uv":
            scripts = f"uv-{package.version}.data/scripts"
            unpack.members(file, package.file, {f"{scripts}/uv": path, f"{scripts}/uvx": FILES[tool][1]}, self.fresh)
        else:
            file.seek(0)
            try:
                write_file(self.fresh, path, iter(lambda: file.read(BLOCK), b""), 0o644)
            except OSError as error:
                raise Failure(f"write '{path}'", error) from None

    def drop(self, *paths):
        """Half a tool is none; the one of before takes its place."""
        for path in paths:
            try:
                os.unlink(path, dir_fd=self.fresh)
            except OSError:
                pass  # it has not come so far

    def take_over(self, tool, entry):
        """The files of a tool that stays as it is, as further names of the same."""
        for path in FILES[tool] or (checked_file(tool, entry),):
            try:
                os.link(path, path, src_dir_fd=self.old, dst_dir_fd=self.fresh, follow_symlinks=False)
            except OSError as error:
                raise Failure(f"take over '{path}' of the tools there are", error) from None
        self.fresh_list[tool] = entry

    def publish(self):
        """What was not added is taken over; then it is there for all."""
        self.begin()
        for tool in TOOLS:
            entry = None if tool in self.fresh_list else self.find(tool)
            if entry:
                self.take_over(tool, entry)
        try:
            if "uv" in self.fresh_list:
                write_file(self.fresh, "bin/uv", (uv_script(),), 0o755)
            for tool in self.fresh_list:
                for name, target in LINKS[tool].items():
                    os.symlink(target, name, dir_fd=self.fresh)
            write_file(self.fresh, "tools.json", (json.dumps(self.fresh_list, indent=2, sort_keys=True).encode(),), 0o644)
            for name in DIRS:
                fd = os.open(name, OPEN_DIR, dir_fd=self.fresh)
                os.fsync(fd)
                os.close(fd)
            os.fsync(self.fresh)
        except OSError as error:
            raise Failure("write the tools to disk", error) from None
        self.exchange()
        os.close(self.fresh)
        self.fresh = None
        try:
            os.fsync(self.top)
        except OSError:
            pass  # they are there in any case, old or new

    def exchange(self):
        """Both names change at one instant, where the file system can do that."""
        try:
            if rename_in(self.top, "tools.new", "tools", RENAME_NOREPLACE):
                return
            remove_tree(self.top, "tools.old")
            if rename_in(self.top, "tools.new", "tools", RENAME_EXCHANGE):
                rename_in(self.top, "tools.new", "tools.old", 0)  # else it goes with the next one
                return
            self.rename("tools", "tools.old")
            try:
                self.rename("tools.new", "tools")
            except OSError:
                self.rename("tools.old", "tools")
                raise
        except OSError as error:
            raise Failure("put the new tools into place", error) from None

    def rename(self, old, new):
        os.rename(old, new, src_dir_fd=self.top, dst_dir_fd=self.top)
