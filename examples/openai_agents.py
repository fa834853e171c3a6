# SPDX-License-Identifier: Apache-2.0
"""An agent of OpenAI's Agents SDK whose sandbox is a Carrel workspace.

    pip install 'openai-agents[cloudflare]'
    CARREL_URL=http://127.0.0.1:8420 CARREL_KEY=ck_… python openai_agents.py

Without OPENAI_API_KEY a script plays the model, so that it runs offline."""
import asyncio
import os

from agents import Runner, set_tracing_disabled
from agents.extensions.sandbox.cloudflare import CloudflareSandboxClient, CloudflareSandboxClientOptions
from agents.run import RunConfig
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.testing import ScriptedModel, assistant_message, function_call


def scripted():
    return ScriptedModel([
        [function_call("exec_command", {"cmd": "mkdir -p report && seq 1 10 > report/numbers.txt"}, call_id="1")],
        [function_call("exec_command", {"cmd": "awk '{s += $1} END {print \"sum\", s}' report/numbers.txt"}, call_id="2")],
        [assistant_message("The sum is 55.")],
    ])


async def main():
    model = None if os.environ.get("OPENAI_API_KEY") else scripted()
    set_tracing_disabled(model is not None)
    agent = SandboxAgent(name="Clerk", instructions="Work in /workspace.", capabilities=[Shell()], model=model)
    options = CloudflareSandboxClientOptions(worker_url=os.environ["CARREL_URL"], api_key=os.environ["CARREL_KEY"])
    sandbox = SandboxRunConfig(client=CloudflareSandboxClient(), options=options)
    result = await Runner.run(agent, "Write 1 to 10 into report/numbers.txt and add them up.", run_config=RunConfig(sandbox=sandbox))
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(item.output)
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
