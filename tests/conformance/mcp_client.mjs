// SPDX-License-Identifier: Apache-2.0
// The official TypeScript client: lists the tools and calls those of $SCRIPT, one after the other; said is which.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { CARREL, CARREL_KEY, CARREL_URL, SCRIPT, WHERE } = process.env;
const transport = WHERE === "http"
  ? new StreamableHTTPClientTransport(new URL(`${CARREL_URL}/mcp`), { requestInit: { headers: { Authorization: `Bearer ${CARREL_KEY}` } } })
  : new StdioClientTransport({ command: CARREL, args: ["mcp"], env: process.env });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const known = {};
const fill = (value) => typeof value === "string" && value.startsWith("$")
  ? value.slice(1).split(".").reduce((from, name) => from[name], known) : value;
for (const [name, given] of JSON.parse(SCRIPT)) {
  const takes = tools.find((tool) => tool.name === name).inputSchema.properties;
  const args = Object.fromEntries(Object.entries(given).map(([key, value]) => [key, fill(value)]));
  const result = await client.callTool({ name, arguments: takes.workspace ? { workspace: "desk", ...args } : args });
  if (result.isError) throw new Error(`${name}: ${JSON.stringify(result)}`);
  known[name] = result.structuredContent;
  console.log(`called ${name}`);
}
const { contents } = await client.readResource({ uri: "carrel://desk/.bashrc" });
if (!contents[0].text) throw new Error("no resource");
await client.close();
