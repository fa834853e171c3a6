// SPDX-License-Identifier: Apache-2.0
// The examples of the README do what they say: "// => text" is what a program prints, … stands for any text, and alone for any lines.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Local } from "carrel";

const README = new URL("../README.md", import.meta.resolve("carrel"));
const MODEL = 'import { Scripted as S } from "./scripted.js";\nglobalThis.model = new S([["execute", { command: "mkdir -p old" }], "done"]);\n';

/** @param {string} file @param {string} socket @returns {Promise<[number | null, string]>} */
function run(file, socket) {
    const child = spawn(process.execPath, [file], { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, CARREL_SOCKET: socket, CARREL_URL: "", CARREL_KEY: "" } });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => { said += data; });
    return new Promise((resolve) => { child.once("close", (code) => { resolve([code, said]); }); });
}

/** @param {string} block */
function expected(block) {
    const lines = [...block.matchAll(/^\s*\/\/ =>(?: (.*))?$/gm)].map((found) => found[1] ?? "");
    const quoted = (/** @type {string} */ line) => line.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*");
    return new RegExp(`^${lines.map((line) => (line === "…" ? "(?:.*\\n)*" : `${quoted(line)}\\n`)).join("")}$`);
}

test("its examples", async () => {
    const local = await Local.start();
    try {
        const blocks = [...readFileSync(README, "utf8").matchAll(/^```js\n(.*?)^```$/gms)].map((found) => found[1] ?? "");
        assert.equal(blocks.length, 5);
        for (const [number, block] of blocks.entries()) {
            const file = fileURLToPath(new URL(`example-${number}.js`, import.meta.url));
            writeFileSync(file, (/\bmodel\b/.test(block) ? MODEL : "") + block);
            try {
                const [code, said] = await run(file, local.socket);
                assert.deepEqual([code, expected(block).test(said)], [0, true], `${block}\n--- printed:\n${said}`);
            } finally {
                rmSync(file);
            }
        }
    } finally {
        await local.close();
    }
});
