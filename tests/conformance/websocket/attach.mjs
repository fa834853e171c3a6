// SPDX-License-Identifier: Apache-2.0
// A terminal through ws of npm: websocket_clients.py runs it.
import assert from 'node:assert/strict';
import WebSocket from 'ws';

const { CARREL_URL: url, CARREL_KEY: key } = process.env;
const headers = { Authorization: `Bearer ${key}` };
const post = async (path, body) => (await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })).json();
await post('/v1/workspaces', { id: 'npm' });
const { exec_id } = await post('/v1/workspaces/npm/exec', { argv: ['bash'], pty: {}, stdin_open: true, background: true });
const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/workspaces/npm/exec/${exec_id}/attach`, { headers });
assert.equal(socket.extensions, '');
const said = [];
let output = '';
const closed = new Promise((resolve, reject) => {
  socket.on('error', reject);
  socket.on('close', resolve);
});
socket.on('message', (data, isBinary) => {
  if (isBinary) output += data;
  else said.push(JSON.parse(data));
  if (!isBinary && said.at(-1).type === 'ready') {
    socket.send(JSON.stringify({ type: 'resize', cols: 111, rows: 33 }));
    socket.send(Buffer.from('stty size; head -c 200000 /dev/zero | tr "\\0" x | wc -c; exit 7\n'));
  }
});
assert.equal(await closed, 1000);
assert.match(output, /33 111\r\n200000\r\n/);
assert.deepEqual(said.map((one) => one.type), ['ready', 'exit']);
assert.equal(said[1].code, 7);
assert.equal(said[1].result.reason, 'exit');
console.log('done');
