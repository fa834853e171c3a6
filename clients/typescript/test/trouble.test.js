// SPDX-License-Identifier: Apache-2.0
// Much at once, and what goes wrong: nothing is lost, nothing leaks, nothing hangs, and every error has a class.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { after, before, test } from "node:test";
import { Carrel, CarrelError, ConnectionFailed, FileNotFound, InvalidRequest, Local, OldDaemon, TimedOut, WrongServer } from "carrel";
import { BUN, daemon, freePort, front } from "./daemon.js";

const MB = 1 << 20;
const SIZE = 100 * MB;

/** @type {Awaited<ReturnType<typeof daemon>>} */
let d;
before(async () => { d = await daemon(); });
after(async () => {
    d?.tcp.close();
    await d?.local.close();
});

function descriptors() {
    return readdirSync("/proc/self/fd").length;
}

/** @param {() => boolean} good */
async function until(good) {
    for (let tries = 0; !good(); tries++) {
        assert.ok(tries < 400, String(good));
        await new Promise((resolve) => { setTimeout(resolve, 25); });
    }
}

/** A server of ours on loopback. @param {(socket: import("node:net").Socket) => void} serve */
async function serving(serve) {
    /** @type {Set<import("node:net").Socket>} */
    const open = new Set();
    const server = createServer((socket) => {
        open.add(socket);
        socket.on("error", () => undefined);
        serve(socket);
    });
    await new Promise((resolve) => { server.listen(0, "127.0.0.1", () => { resolve(undefined); }); });
    const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
    return { url: `http://127.0.0.1:${port}`, close() { for (const one of open) one.destroy(); server.close(); } };
}

/** How much memory is in use at most while it goes on, beyond what was before. @param {(look: () => void) => Promise<void>} act */
async function memoryOf(act) {
    globalThis.gc?.();
    const start = process.memoryUsage().rss;
    let most = start;
    const look = () => { most = Math.max(most, process.memoryUsage().rss); };
    const timer = setInterval(look, 20);
    try {
        await act(look);
    } finally {
        clearInterval(timer);
    }
    return most - start;
}

function* pattern() {
    const piece = Buffer.alloc(MB);
    for (let n = 0; n < piece.length; n++) piece[n] = (n * 31) & 255;
    for (let n = 0; n < SIZE / MB; n++) yield piece;
}

test("a reader goes on where it was when the front dies", async () => {
    const ws = await d.socket.workspace("front-dies");
    const command = ws.stream("for i in $(seq 400); do echo line $i; echo bad $i >&2; sleep 0.005; done");
    let number = 0;
    for await (const output of command) {
        number += 1;
        if (number % 150 === 20 && number < 500) process.kill(front(d.local), "SIGKILL");
        assert.ok(output.data.length > 0);
    }
    const lines = Array.from({ length: 400 }, (_, n) => n + 1);
    assert.equal(command.result?.stdout, lines.map((n) => `line ${n}\n`).join(""));
    assert.equal(command.result?.stderr, lines.map((n) => `bad ${n}\n`).join(""));
});

test("a connection that breaks again and again loses no byte", async () => {
    const upstream = Number(new URL(d.url).port);
    let left = 40;
    const proxy = await serving((socket) => {
        const behind = connect(upstream, "127.0.0.1");
        let allowed = left-- > 0 ? 300_000 : Infinity;
        behind.on("error", () => { socket.destroy(); });
        behind.on("close", () => { socket.destroy(); });
        behind.on("data", (data) => {
            allowed -= data.length;
            socket.write(allowed < 0 ? data.subarray(0, data.length >> 1) : data);
            if (allowed < 0) behind.destroy();
        });
        socket.on("data", (data) => { behind.write(data); });
        socket.on("close", () => { behind.destroy(); });
    });
    try {
        const ws = await new Carrel({ url: proxy.url, key: d.key }).workspace("breaks");
        const result = await ws.run("seq 400000");
        assert.equal(createHash("sha256").update(result.stdoutBytes).digest("hex"),
            createHash("sha256").update(Array.from({ length: 400_000 }, (_, n) => `${n + 1}\n`).join("")).digest("hex"));
        assert.ok(left < 35, `it broke ${40 - left} times`);
    } finally {
        proxy.close();
    }
});

