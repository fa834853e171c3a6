// SPDX-License-Identifier: Apache-2.0
// Whatever lands in a directory is worked on as it comes: a watch and a command for each file.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
await sandbox.files.makeDir('inbox')
const work = new Map()
const watch = await sandbox.files.watchDir('inbox', event => {
  if (event.type === 'write' && !work.has(event.name)) work.set(event.name, sandbox.commands.run(`tr a-z A-Z < inbox/${event.name} > done-${event.name}`))
})
const names = [...Array(12).keys()].map(n => `letter${n}`)
await Promise.all(names.map(name => sandbox.files.write(`inbox/${name}`, `dear ${name}`)))
while (work.size < names.length) await new Promise(resolve => setTimeout(resolve, 20))
await Promise.all(work.values())
for (const name of names) assert.equal(await sandbox.files.read(`done-${name}`), `DEAR ${name.toUpperCase()}`)
await watch.stop()
await sandbox.kill()
console.log('done')
