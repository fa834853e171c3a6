// SPDX-License-Identifier: Apache-2.0
// A workspace as the sandbox of Vercel's AI SDK.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Local } from "carrel";
import { sandbox } from "carrel/ai";

/** @type {Local} */
let local;
/** @type {ReturnType<typeof sandbox>} */
let box;
before(async () => {
    local = await Local.start();
    box = sandbox(await local.client.workspace("ai"));
});
after(() => local?.close());

const bytes = (/** @type {string} */ text) => new TextEncoder().encode(text);
/** @param {ReadableStream<Uint8Array> | null} stream */
const text = async (stream) => new Response(stream).text();

test("files", async () => {
    await box.writeTextFile({ path: "/d/e/a.txt", content: "one\ntwo\nthree\n" });
    await box.writeBinaryFile({ path: "d/b", content: new Uint8Array([0, 255]) });
    await box.writeFile({ path: "/d/s", content: new Blob([bytes("streamed")]).stream() });
    assert.equal(await box.readTextFile({ path: "d/e/a.txt" }), "one\ntwo\nthree\n");
    assert.equal(await box.readTextFile({ path: "/d/e/a.txt", startLine: 2, endLine: 3 }), "two\nthree");
    assert.equal(await box.readTextFile({ path: "/d/e/a.txt", startLine: 3, endLine: 99 }), "three\n");
    assert.deepEqual([...await box.readBinaryFile({ path: "/d/b" }) ?? []], [0, 255]);
    assert.equal(await text(await box.readFile({ path: "/d/s" })), "streamed");
    for (const read of [box.readFile, box.readBinaryFile, box.readTextFile, box.stat, box.listDirectory]) assert.equal(await read({ path: "/none" }), null);
    await box.run({ command: "ln -s b d/l" });
    assert.deepEqual(await box.stat({ path: "/d/l" }), { type: "file", size: 2 });
    assert.equal((await box.stat({ path: "/d" }))?.type, "directory");
    assert.deepEqual((await box.listDirectory({ path: "/d" }))?.map((entry) => `${entry.type} ${entry.name}`).sort(), ["directory e", "file b", "file s", "symlink l"]);
    await assert.rejects(async () => box.listDirectory({ path: "/d/b" }));
    assert.deepEqual([await box.deleteFile({ path: "/d/l" }), await box.deleteFile({ path: "/d/l" })], [true, false]);
    await assert.rejects(async () => box.deleteFile({ path: "/d" }));
    await assert.rejects(async () => box.writeTextFile({ path: "/d", content: "" }));
});

test("commands", async () => {
    const command = "pwd; echo $A; echo err >&2; exit 3";
    assert.deepEqual(await box.run({ command, workingDirectory: "/d", env: { A: "b" } }), { exitCode: 3, stdout: "/d\nb\n", stderr: "err\n" });
    const talk = await box.spawn({ command: "read line; echo got $line; echo e >&2; exit 4", stdin: true });
    const writer = talk.stdin.getWriter();
    await writer.write(bytes("words\n"));
    await writer.close();
    assert.deepEqual([await text(talk.stdout), await text(talk.stderr), await talk.wait()], ["got words\n", "e\n", { exitCode: 4 }]);
    await talk.kill(); // it has ended
    const gone = await box.spawn({ command: "exit 5", stdin: true });
    assert.deepEqual(await gone.wait(), { exitCode: 5 });
    await gone.stdin.close(); // it has ended, too
    const other = await box.spawn({ command: "sleep 1000" });
    assert.equal("stdin" in other, false);
    await other.kill();
    await other.kill();
    assert.notEqual((await other.wait()).exitCode, 0);
    const stop = new AbortController();
    const third = await box.spawn({ command: "echo begun; sleep 1000", abortSignal: stop.signal });
    await third.stdout.getReader().read();
    stop.abort(new Error("enough"));
    await assert.rejects(async () => third.wait(), /enough/);
    const ws = await local.client.workspace("ai");
    assert.deepEqual(await ws.execs({ state: "running" }), []);
});
