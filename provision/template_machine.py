# SPDX-License-Identifier: Apache-2.0
"""The steps of a template with a system of its own: all of it happens inside the workspace that is to become the template, as
its root, which is nobody of this host. What they change of the base becomes the template's layer over it."""
import io
import os
import stat
import tarfile

from words import Failure

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENV = {"PATH": PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "NO_COLOR": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1",
       "PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
# Names at the top that are parts of the system; below all others is the workspace's own tree, which is the user's.
SYSTEM = {"usr", "etc", "var", "opt", "home", "root", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}
ARCHIVE = "/.carrel-build.tar"
MOST_COPIED = 1 << 30
# What is left of the way here. What root has put into the tree is the user's, as all in it.
TIDY = ("apt-get clean 2>/dev/null; rm -rf /var/lib/apt/lists/* /root/.cache /root/.npm\n"
        "for top in /* /.[!.]*; do mountpoint -q \"$top\" || find \"$top\" -xdev ! -user 1000 -exec chown -h 1000:1000 {} +; done; true")


class Machine:
    def __init__(self, room, file, find):
        self.room, self.file, self.find = room, file, find

    def steps(self):
        file = self.file
        return [
            ("system", True, lambda: self.run(["chmod", "755", "/"])),  # so that other users than ours get to it
            ("debian packages", self.debian(), self.install_debian),
            ("users", file.users, lambda: self.each(file.users, lambda name: ["useradd", "-m", "-s", "/bin/bash", name])),
            ("python packages", file.python.packages, self.install_python),
            ("node packages", file.node.packages, self.install_node),
            ("files", file.files, lambda: self.copy([(self.find(beside, '"files"'), inside) for inside, beside in file.files.items()])),
            *((step.title, True, lambda step=step: self.take(step)) for step in file.steps),
            ("tidying", True, lambda: self.run(["sh", "-c", TIDY]))]

    def sets(self):
        """The sets of names that it needs."""
        file = self.file
        return [name for name, needed in (("@debian", file.debian or file.python.packages or file.node.packages or file.steps),
                                          ("@python", file.python.packages or file.steps),
                                          ("@node", file.node.packages or file.steps)) if needed]

    def run(self, argv, user="root", env=None, cwd=None):
        self.room.run(argv, more={"env": {**ENV, **(env or {})}, "user": user, **({"cwd": cwd} if cwd else {})})

    def each(self, items, command):
        for item in items:
            self.run(command(item))

    # --- packages ---

    def debian(self):
        brought = [name for name, packages in (("python3-pip", self.file.python.packages), ("npm", self.file.node.packages)) if packages]
        return list(dict.fromkeys(self.file.debian + brought))

    def install_debian(self):
        self.run(["apt-get", "update", "-q"])
        self.run(["apt-get", "install", "-qy", "--no-install-recommends", "--", *self.debian()])

    def install_python(self):
        python = self.file.python
        self.run(["python3", "-m", "pip", "install", "--no-cache-dir", "-q", *([] if python.build else ["--only-binary", ":all:"]), "--",
                  *python.packages])

    def install_node(self):
        node = self.file.node
        self.run(["npm", "install", "-g", "--no-fund", "--no-audit", *([] if node.build else ["--ignore-scripts"]), "--", *node.packages])

    # --- files ---

    def copy(self, pairs, owner=None):
        """[(a path here, a path inside)], by an archive that tar inside unpacks."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, inside in pairs:
                self.add(tar, archive, path, inside.strip("/"), owner)
        self.room.put(ARCHIVE, archive.getvalue())
        self.run(["tar", "-x", "-p", "--numeric-owner", "-C", "/", "-f", ARCHIVE])
        self.run(["rm", "-f", ARCHIVE])

    def add(self, tar, archive, path, inside, owner):
        """What lies there itself, links included: none is followed, so nothing else comes along."""
        st = os.lstat(path)
        info = tarfile.TarInfo(inside)
        info.mode, info.mtime = stat.S_IMODE(st.st_mode) & 0o777, int(st.st_mtime)
        in_system = inside.split("/")[0] in SYSTEM
        info.uid, info.gid = (0, 0) if in_system and owner is None else (1000, 1000)
        if stat.S_ISDIR(st.st_mode):
            info.type = tarfile.DIRTYPE
            if inside:
                tar.addfile(info)
            for entry in sorted(os.listdir(path)):
                self.add(tar, archive, f"{path}/{entry}", f"{inside}/{entry}".strip("/"), owner)
        elif stat.S_ISLNK(st.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            tar.addfile(info)
        elif stat.S_ISREG(st.st_mode):
            self.add_file(tar, archive, path, info)
        else:
            raise Failure(f"'{path[:160]}' is neither a file, a directory nor a symlink")

    @staticmethod
    def add_file(tar, archive, path, info):
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            if archive.tell() + info.size > MOST_COPIED:
                raise Failure("more than 1 GiB would be copied")
            tar.addfile(info, file)

    # --- what a Dockerfile says, or "run" ---

    def take(self, step):
        if step.line is not None:
            shell = ["sh", "-c", step.line] if isinstance(step.line, str) else step.line
            self.run(shell, step.user, step.env, step.cwd)
        else:
            found = [(self.find(source, step.title), place, into) for source, place, into in step.pairs]
            self.copy([(path, f"{place}/{os.path.basename(path)}" if into and not os.path.isdir(path) else place)
                       for path, place, into in found], None if step.user == "root" else step.user)
