// SPDX-License-Identifier: Apache-2.0
// Every public method of the JavaScript Sandbox: what it gives, and which errors it throws. Needs E2B_API_URL, E2B_SANDBOX_URL and
// E2B_API_KEY of a daemon.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import * as e2b from 'e2b'

const { Sandbox } = e2b
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
const until = async what => {
  for (let i = 0; i < 400; i++) {
    const got = await what()
    if (got) return got
    await pause(50)
  }
  throw new Error(`it does not come: ${what}`)
}
const fails = (call, error) => assert.rejects(call, e => e instanceof error || assert.fail(`${e.constructor.name}: ${e.message} ${e.cause || ''}, not ${error.name}`))
// As a browser asks, which finds names below localhost.
const ask = (host, path, headers = {}) => new Promise((resolve, reject) => {
  const by = process.env.E2B_API_URL ? http : https
  const { hostname, port } = new URL(process.env.E2B_API_URL || `https://api.${process.env.E2B_DOMAIN}`)
  by.get({ host: hostname, port, path, headers: { Host: host, ...headers } }, answer => {
    let body = ''
    answer.on('data', piece => { body += piece })
    answer.on('end', () => resolve([answer.statusCode, body]))
  }).on('error', reject)
})

const tests = {
  async lifecycle () {
    const sandbox = await Sandbox.create({ timeoutMs: 300000, metadata: { js: 'a b&c' } })
    const info = await sandbox.getInfo()
    assert.deepEqual([info.sandboxId, info.state, info.metadata], [sandbox.sandboxId, 'running', { js: 'a b&c' }])
    const listed = await Sandbox.list({ query: { metadata: { js: 'a b&c' } } }).nextItems()
    assert.deepEqual(listed.map(s => s.sandboxId), [sandbox.sandboxId])
    await sandbox.setTimeout(100000)
    const [now] = await sandbox.getMetrics()
    assert.ok(now.memUsed > 0 && now.memUsed < now.memTotal && now.diskUsed > 0 && now.cpuUsedPct >= 0)
    await sandbox.files.write('kept', '1')
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.pause(), false)
    assert.equal(await sandbox.isRunning(), false)
    const again = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await again.files.read('kept'), '1')
    const run = await again.commands.run('sleep 100', { background: true })
    const ends = fails(() => run.wait(), e2b.TimeoutError)
    assert.equal(await again.kill(), true)
    await ends
    assert.equal(await again.kill(), false)
    assert.equal(await again.isRunning(), false)
    await fails(() => Sandbox.connect(sandbox.sandboxId), e2b.NotFoundError)
    await fails(() => again.files.read('kept'), e2b.TimeoutError)
    await fails(() => again.commands.run('true'), e2b.SandboxError)
    await fails(() => Sandbox.create({ apiKey: 'e2b_00' }), e2b.AuthenticationError)
    await fails(() => Sandbox.create('no-such-template'), e2b.SandboxError)
  },

  async commands () {
    const sandbox = await Sandbox.create({ envs: { FROM: '1' } })
    const result = await sandbox.commands.run('echo $FROM $MINE; pwd; echo e >&2', { envs: { MINE: '2' } })
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['1 2\n/home/user\n', 'e\n', 0])
    await assert.rejects(() => sandbox.commands.run('exit 5'), e => e instanceof e2b.CommandExitError && e.exitCode === 5)
    await fails(() => sandbox.commands.run('true', { cwd: '/nope' }), e2b.InvalidArgumentError)
    await fails(() => sandbox.commands.run('true', { user: 'root' }), e2b.SandboxError)
    await fails(() => sandbox.commands.run('true', { user: 'other' }), e2b.AuthenticationError)
    await fails(() => sandbox.commands.run('sleep 5', { timeoutMs: 500 }), e2b.TimeoutError)
    const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
    assert.ok((await sandbox.commands.list()).some(p => p.pid === cat.pid && p.cmd === '/bin/bash'))
    await sandbox.commands.sendStdin(cat.pid, 'in\n')
    await sandbox.commands.closeStdin(cat.pid)
    assert.equal((await cat.wait()).stdout, 'in\n')
    const slow = await sandbox.commands.run('sleep 100', { background: true })
    const other = await sandbox.commands.connect(slow.pid)
    assert.equal(await slow.kill(), true)
    await fails(() => other.wait(), e2b.CommandExitError)
    assert.equal(await sandbox.commands.kill(999999), false)
    await fails(() => sandbox.commands.connect(999999), e2b.NotFoundError)
    await sandbox.kill()
  },

  async terminals () {
    const sandbox = await Sandbox.create()
    let said = ''
    const pty = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: bytes => { said += new TextDecoder().decode(bytes) } })
    await sandbox.pty.resize(pty.pid, { cols: 99, rows: 33 })
    await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; echo x$((40+2)); exit\n'))
    assert.equal((await pty.wait()).exitCode, 0)
    assert.match(said, /33 99[^]*x42/)
    await sandbox.kill()
  },

  async files () {
    const sandbox = await Sandbox.create()
    const { files } = sandbox
    assert.equal((await files.write('a.txt', 'häh')).path, '/home/user/a.txt')
    assert.equal(await files.read('a.txt'), 'häh')
    assert.equal((await files.write([{ path: 'm1', data: '1' }, { path: '/tmp/m2', data: new Blob(['2']) }])).length, 2)
    assert.deepEqual((await files.list('.')).map(e => [e.name, e.type, e.permissions, e.owner]),
      [['a.txt', 'file', '-rw-r--r--', 'user'], ['m1', 'file', '-rw-r--r--', 'user']])
    assert.deepEqual([await files.makeDir('d'), await files.makeDir('d')], [true, false])
    assert.equal((await files.rename('m1', 'd/m1')).path, '/home/user/d/m1')
    assert.deepEqual([await files.exists('m1'), await files.exists('d/m1')], [false, true])
    assert.equal((await files.getInfo('d/m1')).size, 1)
    await files.remove('d/m1')
    await fails(() => files.read('d/m1'), e2b.NotFoundError)
    await fails(() => files.list('a.txt'), e2b.InvalidArgumentError)
    await fails(() => files.read('d'), e2b.InvalidArgumentError)
    const seen = []
    const watch = await files.watchDir('d', event => { seen.push(`${event.name} ${event.type}`) }, { recursive: true })
    await files.write('d/new', '1')
    await until(() => seen.includes('new create') && seen.includes('new write'))
    await watch.stop()
    await fails(() => files.watchDir('nope', () => {}), e2b.NotFoundError)
    const big = randomBytes(8 << 20)
    await files.write('big', new Blob([big]).stream())
    const digest = createHash('sha256').update(big).digest('hex')
    assert.equal((await sandbox.commands.run('sha256sum < big')).stdout.slice(0, 64), digest)
    assert.equal(createHash('sha256').update(await files.read('big', { format: 'bytes' })).digest('hex'), digest)
    const down = await sandbox.downloadUrl('a.txt', { useSignatureExpiration: 100 })
    assert.equal(await (await fetch(down)).text(), 'häh')
    assert.equal((await fetch(down.replace('a.txt', 'b.txt'))).status, 401)
    const form = new FormData()
    form.append('file', 'by form')
    assert.equal((await fetch(await sandbox.uploadUrl('form.txt'), { method: 'POST', body: form })).status, 200)
    assert.equal(await files.read('form.txt'), 'by form')
    await sandbox.kill()
  },

  async ports () {
    const sandbox = await Sandbox.create()
    await sandbox.files.write('w.txt', 'served')
    const server = 'python3 -m http.server 3000'
    await sandbox.commands.run(server, { background: true, timeoutMs: 0 })
    await until(async () => (await ask(sandbox.getHost(3000), '/w.txt'))[1] === 'served')
    const [status, body] = await ask(sandbox.getHost(3001), '/')
    assert.deepEqual([status, JSON.parse(body).message], [502, 'The sandbox is running but port is not open'])
    const closed = await Sandbox.create({ network: { allowPublicTraffic: false } })
    await closed.commands.run(server, { background: true, timeoutMs: 0 })
    assert.equal((await ask(closed.getHost(3000), '/'))[0], 403)
    assert.equal((await ask(closed.getHost(3000), '/', { 'E2B-Traffic-Access-Token': 'wrong' }))[0], 403)
    await until(async () => (await ask(closed.getHost(3000), '/', { 'E2B-Traffic-Access-Token': closed.trafficAccessToken }))[0] === 200)
    await closed.kill()
    await sandbox.kill()
    assert.equal((await ask(sandbox.getHost(3000), '/'))[0], 502)
  },

  async git () {
    const sandbox = await Sandbox.create()
    const { git, commands, files } = sandbox
    const here = '/home/user/repo'
    await commands.run('git init -q --bare -b main origin.git')
    await git.clone('/home/user/origin.git', { path: here })
    await git.configureUser('A', 'a@example.com', { scope: 'local', path: here })
    await git.setConfig('core.abbrev', '12', { scope: 'local', path: here })
    assert.equal(await git.getConfig('core.abbrev', { scope: 'local', path: here }), '12')
    await files.write('repo/a', '1')
    assert.equal((await git.status(here)).isClean, false)
    await git.add(here)
    await git.commit(here, 'first')
    assert.equal((await git.status(here)).isClean, true)
    assert.equal(await git.remoteGet(here, 'origin'), '/home/user/origin.git')
    await git.remoteAdd(here, 'second', '/home/user/origin.git')
    await git.push(here, { remote: 'origin', branch: 'main' })
    await git.createBranch(here, 'next')
    await files.write('repo/a', '2')
    await git.restore(here, { paths: ['a'] })
    await git.reset(here, { mode: 'hard' })
    assert.equal(await files.read('repo/a'), '1')
    await git.checkoutBranch(here, 'main')
    await git.deleteBranch(here, 'next')
    assert.deepEqual((await git.branches(here)).branches, ['main'])
    await git.pull(here, { remote: 'origin', branch: 'main' })
    await git.init('/home/user/other', { initialBranch: 'main' })
    await git.dangerouslyAuthenticate({ username: 'a', password: 'secret', host: 'git.example.com' })
    await fails(() => git.clone('/home/user/nowhere'), e2b.CommandExitError)
    await sandbox.kill()
  },

  async rest () {
    const sandbox = await Sandbox.create()
    assert.equal(sandbox.getMcpUrl(), `https://${sandbox.getHost(50005)}/mcp`)
    await fails(() => sandbox.getMcpToken(), e2b.SandboxError)
    assert.deepEqual(await sandbox.listSnapshots().nextItems(), [])
    assert.equal(await Sandbox.deleteSnapshot('no-such'), false)
    await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] })
    const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
    await cat.sendStdin('by its handle\n')
    await cat.closeStdin()
    assert.equal((await cat.wait()).stdout, 'by its handle\n')
    const left = await sandbox.commands.run('sleep 60', { background: true })
    await left.disconnect()
    assert.deepEqual((await sandbox.files.writeFiles([{ path: 'w1', data: '1' }])).map(w => w.path), ['/home/user/w1'])
    const pty = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: () => {} })
    const again = await sandbox.pty.connect(pty.pid, { onData: () => {} })
    await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('exit\n'))
    assert.equal((await again.wait()).exitCode, 0)
    const other = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
    assert.equal(await sandbox.pty.kill(other.pid), true)
    assert.equal(await sandbox.betaPause(), true)
    assert.equal((await Sandbox.getFullInfo(sandbox.sandboxId)).state, 'paused')
    await sandbox.kill()
  }
}