test("100 MB through each call that streams, in constant memory", async () => {
    const ws = await d.tcp.workspace("large");
    const wanted = createHash("sha256");
    for (const piece of pattern()) wanted.update(piece);
    const digest = wanted.digest("hex");
    const used = {
        write: await memoryOf(async (look) => {
            async function* pieces() {
                for (const piece of pattern()) {
                    look();
                    yield piece;
                }
            }
            assert.equal((await ws.files.write("/large", pieces())).size, SIZE);
        }),
        read: await memoryOf(async (look) => {
            const seen = createHash("sha256");
            for await (const piece of ws.files.readStream("/large")) {
                look();
                seen.update(piece);
            }
            assert.equal(seen.digest("hex"), digest);
        }),
        // Its first pieces are read slowly.
        run: await memoryOf(async (look) => {
            const seen = createHash("sha256");
            const command = ws.stream("cat large; sha256sum large >&2", { keep: false });
            let number = 0;
            let said = "";
            for await (const output of command) {
                look();
                if (output.stream === "stderr") said += output.text;
                else seen.update(output.data);
                if (++number < 20) await new Promise((resolve) => { setTimeout(resolve, 50); });
            }
            assert.equal(seen.digest("hex"), digest);
            assert.match(said, new RegExp(digest));
            assert.deepEqual([command.result?.exitCode, command.result?.truncated, command.result?.stdoutBytes.length], [0, false, 0]);
        }),
    };
    const top = mkdtempSync(join(tmpdir(), "large-"));
    try {
        Object.assign(used, {
            append: await memoryOf(async (look) => {
                async function* pieces() {
                    for (const piece of pattern()) {
                        look();
                        yield piece;
                    }
                }
                assert.equal((await ws.files.append("/twice", pieces())).size, SIZE);
            }),
            download: await memoryOf(async (look) => { await ws.files.download("/large", join(top, "d")); look(); }),
            upload: await memoryOf(async (look) => { await ws.files.upload(join(top, "d"), "/tree/d"); look(); }),
            "download of a tree": await memoryOf(async (look) => { await ws.files.download("/tree", join(top, "tree")); look(); }),
            "upload of a tree": await memoryOf(async (look) => { await ws.files.upload(join(top, "tree"), "/up"); look(); }),
            backup: await memoryOf(async (look) => { await pipeline(ws.backup(), createWriteStream(join(top, "backup.tar"))); look(); }),
            restore: await memoryOf(async (look) => {
                await ws.files.rm("/up", { recursive: true });
                assert.equal((await ws.restore(createReadStream(join(top, "backup.tar")))).ok, true);
                look();
            }),
        });
    } finally {
        rmSync(top, { recursive: true, force: true });
    }
    await ws.files.cp("/up/d", "/copy");
    await ws.files.mv("/copy", "/moved");
    const sums = [];
    for await (const entry of ws.files.inventory("/", { hash: true })) if (entry.size === SIZE) sums.push([entry.path, entry.sha256]);
    assert.deepEqual(sums.sort(), ["/large", "/moved", "/tree/d", "/twice", "/up/d"].map((path) => [path, digest]));
    console.log(JSON.stringify(used));
    for (const [call, bytes] of Object.entries(used)) assert.ok(bytes < 80 * MB, `${call}: ${bytes >> 20} MiB`);
    const whole = await ws.files.readBytes("/large");
    assert.equal(whole.length, SIZE);
    assert.deepEqual(await ws.files.writeMany([["/a", "1"], ["/many", whole]]), [undefined, undefined]);
    const [small, large] = await ws.files.readMany(["/a", "/many"]);
    assert.equal(Buffer.from(/** @type {Uint8Array} */ (small)).toString(), "1");
    assert.ok(Buffer.from(/** @type {Uint8Array} */ (large)).equals(whole));
    await ws.delete({ purge: true });
});

