// SPDX-License-Identifier: Apache-2.0
// An agent of OpenAI's Agents SDK whose sandbox is a Carrel workspace.
//
//     npm install @openai/agents @openai/agents-extensions ws
//     CARREL_URL=http://127.0.0.1:8420 CARREL_KEY=ck_… node openai_agents.mjs
//
// Without OPENAI_API_KEY a script plays the model, so that it runs offline.
import { run, setTracingDisabled } from '@openai/agents';
import { SandboxAgent, shell } from '@openai/agents/sandbox';
import { ScriptedModel, assistantMessage, functionCall } from '@openai/agents/testing';
import { CloudflareSandboxClient } from '@openai/agents-extensions/sandbox/cloudflare';

const scripted = () =>
  new ScriptedModel([
    [functionCall('exec_command', { cmd: 'mkdir -p report && seq 1 10 > report/numbers.txt' }, { callId: '1' })],
    [functionCall('exec_command', { cmd: "awk '{s += $1} END {print \"sum\", s}' report/numbers.txt" }, { callId: '2' })],
    [assistantMessage('The sum is 55.')],
  ]);

const model = process.env.OPENAI_API_KEY ? undefined : scripted();
setTracingDisabled(model !== undefined);
const agent = new SandboxAgent({ name: 'Clerk', instructions: 'Work in /workspace.', capabilities: [shell()], ...(model && { model }) });
const client = new CloudflareSandboxClient({ workerUrl: process.env.CARREL_URL, apiKey: process.env.CARREL_KEY });
const result = await run(agent, 'Write 1 to 10 into report/numbers.txt and add them up.', { sandbox: { client } });
for (const item of result.newItems) {
  if (item.type === 'tool_call_output_item') console.log(item.output);
}
console.log(result.finalOutput);