// Which public methods were called: none is left out because nobody thought of it. What TypeScript calls private is not counted, nor what
// docs/from-e2b.md lists under "What there is not" (E2B_TEST_NOT).
const types = readFileSync(new URL('./node_modules/e2b/dist/index.d.ts', import.meta.url), 'utf8')
const hidden = new Set([...types.matchAll(/^ {2}(?:private|protected)(?: static| readonly)* (\w+)/gm)].map(m => m[1]))
const without = new Set(process.env.E2B_TEST_NOT.split(' '))
const called = new Set()
const wrapped = new Map()
function watch (name, object) {
  if (wrapped.has(object)) return
  wrapped.set(object, name)
  for (const method of Object.getOwnPropertyNames(object)) {
    const { value, writable } = Object.getOwnPropertyDescriptor(object, method)
    if (typeof value !== 'function' || !writable || method === 'constructor') continue
    const noted = `${name}.${method}`
    object[method] = function (...given) { called.add(noted); return value.apply(this, given) }
    if (!hidden.has(method) && !without.has(method)) called.add(`? ${noted}`)
  }
}
const first = await Sandbox.create()
watch('Sandbox', Sandbox.prototype)
watch('Sandbox', Sandbox)
watch('Sandbox', Object.getPrototypeOf(Sandbox))
for (const part of ['files', 'commands', 'pty', 'git']) watch(part, Object.getPrototypeOf(first[part]))
const running = await first.commands.run('true', { background: true })
watch('CommandHandle', Object.getPrototypeOf(running))
await running.wait()
await first.kill()

for (const [name, test] of Object.entries(tests)) {
  await test()
  console.log(`pass ${name}`)
}
const leftOut = [...called].filter(name => name.startsWith('? ') && !called.has(name.slice(2)))
assert.deepEqual(leftOut, [])
console.log('all passed')
process.exit(0)
