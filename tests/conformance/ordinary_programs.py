#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""Ordinary programs work unharmed: git, gcc and make, node, bash job control, sqlite3, tar, curl to a server inside."""
import os
import shutil
import sys
import tarfile
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import PYTHON, CarrelTest, read, write  # noqa: E402

PROGRAMS = "git gcc make node bash sqlite3 tar curl".split()


class OrdinaryPrograms(CarrelTest):
    def script(self, text, *options):
        """A bash script that must succeed line by line; returns what it printed, stderr included."""
        done = self.run_in(*options, "--", "bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{text}")
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout

    def test_the_programs_are_there(self):
        missing = [name for name in PROGRAMS if not shutil.which(name)]
        self.assertEqual([], missing, "install them: tools/install-deps test")

    def test_git_keeps_a_history_and_clones(self):
        shown = self.script("""
            git init -q -b main /repo && cd /repo
            git config user.name me && git config user.email me@example.org
            printf 'one\\n' > file && mkdir dir && ln -s ../file dir/link && chmod +x file
            git add -A && git commit -qm first
            printf 'two\\n' >> file && git commit -qam second
            git checkout -qb side HEAD~1 && printf 'x\\n' > other && git add other && git commit -qm third
            git checkout -q main && git merge -q -m merged side && git gc -q && git fsck --strict --no-progress
            git clone -q /repo /copy && cd /copy && git log --format=%s | sort | tr '\\n' ' '
            git worktree add -q /tmp/tree HEAD~1 && git stash list && git status --porcelain | wc -l
            git archive HEAD | tar -t | sort | tr '\\n' ' '""")
        self.assertIn("first merged second third", shown)
        self.assertIn("dir/ dir/link file other", shown)
        self.assertEqual("one\ntwo\n", read(f"{self.ws}/copy/file"))
        self.assertTrue(os.access(f"{self.ws}/copy/file", os.X_OK))

    def test_gcc_and_make_build_something_that_runs(self):
        os.mkdir(f"{self.ws}/src")
        write(f"{self.ws}/src/main.c",
              '#include <stdio.h>\n#include <math.h>\n#include <pthread.h>\nint answer(void);\n'
              'static void *work(void *x) { return x; }\n'
              'int main(void) { pthread_t t; if (pthread_create(&t, 0, work, 0)) return 1; pthread_join(t, 0);\n'
              'printf("answer %d %.1f\\n", answer(), sqrt(answer())); return 0; }\n')
        write(f"{self.ws}/src/answer.c", "int answer(void) { return 49; }\n")
        write(f"{self.ws}/src/Makefile", "CFLAGS = -O2 -Wall -Werror\nprog: main.o libanswer.so\n"
              "\t$(CC) -o $@ main.o -L. -lanswer -lm -lpthread -Wl,-rpath,'$$ORIGIN'\n"
              "libanswer.so: answer.c\n\t$(CC) -shared -fPIC -o $@ $<\nclean:\n\trm -f prog *.o *.so\n")
        shown = self.script("cd /src && make -j4 && ./prog && make -q prog && "
                            "make clean && make -s CC='gcc -static-libgcc' && ./prog")
        self.assertEqual(2, shown.count("answer 49 7.0"))

    def test_node_runs_workers_children_and_servers(self):
        write(f"{self.ws}/app.js", """
            const fs = require('fs'), os = require('os'), http = require('http');
            const { Worker } = require('worker_threads'), { execFileSync } = require('child_process');
            fs.mkdirSync('/out', { recursive: true }); fs.writeFileSync('/out/f', 'x'.repeat(100000));
            console.log('size', fs.statSync('/out/f').size, 'cpus', os.cpus().length > 0);
            console.log(os.hostname(), os.userInfo().username);
            console.log(execFileSync('/bin/echo', ['child']).toString().trim());
            const worker = new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
            worker.on('message', (answer) => {
                console.log('worker', answer);
                const server = http.createServer((_, response) => response.end('served')).listen(0, '127.0.0.1', () =>
                    http.get({ host: '127.0.0.1', port: server.address().port }, (response) => response.on('data', (data) => {
                        console.log(data.toString()); server.close(); })));
            });""")
        shown = self.script("node /app.js; node -e 'process.exit(3)' || echo status $?; "
                            "node -p 'new WebAssembly.Memory({initial:1}).buffer.byteLength'")
        self.assertEqual("size 100000 cpus true\ncarrel user\nchild\nworker 42\nserved\nstatus 3\n65536\n", shown)

    def test_node_finds_modules_of_the_workspace(self):
        os.makedirs(f"{self.ws}/node_modules/hello")
        write(f"{self.ws}/node_modules/hello/index.js", "module.exports = 'hello from a module'")
        self.assertEqual("hello from a module\n", self.script("cd /tmp && node -p 'require(\"hello\")'"))

    def test_bash_job_control_without_a_terminal(self):
        shown = self.script("""
            set -m
            sleep 100 & first=$!
            sleep 100 | cat & second=$!
            jobs -l | wc -l
            kill -STOP %1 && wait -f %1 & sleep 0.2; jobs | grep -c Stopped || true
            kill -CONT $first; kill $first; wait $first || echo first $?
            kill %2; wait $second || echo second $?
            trap 'echo trapped' USR1; kill -USR1 $$; (exit 9) || echo sub $?
            coproc cat; echo through >&"${COPROC[1]}"; read -r line <&"${COPROC[0]}"; echo $line
            diff <(echo a) <(echo a) && echo same""")
        for line in ("first 143", "second 143", "trapped", "sub 9", "through", "same"):
            self.assertIn(line + "\n", shown)

    def test_sqlite_keeps_transactions_and_its_write_ahead_log(self):
        shown = self.script("""
            sqlite3 /data.db 'PRAGMA journal_mode=WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);'
            for i in 1 2 3 4; do
                sqlite3 -cmd '.timeout 30000' /data.db "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL
                    SELECT x+1 FROM n WHERE x<500) INSERT INTO t(b) SELECT 'r' || x FROM n;" &
            done
            wait
            sqlite3 /data.db 'BEGIN; DELETE FROM t; ROLLBACK; SELECT count(*) FROM t; PRAGMA integrity_check;'""")
        self.assertEqual("wal\n2000\nok\n", shown)
        import sqlite3
        with sqlite3.connect(f"{self.ws}/data.db") as database:
            self.assertEqual((2000,), database.execute("SELECT count(*) FROM t").fetchone())
        database.close()

    def test_tar_round_trips_every_kind_of_file(self):
        shown = self.script("""
            mkdir -p /in/sub && cd /in && echo x > file && chmod 751 file
            ln -s file link && ln file hard && mkfifo fifo
            touch -d @1000000000 file && truncate -s 10M sparse && touch $'new\\nline' 'sp ace' $'\\xff'
            tar -C / -cSf /tmp/a.tar in && tar -C / -czf /in.tgz in && mkdir /out && tar -C /out -xpf /tmp/a.tar
            diff -r --exclude=fifo /in /out/in && test -p /out/in/fifo && stat -c '%a %Y %h' /out/in/file""")
        self.assertEqual("751 1000000000 2\n", shown)
        with tarfile.open(f"{self.ws}/in.tgz") as archive:
            self.assertIn("in/file", archive.getnames())

    def test_curl_reaches_a_server_inside(self):
        write(f"{self.ws}/page.html", "hello over http\n")
        shown = self.script(f"""
            {PYTHON} -m http.server -d / -b 127.0.0.1 8000 >/dev/null 2>&1 &
            until curl -s http://localhost:8000/page.html; do sleep 0.05; done
            curl -sS -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:8000/none
            curl -sS --max-time 5 http://example.org/ || echo status $?""")
        self.assertTrue(shown.startswith("hello over http\n404\n"), shown)
        self.assertIn("status 6", shown, "no name is resolved, and at once")

    def test_python_makes_and_uses_a_virtual_environment(self):
        self.script(f"{PYTHON} -m venv --without-pip /.venv")
        shown = self.script("python -c 'import sys; print(sys.prefix)'")
        self.assertEqual("/.venv\n", shown)

    def test_python_runs_pools_of_processes(self):
        shown = self.script(f"""{PYTHON} - <<'END'
import concurrent.futures, multiprocessing, tempfile, sqlite3, asyncio, mmap, fcntl, locale, ssl
def square(x): return x * x
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(4) as pool: print(sum(pool.map(square, range(10))))
    with multiprocessing.Pool(2) as pool: print(pool.map(square, [1, 2, 3]))
    async def main():
        process = await asyncio.create_subprocess_exec("echo", "async", stdout=-1)
        print((await process.communicate())[0])
    asyncio.run(main())
    with tempfile.TemporaryFile() as file:
        fcntl.flock(file, fcntl.LOCK_EX); file.truncate(4096); mmap.mmap(file.fileno(), 4096)[0] = 1
    print(len(ssl.create_default_context().get_ca_certs()) >= 0)
END""")
        self.assertEqual("285\n[1, 4, 9]\nb'async\\n'\nTrue\n", shown)


if __name__ == "__main__":
    unittest.main()
