// SPDX-License-Identifier: Apache-2.0
import { spawn, type ChildProcess } from "node:child_process";
import { accessSync, closeSync, constants, openSync } from "node:fs";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Carrel } from "./client.js";
import { CarrelError, NotFound, Unavailable } from "./errors.js";
import type { Stoppable } from "./files.js";

export interface LocalOptions extends Stoppable {
    /** A directory whose workspaces stay; left out, all goes at the end. */
    state?: string;
    /** The program carrel; left out, what CARREL names or PATH has. */
    program?: string;
    settings?: Record<string, string>;
}

const READY_MS = 60_000;
const STOP_MS = 30_000;

function programOf(given: string | undefined): string {
    const named = given ?? process.env.CARREL;
    if (named) return named;
    for (const directory of (process.env.PATH ?? "").split(delimiter)) {
        const path = join(directory || ".", "carrel");
        try {
            accessSync(path, constants.X_OK);
            return path;
        } catch {
            // the next one
        }
    }
    throw new NotFound("the program 'carrel' is not on PATH; install Carrel, or name it with CARREL or program", { code: "not_found" });
}

/** A private daemon for a script or a test: no set-up, no root, nothing left running. */
export class Local implements AsyncDisposable {
    readonly state: string;
    readonly socket: string;
    readonly client: Carrel;
    readonly process: ChildProcess;
    readonly #own: string;
    readonly #ended: Promise<void>;
    readonly #kill = (): void => { this.process.kill(); };

    private constructor(program: string, own: string, options: LocalOptions) {
        this.#own = own;
        this.state = options.state === undefined ? join(own, "state") : resolve(options.state);
        // On its socket only, unless the settings say otherwise: another daemon may listen at the default address.
        const sets = Object.entries({ listen: "", ...options.settings }).flatMap(([name, value]) => ["--set", `${name}=${value}`]);
        const log = openSync(join(own, "log"), "w", 0o600);
        this.process = spawn(program, ["serve", "--state", this.state, ...sets], { stdio: ["ignore", log, log] });
        closeSync(log);
        this.#ended = new Promise((done) => {
            this.process.once("exit", () => { done(); });
            this.process.once("error", () => { done(); });
        });
        process.once("exit", this.#kill);
        this.socket = join(this.state, "carrel.sock");
        this.client = new Carrel({ socket: this.socket });
    }

    static async start(options: LocalOptions = {}): Promise<Local> {
        const program = programOf(options.program);
        // Below /tmp, not TMPDIR: the path of a socket may have 107 bytes only.
        const own = await mkdtemp("/tmp/carrel-");
        await chmod(own, 0o711); // as root the daemon's front is another user, and has to reach its files
        let local: Local | undefined;
        try {
            local = new Local(program, own, options);
            await local.#ready(options.signal);
            return local;
        } catch (error) {
            await local?.close();
            await rm(own, { recursive: true, force: true });
            throw error;
        }
    }

    async #ready(signal: AbortSignal | undefined): Promise<void> {
        let failed: Error | undefined;
        this.process.once("error", (error) => { failed = error; });
        for (const until = Date.now() + READY_MS; Date.now() < until;) {
            await sleep(50, undefined, { signal });
            if (failed) throw new Unavailable(`'${this.process.spawnfile}' cannot be started: ${failed.message}`, { code: "unavailable", cause: failed });
            if (this.process.exitCode !== null || this.process.signalCode !== null) {
                const said = (await readFile(join(this.#own, "log"), "utf8")).trim();
                throw new Unavailable(`carrel serve ended with ${this.process.exitCode ?? this.process.signalCode}: ${said}`, { code: "unavailable" });
            }
            try {
                await this.client.call("GET", "/readyz", { signal });
                return;
            } catch (error) {
                if (!(error instanceof CarrelError)) throw error;
            }
        }
        throw new Unavailable(`carrel serve did not become ready within ${READY_MS / 1000} s`, { code: "unavailable" });
    }

    async close(): Promise<void> {
        process.removeListener("exit", this.#kill);
        this.client.close();
        this.process.kill();
        const late = setTimeout(() => { this.process.kill("SIGKILL"); }, STOP_MS);
        await this.#ended;
        clearTimeout(late);
        await rm(this.#own, { recursive: true, force: true });
    }

    async [Symbol.asyncDispose](): Promise<void> {
        await this.close();
    }
}

/** `const local = await carrel.local()`: a daemon of its own at local.client, until local.close(). */
export function local(options: LocalOptions = {}): Promise<Local> {
    return Local.start(options);
}
