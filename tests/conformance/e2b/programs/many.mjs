// SPDX-License-Identifier: Apache-2.0
// One job cut in many: each sandbox counts the primes of its part.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const parts = Number(process.env.MANY || 8), width = 400
const program = 'import sys; a, b = map(int, sys.argv[1:]); print(sum(all(n % d for d in range(2, int(n ** .5) + 1)) for n in range(max(a, 2), b)))'
const count = async part => {
  const sandbox = await Sandbox.create({ metadata: { job: 'primes', part: String(part) }, timeoutMs: 300_000 })
  try {
    await sandbox.files.write('count.py', program)
    const result = await sandbox.commands.run(`python3 count.py ${part * width} ${(part + 1) * width}`, { timeoutMs: 240_000 })
    return Number(result.stdout)
  } finally {
    await sandbox.kill()
  }
}
const counts = await Promise.all([...Array(parts).keys()].map(count))
let primes = 0
for (let n = 2; n < parts * width; n++) { let d = 2; while (d * d <= n && n % d) d++; primes += d * d > n }
assert.equal(counts.reduce((a, b) => a + b, 0), primes)
assert.deepEqual(await Sandbox.list({ query: { metadata: { job: 'primes' } } }).nextItems(), [])
console.log('done')
