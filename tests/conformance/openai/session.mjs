// SPDX-License-Identifier: Apache-2.0
// What the unmodified @openai/agents-extensions does with its Cloudflare client, against a daemon: openai_agents.py runs it.
import assert from 'node:assert/strict';
import { Manifest } from '@openai/agents/sandbox';
import { CloudflareSandboxClient } from '@openai/agents-extensions/sandbox/cloudflare';

const [workerUrl, apiKey] = [process.env.CARREL_URL, process.env.CARREL_KEY];
const client = new CloudflareSandboxClient({ workerUrl, apiKey });
const session = await client.create({ manifest: new Manifest({ entries: { notes: { type: 'dir', children: { 'a.txt': { type: 'file', content: 'begun\n' } } } } }) });
const id = session.state.sandboxId;

// exec: both streams, the status, the directory, characters that pieces could cut.
const text = async (args) => String(await session.execCommand(args));
let said = await text({ cmd: "pwd; echo oops >&2; printf 'ä€😀%.0s' $(seq 30000) | tail -c 9; exit 3" });
assert.match(said, /\/workspace\nä€😀\noops/);
assert.match(said, /exited with code 3/);
assert.ok(!(await text({ cmd: "printf 'ä€😀%.0s' $(seq 30000)" })).includes('\ufffd'));

// files: any bytes, names that need encoding, what is not there.
const bytes = Uint8Array.from({ length: 100000 }, (_, i) => (i * 7) % 256);
const writer = session.writer();
for (const name of ['/workspace/b i n/ü%2f?#.bin', '/workspace/empty']) {
  const content = name.endsWith('empty') ? new Uint8Array() : bytes;
  await writer.writeFile(name, content);
  assert.deepEqual(new Uint8Array(await session.readFile({ path: name })), content);
}
assert.equal(await session.pathExists('/workspace/notes/a.txt'), true);
assert.equal(await session.pathExists('/workspace/none'), false);
await assert.rejects(session.readFile({ path: '/workspace/none' }), { name: /NotFound/ });
await assert.rejects(session.readFile({ path: '/etc/passwd' }));

// apply_patch, as an agent asks for it.
const editor = session.createEditor();
await editor.createFile({ type: 'create_file', path: 'patched.txt', diff: '+one\n+two\n' });
await editor.updateFile({ type: 'update_file', path: 'patched.txt', diff: '@@\n one\n-two\n+three\n' });
assert.match(await text({ cmd: 'cat patched.txt' }), /one\nthree/);

// persist and hydrate: all of it, and another sandbox has it too.
const tar = await session.persistWorkspace();
await text({ cmd: 'rm -rf notes' });
await session.hydrateWorkspace(tar);
assert.match(await text({ cmd: 'cat notes/a.txt' }), /begun/);
const other = await client.create({ manifest: new Manifest({}) });
await other.hydrateWorkspace(tar);
assert.match(String(await other.execCommand({ cmd: 'cat notes/a.txt' })), /begun/);
await other.delete();
assert.equal(await other.running(), false);

// pty: a program that talks, and its end.
said = await text({ cmd: 'python3 -q', tty: true, yieldTimeMs: 3000 });
const number = Number(/session ID (\d+)/.exec(said)[1]);
assert.match(String(await session.writeStdin({ sessionId: number, chars: 'print(6*7)\n', yieldTimeMs: 2000 })), /42/);
said = String(await session.writeStdin({ sessionId: number, chars: 'exit(5)\n', yieldTimeMs: 20000 }));
assert.match(said, /exited with code 5/);

// mounts are refused, and say so; resume finds it; without a key nobody does.
await assert.rejects(session.mountBucket({ bucket: 'b', mountPath: '/workspace/m', options: {} }), (e) => e.details.status === 400 && /policy/.test(e.details.reason));
const resumed = await client.resume(session.state);
assert.match(String(await resumed.execCommand({ cmd: 'cat notes/a.txt' })), /begun/);
await assert.rejects(new CloudflareSandboxClient({ workerUrl, apiKey: 'ck_no' }).create({ manifest: new Manifest({}) }), (e) => e.details.status === 401 && /a valid key is needed/.test(e.message));
await session.delete();
assert.equal(await session.running(), false);
console.log('done', id);
