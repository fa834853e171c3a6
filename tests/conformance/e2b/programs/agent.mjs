// SPDX-License-Identifier: Apache-2.0
// The loop of an agent: code is run in one state, its error goes back to who wrote it, and the mended code ends with an answer.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
const model = [
  "prices = {'tea': 3, 'cake': 5}",
  "total = sum(prices[item] for item in ['tea', 'cake', 'juice'])",
  "prices['juice'] = 4\ntotal = sum(prices[item] for item in ['tea', 'cake', 'juice'])\nprint('sum is', total)\ntotal"
]
const said = []
let answer
for (const code of model) {
  const run = await sandbox.runCode(code, { onStdout: m => said.push(m.line) })
  answer = run.error ? `${run.error.name}: ${run.error.value}` : run.text
  said.push(answer)
}
assert.deepEqual(said, [undefined, "KeyError: 'juice'", 'sum is 12\n', '12'])
const shell = await sandbox.runCode('echo $((40 + 2)) && pwd', { language: 'bash' })
assert.deepEqual(shell.logs.stdout.join(''), '42\n/home/user\n')
const js = await sandbox.runCode('const words = ["b", "a"]; words.sort().join()', { language: 'js' })
assert.equal(js.text, 'a,b')
await sandbox.kill()
console.log('done')
