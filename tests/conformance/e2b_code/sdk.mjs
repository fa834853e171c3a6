// SPDX-License-Identifier: Apache-2.0
// E2B's code interpreter, as npm has it, on a daemon that the environment names.
import assert from 'node:assert/strict';
import { Sandbox } from '@e2b/code-interpreter';

const sandbox = await Sandbox.create();
try {
  const heard = [];
  let e = await sandbox.runCode("x = 20\nprint('é')\nx + 1", { onStdout: (m) => heard.push(m.line), onResult: (r) => heard.push(r.text) });
  assert.equal(e.text, '21');
  assert.deepEqual(heard, ['é\n', '21']);
  e = await sandbox.runCode('1 / 0');
  assert.equal(e.error.name, 'ZeroDivisionError');
  e = await sandbox.runCode("console.log('hi'); [1, 2]", { language: 'javascript' });
  assert.deepEqual([e.logs.stdout, e.text], [['hi\n'], '[ 1, 2 ]']);
  e = await sandbox.runCode("display({'text/html': '<b>', 'image/png': b'png', 'application/json': {'a': 1}}, raw=True)");
  assert.deepEqual([e.results[0].html, e.results[0].png, e.results[0].json], ['<b>', 'cG5n', { a: 1 }]);
  const context = await sandbox.createCodeContext({ language: 'javascript', cwd: '/tmp' });
  assert.equal((await sandbox.runCode('process.cwd()', { context })).text, '/tmp');
  await sandbox.runCode('let kept = 41', { context });
  for (const code of ['while (true) {}', 'await new Promise(() => {})']) {
    await assert.rejects(sandbox.runCode(code, { context, timeoutMs: 1000 }), { name: 'TimeoutError' });
    assert.equal((await sandbox.runCode('kept + 1', { context })).text, '42');
  }
  assert.equal((await sandbox.runCode('1 + 1', { context })).text, '2');
  assert.equal((await sandbox.runCode('process.exit(1)', { context })).error.name, 'UnexpectedEndOfExecution');
  await sandbox.restartCodeContext(context);
  assert.equal((await sandbox.listCodeContexts()).length, 3);
  await sandbox.removeCodeContext(context);
  await assert.rejects(sandbox.runCode('1', { context }), /not found|404|Not Found/);
} finally {
  await sandbox.kill();
}
console.log('done');