test("200 commands at once from one process, and no descriptor more than before", async () => {
    for (const how of [{ socket: d.local.socket }, { url: d.url, key: d.key }]) {
        const c = new Carrel(how);
        const ws = await c.workspace(`many-${Object.keys(how).length}`);
        await ws.run("true");
        c.close();
        await new Promise((resolve) => { setTimeout(resolve, 100); });
        const before = descriptors();
        const again = new Carrel(how);
        const there = await again.workspace(ws.id);
        const all = async () => {
            const results = await Promise.all(Array.from({ length: 200 }, (_, n) => there.run(`echo ${n}; cat`, { stdin: `in ${n}` })));
            assert.deepEqual(results.map((result) => result.stdout), Array.from({ length: 200 }, (_, n) => `${n}\nin ${n}`));
        };
        await all();
        globalThis.gc?.();
        const memory = process.memoryUsage().rss;
        for (let n = 0; n < 3; n++) await all();
        globalThis.gc?.();
        const more = process.memoryUsage().rss - memory;
        assert.ok(more < 48 * MB, `${more >> 20} MiB more`);
        const left = Array.from({ length: 20 }, () => again.transport.open("GET", "/v1/events", { stream: true }));
        for (const answer of await Promise.all(left)) answer.drop(); // readers that go away
        for await (const output of there.stream("yes")) if (output.offset > 0) break;
        for (const one of await there.execs({ state: "running" })) await there.command(String(one.exec_id)).kill();
        again.close();
        await until(() => descriptors() <= before);
    }
});

test("the daemon is killed and started anew under a client", async () => {
    const port = await freePort();
    const settings = { listen: `127.0.0.1:${port}` };
    const own = await Local.start();
    const state = `${own.state}-2`;
    const first = await Local.start({ state, settings });
    const c = new Carrel({ socket: first.socket });
    try {
        const ws = await c.workspace("restarted");
        await ws.files.write("/kept", "1");
        const command = ws.stream("echo begun; sleep 1000");
        const ended = (async () => {
            for await (const output of command) if (output.text === "begun\n") first.process.kill("SIGKILL");
        })().then(() => undefined, (error) => error);
        await until(() => first.process.signalCode !== null || first.process.exitCode !== null);
        await assert.rejects(ws.files.read("/kept"), ConnectionFailed);
        const second = await Local.start({ state, settings });
        try {
            const error = await ended; // every sandbox has died with the daemon, and the next one knows of it
            assert.ok(error === undefined || error instanceof CarrelError, String(error));
            assert.ok(error !== undefined || command.result?.exitCode !== 0);
            assert.equal(await ws.files.read("/kept"), "1");
            assert.equal((await ws.run("cat kept")).stdout, "1");
        } finally {
            await second.close();
        }
    } finally {
        c.close();
        await first.close();
        await own.close();
    }
});

