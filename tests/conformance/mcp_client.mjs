// SPDX-License-Identifier: Apache-2.0
// The official TypeScript clients, of which only the second speaks the newer protocol: lists the tools and calls those of $SCRIPT, one
// after the other; said is which.
const { CARREL, CARREL_KEY, CARREL_URL, MODE, SCRIPT, WHERE } = process.env;
const modern = MODE !== "legacy";
const { Client, StreamableHTTPClientTransport } = modern ? await import("@modelcontextprotocol/client")
  : { ...await import("@modelcontextprotocol/sdk/client/index.js"), ...await import("@modelcontextprotocol/sdk/client/streamableHttp.js") };
const { StdioClientTransport } = await import(modern ? "@modelcontextprotocol/client/stdio" : "@modelcontextprotocol/sdk/client/stdio.js");
const transport = WHERE === "http"
  ? new StreamableHTTPClientTransport(new URL(`${CARREL_URL}/mcp`), { requestInit: { headers: { Authorization: `Bearer ${CARREL_KEY}` } } })
  : new StdioClientTransport({ command: CARREL, args: ["mcp"], env: process.env });
const client = new Client({ name: "test", version: "1" }, modern ? { versionNegotiation: { mode: { pin: MODE } } } : {});
await client.connect(transport);
if (modern && client.getNegotiatedProtocolVersion() !== MODE) throw new Error(`it speaks ${client.getNegotiatedProtocolVersion()}`);
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
