#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 3600
# LONG
# BASE
"""With those of system_installs sixty packages of many kinds: each is installed and does what it is for."""
import unittest

from system_installs import PACKAGES as TEN
from systemtest import SystemTest

PACKAGES = {
    "poppler-utils": "pdftotext -v", "tesseract-ocr": "tesseract --version", "ghostscript": "gs --version", "imagemagick": "convert --version",
    "ffmpeg": "ffmpeg -version", "graphviz": "echo 'digraph{a->b}' | dot -Tsvg | grep -q svg", "pandoc": "echo '# a' | pandoc -t html | grep -q h1",
    "default-jdk-headless": "javac -version", "maven": "mvn -v", "nodejs": "node -e 'process.exit(1 + 1 - 2)'", "ruby": "ruby -e 'exit 6 * 7 == 42'",
    "php-cli": "php -r 'exit(6 * 7 - 42);'", "golang-go": "go version", "rustc": "rustc --version", "gcc": "echo 'int main(){return 0;}' | gcc -xc - -o /tmp/c && /tmp/c",
    "g++": "echo 'int main(){return 0;}' | g++ -xc++ - -o /tmp/cc && /tmp/cc", "make": "make --version", "cmake": "cmake --version", "python3-venv": "python3 -m venv --without-pip /tmp/v",
    "python3-numpy": "python3 -c 'import numpy; assert numpy.ones(3).sum() == 3'", "python3-pandas": "python3 -c 'import pandas'", "python3-pip": "pip --version",
    "postgresql": "test -x /usr/lib/postgresql/*/bin/postgres && id postgres", "nginx": "nginx -v && id www-data", "redis-server": "redis-server --version && id redis",
    "mariadb-server": "mariadbd --version && id mysql", "sqlite3": "test $(echo 'select 6*7;' | sqlite3) = 42", "git": "git --version", "curl": "curl --version",
    "wget": "wget --version", "jq": "test $(echo '{\"a\":42}' | jq .a) = 42", "ripgrep": "rg --version", "fd-find": "fdfind --version", "tree": "tree --version",
    "zip": "zip -v", "unzip": "unzip -v", "p7zip-full": "7z", "xz-utils": "echo a | xz | xz -d", "zstd": "echo a | zstd | zstd -d", "rsync": "rsync --version",
    "vim-tiny": "update-alternatives --query vi | grep -q vim", "tmux": "tmux -V", "screen": "screen --version", "procps": "ps", "lsof": "lsof -v", "strace": "strace -V",
    "fonts-dejavu-core": "test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts-noto-color-emoji": "test -e /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf",
    "locales": "locale -a", "tzdata": "test -e /usr/share/zoneinfo/Europe/Vienna",
}


class Sixty(SystemTest):
    def test_sixty_packages(self):
        wanted = {**TEN, **PACKAGES}
        self.assertEqual(60, len(wanted))
        done = self.apt("export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -qy --no-install-recommends "
                        + " ".join(wanted), timeout=3000)
        self.assertEqual(0, done.returncode, done.stdout[-3000:] + done.stderr[-3000:])
        for name, smoke in wanted.items():
            with self.subTest(package=name):
                done = self.user(f"({smoke}) </dev/null")
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual("", self.root("dpkg --audit").stdout)


if __name__ == "__main__":
    unittest.main()
