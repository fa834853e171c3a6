// SPDX-License-Identifier: Apache-2.0
// deepagents: an agent whose files and commands are those of its thread's workspace. npm install carrel deepagents
import { createDeepAgent } from "deepagents";
import { local } from "carrel";
import { CarrelBackend } from "carrel/deepagents";
import { ScriptedModel } from "./offline_model.mjs";

const model = new ScriptedModel([
    [["write_file", { file_path: "/primes.py", content: "print([n for n in range(2, 30) if all(n % d for d in range(2, n))])" }]],
    [["execute", { command: "python3 /primes.py" }]],
    "There are ten of them.",
]);

const own = await local();
const agent = createDeepAgent({ model, backend: new CarrelBackend({ client: own.client }) });
const question = { messages: [{ role: "user", content: "Which primes are there below 30?" }] };
const { messages } = await agent.invoke(question, { configurable: { thread_id: "thread-1" } });
console.log(messages.at(-2).text.split("\n")[0]); // => [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
console.log(messages.at(-1).text); // => There are ten of them.
const ws = await own.client.workspace("thread-1");
console.log((await ws.files.glob("*.py"))[0]); // => /primes.py
await own.close();