test("what is no daemon of ours", async () => {
    await assert.rejects(new Carrel({ url: `http://127.0.0.1:${await freePort()}` }).version(), (error) => error instanceof ConnectionFailed
        && /carrel serve/.test(error.message));
    await assert.rejects(new Carrel({ socket: "/tmp/there/is/none.sock" }).version(), ConnectionFailed);
    const told = '{"error":{"code":"not_found","message":"no such thing"}}';
    const newer = '{"version":"9","api":9,"api_oldest":9}';
    const answers = /** @type {[string, new (...args: any[]) => CarrelError][]} */ ([
        ["HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>", WrongServer],
        ["HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>", WrongServer],
        ["HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]", WrongServer],
        [`HTTP/1.1 404 No\r\nContent-Length: ${told.length}\r\n\r\n${told}`, OldDaemon],
        [`HTTP/1.1 200 OK\r\nContent-Length: ${newer.length}\r\n\r\n${newer}`, OldDaemon],
        ["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":1", ConnectionFailed],
        ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a", ConnectionFailed],
        ["SSH-2.0-OpenSSH\r\n", ConnectionFailed],
        ["", ConnectionFailed],
    ]);
    const version = '{"version":"0","api":1,"api_oldest":1}';
    const daemonly = `HTTP/1.1 200 OK\r\nContent-Length: ${version.length}\r\n\r\n${version}`;
    for (const [answer, kind] of answers) {
        // At once, and after it has said that it is a daemon.
        for (const first of kind === OldDaemon ? [answer] : [answer, daemonly]) {
            const server = await serving((socket) => {
                socket.on("data", (data) => {
                    if (String(data).includes("/v1/version") && first === daemonly) socket.write(daemonly);
                    else socket.end(answer);
                });
            });
            const c = new Carrel({ url: server.url, key: "k" });
            await assert.rejects(c.workspaces(), first === answer ? kind : CarrelError, JSON.stringify(answer));
            await assert.rejects((await fakeWorkspace(c)).run("true"), CarrelError, JSON.stringify(answer));
            await assert.rejects((await fakeWorkspace(c)).files.write("/x", "y"), CarrelError, JSON.stringify(answer));
            c.close();
            server.close();
        }
    }
});

/** @param {Carrel} c */
async function fakeWorkspace(c) {
    const { Workspace } = await import("carrel");
    return new Workspace(c, { id: "x" });
}

test("it is told whether what was asked for may have been done", async () => {
    const version = '{"version":"0","api":1,"api_oldest":1}';
    const server = await serving((socket) => {
        socket.on("data", (data) => {
            if (String(data).includes("/v1/version")) socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${version.length}\r\n\r\n${version}`);
            else socket.destroy();
        });
    });
    const c = new Carrel({ url: server.url });
    await c.version().catch(() => undefined);
    await assert.rejects((await fakeWorkspace(c)).files.write("/x", "y"), (error) => error instanceof ConnectionFailed
        && /may be done or not/.test(error.message) && !/cannot be reached/.test(error.message));
    await assert.rejects((await fakeWorkspace(c)).files.rm("/x"), /may be done or not/);
    c.close();
    server.close();
    const nobody = new Carrel({ url: server.url });
    await assert.rejects((await fakeWorkspace(nobody)).files.write("/x", "y"), (error) => error instanceof ConnectionFailed
        && /cannot be reached/.test(error.message) && !/may be done/.test(error.message));
});

test("one that takes connections and never answers", async () => {
    const server = await serving(() => undefined);
    const c = new Carrel({ url: server.url, timeout: 0.3 });
    await assert.rejects(c.workspace("a"), (error) => error instanceof TimedOut && /no answer within 0\.3 s/.test(error.message));
    const ws = await fakeWorkspace(c);
    await assert.rejects(ws.run("true"), ConnectionFailed);
    await assert.rejects(ws.files.write("/x", "y", { signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
    await assert.rejects(new Carrel({ url: server.url }).version({ signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
    c.close();
    server.close();
});

test("where the daemon is said to be", () => {
    for (const wrong of [{ url: "localhost:7070" }, { url: "http://" }, { url: "ftp://x" }, { url: "http://x", socket: "/x" }, { socket: `/${"x".repeat(200)}` }]) {
        assert.throws(() => new Carrel(wrong), InvalidRequest, JSON.stringify(wrong));
    }
    const kept = { ...process.env };
    try {
        Object.assign(process.env, { CARREL_URL: "http://127.0.0.1:1/", CARREL_KEY: "k", CARREL_SOCKET: "/s" });
        assert.deepEqual(new Carrel().transport.where, { url: "http://127.0.0.1:1", key: "k" });
        assert.deepEqual(new Carrel({ socket: "/t", key: "l" }).transport.where, { url: "http://carrel", socket: "/t", key: "l" });
        process.env.CARREL_URL = "127.0.0.1:7070";
        assert.throws(() => new Carrel(), /CARREL_URL '127.0.0.1:7070': write an address/);
        delete process.env.CARREL_URL;
        assert.equal(new Carrel().transport.where.socket, "/s");
        delete process.env.CARREL_SOCKET;
        process.env.XDG_STATE_HOME = "/x";
        assert.equal(new Carrel().transport.where.socket, process.geteuid?.() === 0 ? "/var/lib/carrel/carrel.sock" : "/x/carrel/carrel.sock");
    } finally {
        for (const name of ["CARREL_URL", "CARREL_KEY", "CARREL_SOCKET", "XDG_STATE_HOME"]) delete process.env[name];
        Object.assign(process.env, kept);
    }
});

test("a source of content that fails is told as it is, and nothing is written", async () => {
    const ws = await d.tcp.workspace("source");
    async function* broken() {
        yield "half";
        throw new TypeError("mine");
    }
    await assert.rejects(ws.files.write("/f", broken()), TypeError);
    await assert.rejects(ws.files.read("/f"), FileNotFound);
    await assert.rejects(ws.files.upload("/there/is/none", "/f"), { code: "ENOENT" });
    await assert.rejects(ws.run("cat", { stdin: broken(), signal: AbortSignal.timeout(60_000) }), TypeError);
});

test("a daemon that cannot start says why", async () => {
    await assert.rejects(Local.start({ program: "/there/is/none" }), /cannot be started/);
    await assert.rejects(Local.start({ settings: { nonsense: "1" } }), /nonsense/);
    assert.equal(BUN, "bun" in process.versions);
});
