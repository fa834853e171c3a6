// SPDX-License-Identifier: Apache-2.0
// clientcalls.mjs PACKAGE PORT SOCKET KEY COUNT: calls through the TypeScript package beside the same by bare node:http, over TCP and over
// a Unix socket. A line each: NAME COUNT BARE_MS OURS_MS ADDS_MS, medians, the last of the processor time of this program.
import * as http from "node:http";

const [, , at, port, socket, key, times] = process.argv;
const count = Number(times);
const { Carrel } = await import(at);
const FILES = "/v1/workspaces/w0/files";

const median = (values) => {
    const ordered = values.toSorted((a, b) => a - b);
    return (ordered[(ordered.length - 1) >> 1] + ordered[ordered.length >> 1]) / 2;
};

const timed = async (call) => {
    const [begin, used] = [process.hrtime.bigint(), process.cpuUsage()];
    await call();
    const { user, system } = process.cpuUsage(used);
    return [Number(process.hrtime.bigint() - begin) / 1e6, (user + system) / 1e3];
};

const inTurns = async (name, base, ours) => {
    for (const call of [base, ours]) for (let n = 0; n < 200; n++) await call(); // until it is compiled
    const pairs = [];
    for (let number = 0; number < count; number++) { // who comes second finds everything warm: in turns
        const first = number % 2 ? await timed(base) : undefined;
        const own = await timed(ours);
        pairs.push([first ?? await timed(base), own]);
    }
    const wall = [0, 1].map((one) => median(pairs.map((pair) => pair[one][0])));
    console.log(name, pairs.length, ...wall, median(pairs.map(([bare, own]) => own[1] - bare[1])));
};

for (const [where, options, given] of [["", { host: "127.0.0.1", port }, { url: `http://127.0.0.1:${port}` }], ["-socket", { socketPath: socket }, { socket }]]) {
    const agent = new http.Agent({ keepAlive: true });
    const bare = (path) => new Promise((resolve, reject) => {
        const request = http.get({ ...options, agent, path, headers: { Authorization: `Bearer ${key}` } }, (answer) => {
            const pieces = [];
            answer.on("data", (piece) => { pieces.push(piece); });
            answer.on("end", () => { resolve(Buffer.concat(pieces)); });
        });
        request.on("error", reject);
    });
    const client = new Carrel({ ...given, key });
    const { files } = await client.workspace("w0");
    await files.write("/four", `${"y".repeat(63)}\n`.repeat(64));
    await inTurns(`stat-node${where}`, async () => JSON.parse(await bare(`${FILES}/four?stat=1`)), () => files.stat("/four"));
    await inTurns(`read-node${where}`, () => bare(`${FILES}/four`), () => files.readBytes("/four"));
    client.close();
    agent.destroy();
}
