// SPDX-License-Identifier: Apache-2.0
// A terminal as a page shows one: keys go in piece by piece, it is resized, a second viewer joins, and a program that asks is answered.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
const screens = ['', '']
const decoders = [new TextDecoder(), new TextDecoder()]
const show = n => bytes => { screens[n] += decoders[n].decode(bytes, { stream: true }) }
const until = async (n, what) => { while (!what.test(screens[n])) await new Promise(resolve => setTimeout(resolve, 20)) }
const keys = text => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
const terminal = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: show(0) })
await sandbox.pty.resize(terminal.pid, { cols: 132, rows: 43 })
for (const key of 'stty size\n') await keys(key)
await until(0, /43 132/)
await sandbox.pty.connect(terminal.pid, { onData: show(1) })
await keys('read -p "name? " name; echo "hello, $name é"\n')
await until(1, /name\? $/)
await keys('Ann\n')
await until(0, /hello, Ann é/)
await until(1, /hello, Ann é/)
await keys('sleep 600\n')
await keys('\x03echo back\n')
await until(0, /\rback/)
await keys('exit\n')
assert.equal((await terminal.wait()).exitCode, 0)
await sandbox.kill()
console.log('done')
