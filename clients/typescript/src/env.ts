// SPDX-License-Identifier: Apache-2.0
import { given, type Item } from "./bytes.js";
import type { Carrel } from "./client.js";
import type { Stoppable } from "./files.js";

/** The Python and Node environments of a workspace. */
export class Env {
    readonly #client: Carrel;
    readonly #path: string;

    constructor(client: Carrel, workspace: string) {
        this.#client = client;
        this.#path = `${workspace}/env`;
    }

    /** What there is, and which interpreters there are. */
    async show(how: Stoppable = {}): Promise<Item> {
        return this.#client.call("GET", this.#path, { wait: true, signal: how.signal });
    }

    /** One of its own, at /.venv; made when it is missing. clear: made anew. */
    async python(how: { version?: string; clear?: boolean } & Stoppable = {}): Promise<Item> {
        const body = given({ version: how.version, clear: how.clear || undefined });
        return this.#client.call("POST", `${this.#path}/python`, { body, wait: true, signal: how.signal });
    }

    /** package.json and /node_modules, for bun, node and npm; made when they are missing. */
    async node(how: Stoppable = {}): Promise<Item> {
        return this.#client.call("POST", `${this.#path}/node`, { body: {}, wait: true, signal: how.signal });
    }
}
