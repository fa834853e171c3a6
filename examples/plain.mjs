// SPDX-License-Identifier: Apache-2.0
// Plain JavaScript: a desk of its own for a script, and nothing left of it afterwards. npm install carrel
import { local } from "carrel";

const own = await local(); // a private daemon; with one that runs already: new Carrel()
const ws = await own.client.workspace("thread-1");
await ws.files.write("/plot.py", "print(6 * 7)");
console.log((await ws.run("python3 plot.py")).stdout.trim()); // => 42

for await (const output of ws.stream("echo one; echo two >&2; exit 3")) process.stdout.write(`${output.stream} ${output.text}`);
// => stdout one
// => stderr two

const plan = await ws.plan(async (p) => { // nothing changes yet
    await p.run("mkdir old && mv plot.py old/");
});
console.log(await ws.files.exists("/plot.py")); // => true
await plan.apply();
console.log((await ws.files.glob("*.py"))[0]); // => /old/plot.py
await plan.undo();
console.log((await ws.files.glob("*.py"))[0]); // => /plot.py
await own.close();
