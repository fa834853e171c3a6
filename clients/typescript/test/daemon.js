// SPDX-License-Identifier: Apache-2.0
// What the tests share: a daemon that listens on its socket and on TCP, and clients of both.
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { Carrel, Local } from "carrel";

export const BUN = "bun" in process.versions;

/** @returns {Promise<number>} */
export function freePort() {
    return new Promise((resolve, reject) => {
        const server = createServer();
        server.once("error", reject);
        server.listen(0, "127.0.0.1", () => {
            const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
            server.close(() => { resolve(port); });
        });
    });
}

export async function daemon() {
    const port = await freePort();
    const local = await Local.start({ settings: { listen: `127.0.0.1:${port}` } });
    const url = `http://127.0.0.1:${port}`;
    const { key } = await local.client.createKey({ scopes: ["user"], owner: "alice" });
    return { local, port, url, key, socket: local.client, tcp: new Carrel({ url, key }) };
}

/** The process of the daemon that speaks HTTP. */
/** @param {Local} local */
export function front(local) {
    const pid = local.process.pid;
    for (const child of readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ")) {
        if (readFileSync(`/proc/${child}/comm`, "utf8").trim() === "carrel-front") return Number(child);
    }
    throw new Error("there is no front");
}

/** @param {AsyncIterable<any>} items */
export async function all(items) {
    const list = [];
    for await (const item of items) list.push(item);
    return list;
}
