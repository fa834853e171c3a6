// SPDX-License-Identifier: Apache-2.0
// The client against a real daemon, over its socket and TCP. CARREL names the program.
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readlinkSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { getEventListeners } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import {
    Carrel, CarrelError, CommandFailed, Conflict, FileNotFound, Forbidden, InvalidRequest, NotFound, PlanRefused, Unauthorized, bytesOfName, nameOfBytes,
} from "carrel";
import { all, daemon } from "./daemon.js";

/** @type {Awaited<ReturnType<typeof daemon>>} */
let d;
before(async () => { d = await daemon(); });
after(async () => {
    d?.tcp.close();
    await d?.local.close();
});

for (const way of /** @type {const} */ (["socket", "tcp"])) {
    describe(`over ${way === "tcp" ? "TCP" : "the socket"}`, () => {
        /** @type {Carrel} */
        let c;
        let count = 0;
        before(() => { c = d[way]; });
        const desk = () => c.workspace(`${way}-${++count}`);

        test("a command has output, status and reason", async () => {
            const ws = await desk();
            const result = await ws.run("echo out; echo err >&2; exit 3");
            assert.deepEqual([result.stdout, result.stderr, result.exitCode, result.reason, result.ok], ["out\n", "err\n", 3, "exit", false]);
            assert.match(String(result), /exit 3/);
            await assert.rejects(ws.run("echo why >&2; exit 4", { check: true }), (error) => error instanceof CommandFailed
                && /why/.test(error.message) && error.result.exitCode === 4);
        });

        test("arguments, input, directory and variables", async () => {
            const ws = await desk();
            await ws.files.mkdir("/d");
            const how = { cwd: "d", env: { X: "1 2" }, stdin: "in" };
            assert.equal((await ws.run(["sh", "-c", 'pwd; echo "$X"; cat', "a b"], how)).stdout, "/d\n1 2\nin");
            assert.deepEqual(Buffer.from((await ws.run("cat", { stdin: Buffer.from([255, 0]) })).stdoutBytes), Buffer.from([255, 0]));
        });

        test("input as a stream, larger than what the daemon holds for a command that does not read", async () => {
            const ws = await desk();
            const piece = Buffer.alloc(1 << 20, "x");
            async function* pieces() {
                for (let n = 0; n < 12; n++) yield piece;
                yield "end";
            }
            assert.equal((await ws.run("sleep 0.3; wc -c", { stdin: pieces() })).stdout.trim(), String(12 * (1 << 20) + 3));
            assert.equal((await ws.run("true", { stdin: pieces() })).exitCode, 0);
        });

        test("a deadline is told", async () => {
            const result = await (await desk()).run("sleep 100", { timeout: 0.3 });
            assert.deepEqual([result.timedOut, result.exitCode, result.reason], [true, 124, "timeout"]);
        });

        test("output comes as it is made", async () => {
            const ws = await desk();
            const command = ws.stream("echo 1; while [ ! -e go ]; do sleep 0.05; done; echo 2");
            const seen = [];
            for await (const output of command) {
                seen.push([output.stream, output.text, output.offset]);
                if (seen.length === 1) await ws.files.write("/go", ""); // it waits for who has read its first line
            }
            assert.deepEqual(seen, [["stdout", "1\n", 0], ["stdout", "2\n", 2]]);
            assert.equal(command.result?.stdout, "1\n2\n");
        });

        test("background, input, signal and kill", async () => {
            const ws = await desk();
            const command = await ws.start("cat; echo done", { stdinOpen: true });
            await command.write("abc");
            await command.closeStdin();
            assert.equal((await command.wait()).stdout, "abcdone\n");
            const other = await ws.start("trap 'echo told; exit 7' USR1; echo ready; while :; do sleep 0.05; done");
            for await (const output of other) if (output.text.includes("ready")) await other.signal("USR1");
            assert.deepEqual([other.result?.exitCode, other.result?.stdout], [7, "ready\ntold\n"]);
            const third = await ws.start("sleep 1000");
            assert.deepEqual((await ws.execs({ state: "running" })).map((item) => item.exec_id), [third.id]);
            await third.kill();
            assert.equal((await ws.command(third.id).wait()).reason, "signal");
        });

        test("a terminal, resized and typed into", async () => {
            const ws = await desk();
            const terminal = await ws.pty(["bash", "--norc"], { cols: 100, rows: 30 });
            let screen = "";
            await terminal.write("stty size\n");
            for await (const output of terminal) {
                const before = screen;
                screen += output.text;
                if (/30 100/.test(screen) && !/30 100/.test(before)) {
                    await terminal.resize(90, 20);
                    await terminal.write("stty size; exit\n");
                }
            }
            assert.match(screen, /20 90/);
            assert.equal(terminal.result?.exitCode, 0);
        });

        test("an abort ends the command, before it has begun and in its middle", async () => {
            const ws = await desk();
            const stop = new AbortController();
            const command = ws.stream("echo $$; sleep 1000", { signal: stop.signal });
            await assert.rejects(async () => { for await (const output of command) stop.abort(new Error(`enough of ${output.text}`)); }, /enough of/);
            const late = new AbortController();
            const running = ws.run("sleep 1000", { signal: late.signal });
            late.abort();
            await assert.rejects(running, { name: "AbortError" });
            for (let tries = 0; (await ws.execs({ state: "running" })).length > 0; tries++) {
                assert.ok(tries < 600, "a command runs on");
                await new Promise((resolve) => { setTimeout(resolve, 50); });
            }
            await assert.rejects(ws.run("true", { signal: AbortSignal.abort() }), { name: "AbortError" });
            const often = new AbortController();
            for (let n = 0; n < 12; n++) await ws.run("true", { signal: often.signal });
            assert.equal(getEventListeners(often.signal, "abort").length, 0);
            await assert.rejects(ws.files.read("/x", { signal: AbortSignal.abort() }), { name: "AbortError" });
        });

        test("files", async () => {
            const { files } = await desk();
            const entry = await files.write("/a/b/c.txt", "one\ntwo\n");
            assert.equal(await files.read("a/b/c.txt"), "one\ntwo\n");
            assert.equal(Buffer.from(await files.readBytes("/a/b/c.txt", { start: 4, end: 7 })).toString(), "two");
            assert.equal((await files.readBytes("/a/b/c.txt", { start: 4, end: 4 })).length, 0);
            const page = await files.lines("/a/b/c.txt", { offset: 1 });
            assert.deepEqual([page.content, page.startLine, page.endLine, page.totalLines, page.nextOffset], ["two\n", 2, 2, 2, undefined]);
            assert.equal(await files.edit("/a/b/c.txt", "one", "1"), 1);
            await assert.rejects(files.write("/a/b/c.txt", "x", { ifMatch: entry.etag }), Conflict);
            await assert.rejects(files.write("/a/b/c.txt", "x", { isNew: true }), Conflict);
            await files.append("/a/b/c.txt", "three\n");
            assert.equal(await files.read("/a/b/c.txt"), "1\ntwo\nthree\n");
            assert.deepEqual((await files.ls("/a")).map((one) => [one.name, one.isDir]), [["b", true]]);
            const globbed = await files.glob("**/*.txt");
            assert.deepEqual([[...globbed], globbed.truncated], [["/a/b/c.txt"], false]);
            assert.deepEqual([...await files.glob("a/*", "/", { directories: true })], ["/a/b"]);
            assert.deepEqual([...await files.grep("two", "/a")], [{ path: "/a/b/c.txt", line: 2, text: "two" }]);
            assert.equal((await files.grep("^t", "/a", { regex: true, limit: 1 })).truncated, true);
            await files.mv("/a/b/c.txt", "/n/d.txt");
            await files.cp("/n", "/m");
            assert.equal(await files.exists("/m/d.txt"), true);
            assert.equal(await files.exists("/m/d.txt/x"), false);
            await files.symlink("/l", "m/d.txt");
            const link = await files.stat("/l");
            assert.deepEqual([link.type, link.target, (await files.stat("/l", { follow: true })).type], ["symlink", "m/d.txt", "file"]);
            await files.chmod("/m/d.txt", 0o600);
            assert.equal((await files.stat("/m/d.txt")).mode, "0600");
            const listed = await all(files.inventory("/m", { hash: true }));
            assert.match(listed.find((one) => one.path === "/m/d.txt")?.sha256 ?? "", /^[0-9a-f]{64}$/);
            await files.rm("/m", { recursive: true });
            await assert.rejects(files.read("/m/d.txt"), (error) => error instanceof FileNotFound && error.code === "file_not_found" && error.requestId !== "");
        });

        test("a list of many entries comes whole", async () => {
            const { files } = await desk();
            assert.equal((await files.writeMany(Array.from({ length: 2500 }, (_, n) => [`/many/${n}`, String(n)]))).filter(Boolean).length, 0);
            assert.equal((await files.ls("/many")).length, 2500);
            const read = await files.readMany(["/many/7", "/none"]);
            assert.equal(Buffer.from(/** @type {Uint8Array} */ (read[0])).toString(), "7");
            assert.ok(read[1] instanceof FileNotFound);
        });

        test("names and content that are no text", async () => {
            const ws = await desk();
            const raw = Buffer.from([0x2f, 0x63, 0x61, 0x66, 0xe9, 0xc3, 0xa9]); // one byte of Latin-1, then é as UTF-8 has it
            const name = nameOfBytes(raw);
            assert.equal(name, "/caf\udce9é");
            assert.deepEqual(bytesOfName(name), raw);
            await ws.files.write(name, Buffer.from([255]));
            assert.deepEqual(Buffer.from(await ws.files.readBytes(raw)), Buffer.from([255]));
            assert.ok((await ws.files.ls("/")).some((entry) => entry.path === name));
            assert.deepEqual(Buffer.from(/** @type {Uint8Array} */ ((await ws.files.readMany([name]))[0])), Buffer.from([255]));
            assert.deepEqual(await ws.files.writeMany([["/x", "1"], ["/y", Buffer.from([0])], [name, "2"], ["/nul", "a\0b"]]),
                [undefined, undefined, undefined, undefined]);
            assert.equal(await ws.files.read("/nul"), "a\0b");
            const odd = Buffer.from([0x2f, 0x64, 0xff]);
            await ws.files.mkdir(odd);
            const stop = new AbortController();
            await assert.rejects(async () => {
                for await (const change of ws.files.watch(odd, { signal: stop.signal })) {
                    if (change.event === "ready") await ws.files.upload(import.meta.dirname, Buffer.concat([odd, Buffer.from("/up")]));
                    else if (change.path.startsWith("/d\udcff/up")) stop.abort();
                }
            }, { name: "AbortError" });
            assert.ok(await ws.files.exists(Buffer.concat([odd, Buffer.from("/up/daemon.js")])));
            await ws.files.mv(name, "/z");
            const result = await ws.run("printf 'a\\377b' | tee /dev/stderr");
            assert.deepEqual(Buffer.from(result.stdoutBytes), Buffer.from([97, 255, 98]));
            assert.deepEqual([result.stdout, result.stderr], ["a\ufffdb", "a\ufffdb"]);
        });

        test("trees go up and down", async () => {
            const ws = await desk();
            const top = mkdtempSync(join(tmpdir(), "tree-"));
            try {
                const long = "n".repeat(120);
                mkdirSync(join(top, "in", "sub", "empty"), { recursive: true });
                writeFileSync(join(top, "in", "f"), "f");
                writeFileSync(join(top, "in", "sub", long), "long");
                writeFileSync(Buffer.concat([Buffer.from(join(top, "in", "caf")), Buffer.from([0xe9])]), "latin");
                symlinkSync(`sub/${long}`, join(top, "in", "link"));
                chmodSync(join(top, "in", "f"), 0o755);
                await ws.files.upload(join(top, "in"), "/up");
                const shown = await ws.run(`test -x up/f && test -d up/sub/empty && cat up/f up/link up/caf* && stat -c %u up/f | sort -u | wc -l`);
                assert.equal(shown.stdout, "flonglatin1\n");
                await ws.files.download("/up", join(top, "out"));
                assert.equal(readFileSync(join(top, "out", "sub", long), "utf8"), "long");
                assert.equal(readFileSync(Buffer.concat([Buffer.from(join(top, "out", "caf")), Buffer.from([0xe9])]), "utf8"), "latin");
                assert.equal(readlinkSync(join(top, "out", "link")), `sub/${long}`);
                assert.equal(statSync(join(top, "out", "f")).mode & 0o777, 0o755);
                await ws.files.download("/up/f", join(top, "one"));
                assert.equal(readFileSync(join(top, "one"), "utf8"), "f");
                await ws.files.upload(join(top, "one"), "/single");
                assert.equal(await ws.files.read("/single"), "f");
            } finally {
                rmSync(top, { recursive: true, force: true });
            }
        });

        test("nothing of a hostile tree lands outside", async () => {
            const ws = await desk();
            const top = mkdtempSync(join(tmpdir(), "tree-"));
            try {
                for (const [name, make] of Object.entries({
                    absolute: "ln -s /etc/passwd bad/l", up: "ln -s ../../out bad/l", deep: "mkdir bad/d; ln -s d/../../../out bad/l",
                })) {
                    await ws.run(`rm -rf bad; mkdir bad; ${make}`, { check: true });
                    await assert.rejects(ws.files.download("/bad", join(top, name)), (error) => error instanceof CarrelError && error.code === "invalid_archive");
                }
                // A link that lies there before, in the way of a directory.
                mkdirSync(join(top, "there"));
                symlinkSync(tmpdir(), join(top, "there", "sub"));
                await ws.run("rm -rf good; mkdir -p good/sub; echo x > good/sub/carrel-must-not-be-here", { check: true });
                await assert.rejects(ws.files.download("/good", join(top, "there")), /no directory/);
                assert.equal(existsSync(join(tmpdir(), "carrel-must-not-be-here")), false);
            } finally {
                rmSync(top, { recursive: true, force: true });
            }
        });

        test("a watch tells changes, until it is aborted", async () => {
            const ws = await desk();
            const stop = new AbortController();
            const seen = [];
            await assert.rejects(async () => {
                for await (const change of ws.files.watch("/", { signal: stop.signal })) {
                    seen.push(`${change.event} ${change.path}`);
                    if (change.event === "ready") await ws.files.write("/w.txt", "1");
                    else if (change.path === "/w.txt") stop.abort(); // others may be there: Carrel makes what it needs in a new workspace
                }
            }, { name: "AbortError" });
            assert.deepEqual([seen[0], seen.at(-1)], ["ready /", "create /w.txt"]);
        });

        test("a plan is looked at, applied and undone", async () => {
            const ws = await desk();
            await ws.files.write("/a.txt", "1");
            const plan = await ws.plan(async (p) => {
                await p.run("mkdir old && mv a.txt old/");
                assert.equal((await p.run("ls old")).stdout, "a.txt\n");
            });
            assert.equal(await ws.files.exists("/a.txt"), true);
            assert.match(await plan.show(), /a\.txt -> old\/a\.txt/);
            assert.match(await plan.diff(), /move/);
            assert.equal((await plan.verify()).info.verdict, "clean");
            assert.equal((await plan.apply()).state, "applied");
            assert.equal(await ws.files.exists("/old/a.txt"), true);
            assert.equal((await plan.undo()).state, "undone");
            assert.equal(await ws.files.exists("/a.txt"), true);
            await assert.rejects(ws.plan(async (p) => {
                await p.run("touch never");
                throw new TypeError("mine");
            }), TypeError);
            assert.equal((await ws.plans())[0]?.state, "discarded");
            const p = ws.plan();
            await p.run("rm a.txt");
            await p[Symbol.asyncDispose]();
            assert.equal((await ws.plans())[0]?.state, "discarded");
            await (await ws.submitPlan({ moves: [{ src: "a.txt", dest: "b.txt" }] })).apply();
            assert.equal(await ws.files.read("/b.txt"), "1");
        });

        test("a plan is applied in its turn", async () => {
            const ws = await desk();
            const plan = await ws.plan(async (p) => { await p.run("touch made"); });
            assert.ok(["queued", "applying", "applied"].includes((await plan.apply({ background: true })).state));
            assert.equal((await plan.wait()).state, "applied");
            await assert.rejects(plan.cancel(), Conflict);
            assert.deepEqual((await ws.files.find("made"))[0]?.type, "file");
        });

        test("its whole tree is saved and put back; what was shut is opened", async () => {
            const ws = await desk();
            await ws.files.write("/d/f", "1");
            const saved = Buffer.concat(await all(ws.backup()));
            const tar = Buffer.concat(await all(ws.files.tar("/d")));
            await ws.files.rm("/d", { recursive: true });
            assert.equal((await ws.restore(saved)).exitCode, 0);
            assert.equal(await ws.files.read("/d/f"), "1");
            assert.equal((await ws.files.unpack(tar, "/e")).files, 1);
            await ws.run("chmod 000 e");
            await ws.files.repair("/e");
            assert.equal(await ws.files.read("/e/f"), "1");
            assert.ok((await all(ws.audit())).length > 0);
        });

        test("a server inside is reached by its port", async () => {
            const ws = await desk();
            await ws.files.write("/site/index.html", "hi");
            const server = await ws.start(["python3", "-m", "http.server", "8000", "--directory", "/site"]);
            const port = await ws.openPort(8000, { access: "token" });
            assert.match(port.path ?? "", /^\/p\//);
            assert.deepEqual((await ws.ports()).map((one) => one.port), [8000]);
            let said = "";
            for (let tries = 0; said !== "hi"; tries++) {
                said = await (await fetch(`${d.url}${port.path}`)).text();
                assert.ok(tries < 600, said);
                await new Promise((resolve) => { setTimeout(resolve, 50); });
            }
            await ws.closePort(8000);
            assert.deepEqual(await ws.ports(), []);
            await server.kill();
        });

        test("the record and workspaces", async () => {
            const ws = await desk();
            await ws.run("true");
            const records = await all(c.audit({ workspace: ws.id }));
            assert.ok(records.some((record) => record.operation === "exec.start"));
            for await (const record of c.audit({ workspace: ws.id, follow: true })) if (record.operation === "exec.end") break;
            assert.ok((await c.workspaces()).some((one) => one.id === ws.id));
            await ws.update({ labels: { a: "b" } });
            assert.deepEqual((await ws.refresh()).info.labels, { a: "b" });
            await ws.sleep();
            assert.ok(Array.isArray(await c.templates()));
            assert.ok("interpreters" in await ws.env.show());
            const stop = new AbortController();
            const listening = c.events({ workspace: ws.id, signal: stop.signal });
            const first = listening.next();
            for (let got = false; !got;) {
                await ws.run("true");
                got = await Promise.race([first.then(() => true), new Promise((resolve) => { setTimeout(() => { resolve(false); }, 50); })]);
            }
            assert.match((await first).value?.type ?? "", /^exec\./);
            stop.abort();
            await ws.delete();
            assert.ok((await c.workspace(ws.id)).info.deleted);
            await assert.rejects(ws.run("true"), Conflict);
            assert.ok((await c.workspaces({ deleted: true })).some((one) => one.id === ws.id));
            await c.undelete(ws.id);
            await ws.delete({ purge: true });
            await assert.rejects(c.workspace(ws.id, { create: false }), NotFound);
        });

        test("errors are classes with the daemon's sentence", async () => {
            const ws = await desk();
            await assert.rejects(c.workspace("none", { create: false }), (error) => error instanceof NotFound && error.name === "NotFound");
            await assert.rejects(c.workspace("../x"), InvalidRequest);
            await assert.rejects(ws.run(["true"], { cwd: "/x\0y" }), (error) => error instanceof InvalidRequest && error.requestId !== "" && error.status === 400);
            await assert.rejects(ws.run("true", { timeout: 0 }), InvalidRequest);
            await assert.rejects(ws.files.read("/a/../b"), InvalidRequest);
            await assert.rejects(ws.files.write("/usr/x", "1"), Forbidden);
            const plan = await ws.plan(async (p) => { await p.run("touch a"); });
            await plan.apply();
            await assert.rejects(plan.apply(), (error) => error instanceof Conflict || error instanceof PlanRefused);
        });
    });
}

test("keys: a wrong one, a revoked one, somebody else's workspace", async () => {
    const ws = await d.socket.workspace("not-alices");
    const wrong = new Carrel({ url: d.url, key: "wrong" });
    await assert.rejects(wrong.workspaces(), Unauthorized);
    await assert.rejects(d.tcp.workspace(ws.id, { create: false }), NotFound);
    await assert.rejects(new Carrel({ url: d.url, key: "" }).workspaces(), Unauthorized);
    const made = await d.socket.createKey({ scopes: ["user"], owner: "bob", name: "a key" });
    assert.ok((await d.socket.keys()).some((key) => key.id === made.id));
    const bob = new Carrel({ url: d.url, key: made.key });
    const seen = [];
    await assert.rejects(async () => {
        for await (const output of (await bob.workspace("told")).stream("echo 1; sleep 100")) {
            seen.push(output.text);
            await d.socket.revokeKey(made.id);
        }
    }, (error) => error instanceof Unauthorized && /no longer valid/.test(error.message));
    assert.deepEqual(seen, ["1\n"]);
    assert.equal((await wrong.version()).api, 1); // which needs none
    assert.equal((await wrong.health()).status, "ok");
    assert.ok(await d.socket.ready());
    assert.ok("version" in await d.socket.host());
    assert.match(await d.socket.metrics(), /^carrel_/m);
    assert.equal((await d.socket.adopt({ dryRun: true })).dry_run, true);
    assert.match((await d.tcp.createWorkspace()).id, /./);
});
