// SPDX-License-Identifier: Apache-2.0
import { setTimeout as sleep } from "node:timers/promises";
import { absolute, bytesField, given, type Content, type Item } from "./bytes.js";
import type { Carrel } from "./client.js";
import { Conflict, ConnectionFailed, InvalidRequest, LimitReached, NotFound, Unavailable } from "./errors.js";
import { anyOf, stoppable, type Answer } from "./http.js";
import { Output, Result } from "./models.js";

const GIVE_UP_AFTER = 60_000; // without the daemon, before a reader says that it is gone
const ABORT_MS = 5_000; // for the end of a command that is not wanted any more
const INPUT_MOST = 1 << 20; // of one request; the daemon takes 4 MiB that a command has not read

export interface ExecOptions {
    cwd?: string | undefined;
    env?: Record<string, string> | undefined;
    /** All of its input; a stream is sent as it is read. */
    stdin?: Content | undefined;
    /** Input is given later, with write and closeStdin. */
    stdinOpen?: boolean | undefined;
    /** Seconds; the policy's, where that is earlier. */
    timeout?: number | undefined;
    /** A terminal of its own. */
    pty?: { cols: number; rows: number } | undefined;
    limits?: Item | undefined;
    user?: "user" | "root" | undefined;
    /** plan: the workspace stays as it is, and what the command did becomes a plan. */
    mode?: "direct" | "plan" | undefined;
    plan?: string | undefined;
    keepOpen?: boolean | undefined;
    /** Ends the command, with everything it started. */
    signal?: AbortSignal | undefined;
}

export interface StreamOptions extends ExecOptions {
    /** false: the result is without the output, which is then in memory only while you look at it. */
    keep?: boolean | undefined;
}

export interface RunOptions extends StreamOptions {
    /** Another status than 0 is an error, CommandFailed. */
    check?: boolean | undefined;
    /** Called with every piece of output as it comes. */
    onOutput?: ((output: Output) => unknown) | undefined;
}

/** A text is a line for bash, a list a program and its arguments. */
export function execBody(command: string | readonly string[], how: ExecOptions): Item {
    if (how.timeout !== undefined && !(how.timeout > 0)) throw new InvalidRequest("timeout: give seconds above 0, or leave it out for the policy's");
    const { stdin } = how;
    const streamed = stdin !== undefined && typeof stdin !== "string" && !(stdin instanceof Uint8Array);
    return given({
        ...(typeof command === "string" ? { command } : { argv: [...command] }),
        stdin: typeof stdin === "string" ? stdin : undefined,
        stdin_b64: stdin instanceof Uint8Array ? Buffer.from(stdin).toString("base64") : undefined,
        stdin_open: how.stdinOpen || streamed || undefined,
        timeout_ms: how.timeout === undefined ? undefined : Math.max(1, Math.floor(how.timeout * 1000)),
        cwd: how.cwd === undefined ? undefined : absolute(how.cwd),
        pty: how.pty, env: how.env, limits: how.limits, user: how.user, mode: how.mode, plan: how.plan, keep_open: how.keepOpen,
    });
}

/** What a Command is made with: the id of one that runs, or the body of one that is still to be started. */
export interface CommandOrigin extends StreamOptions {
    id?: string;
    body?: Item;
}

/** A command that runs, or has run, in a workspace. It does not need us: iterating over it shows its output from the beginning, and
 * goes on where it was when a connection breaks or the daemon's front is replaced. To stop iterating does not end it; its signal does. */
export class Command implements AsyncIterable<Output> {
    id: string;
    result: Result | undefined;
    readonly #client: Carrel;
    readonly #workspace: string;
    readonly #signal: AbortSignal | undefined;
    readonly #keep: boolean;
    readonly #input: AsyncIterable<string | Uint8Array> | undefined;
    #body: Item | undefined;
    readonly #broken = new AbortController(); // where its input comes from
    #fed = false;
    #offset = 0;
    #out: Uint8Array[] = [];
    #err: Uint8Array[] = [];

    constructor(client: Carrel, workspace: string, origin: CommandOrigin) {
        this.#client = client;
        this.#workspace = workspace;
        this.id = origin.id ?? "";
        this.#body = origin.body;
        this.#keep = origin.keep ?? true;
        this.#input = typeof origin.stdin === "string" || origin.stdin instanceof Uint8Array ? undefined : origin.stdin;
        this.#signal = this.#input ? anyOf(origin.signal, this.#broken.signal) : origin.signal;
        if (this.id) this.#feed();
    }

    get #path(): string {
        return `${this.#workspace}/exec/${encodeURIComponent(this.id)}`;
    }

    async * [Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined> {
        let aloneSince: number | undefined;
        while (!this.result) {
            try {
                for await (const event of this.#events()) {
                    aloneSince = undefined;
                    const output = this.#take(event);
                    if (output) yield output;
                }
                if (!this.result) throw new ConnectionFailed("the stream ended before the command", { code: "connection_failed" });
            } catch (error) {
                if (this.#signal?.aborted) await this.#end();
                if (!this.id || !(error instanceof ConnectionFailed || error instanceof Unavailable)) throw error;
                aloneSince ??= Date.now();
                if (Date.now() - aloneSince > GIVE_UP_AFTER) throw error;
                await sleep(200);
            }
        }
    }

    /** Its signal says that it is to end. Thrown is why; that the command could not be told is the lesser news. */
    async #end(): Promise<never> {
        if (this.id) await this.#client.call("POST", `${this.#path}/kill`, { signal: AbortSignal.timeout(ABORT_MS) }).catch(() => undefined);
        throw this.#signal?.reason;
    }

    async * #events(): AsyncGenerator<Item> {
        this.#signal?.throwIfAborted();
        if (this.id) {
            yield* this.#client.lines("GET", `${this.#path}/output`, { params: { from: this.#offset, follow: 1, format: "ndjson" }, signal: this.#signal });
            return;
        }
        const answer = await this.#begin();
        const drop = (): void => { answer.drop(); };
        this.#signal?.addEventListener("abort", drop, { once: true });
        if (this.#signal?.aborted) drop();
        try {
            yield* this.#client.items(answer);
        } finally {
            this.#signal?.removeEventListener("abort", drop);
        }
    }

    /** Starts it. An abort does not break this off: the answer names the command, which is then ended. */
    async #begin(): Promise<Answer> {
        const body = this.#body;
        this.#body = undefined;
        if (!body) {
            throw new ConnectionFailed("the connection broke before the daemon named the command: look with ws.execs() whether it runs",
                { code: "connection_failed" });
        }
        const patience = new AbortController();
        const how = { body: { ...body, stream: "ndjson" }, stream: true, signal: patience.signal };
        const opening = this.#client.transport.open("POST", `${this.#workspace}/exec`, how);
        let answer: Answer;
        try {
            answer = await stoppable(opening, this.#signal);
        } catch (error) {
            if (!this.#signal?.aborted) throw error;
            const late = setTimeout(() => { patience.abort(); }, ABORT_MS);
            void opening.then(async (begun) => {
                begun.drop();
                await this.#client.call("POST", `${this.#workspace}/exec/${String(begun.headers["x-exec-id"])}/kill`);
            }).catch(() => undefined).finally(() => { clearTimeout(late); });
            throw error;
        }
        const named = answer.headers["x-exec-id"];
        if (typeof named === "string") this.id = named;
        this.#feed();
        return answer;
    }

    #take(event: Item): Output | undefined {
        if (event.type === "start") {
            this.id = String(event.exec_id);
        } else if (event.type === "end") {
            this.result = new Result(event, Buffer.concat(this.#out), Buffer.concat(this.#err));
            this.#out = this.#err = [];
        } else if (event.type === "stdout" || event.type === "stderr" || event.type === "pty") {
            const at = Number(event.offset);
            const data = (bytesField(event, "data") ?? Buffer.alloc(0)).subarray(Math.max(0, this.#offset - at));
            if (data.length === 0) return undefined;
            const offset = Math.max(at, this.#offset);
            this.#offset = offset + data.length;
            if (this.#keep) (event.type === "stderr" ? this.#err : this.#out).push(data);
            return new Output(event.type, data, offset);
        }
        return undefined;
    }

    /** Its end, with all of its output. */
    async wait(): Promise<Result> {
        for await (const output of this) void output;
        if (!this.result) throw new ConnectionFailed("the command did not end", { code: "connection_failed" });
        return this.result;
    }

    /** Sends the input that was given as a stream, as fast as the command reads it. One that ends without reading all of it is no error;
     * a stream that breaks ends the command, which would wait for the rest. */
    #feed(): void {
        const input = this.#input;
        if (!input || this.#fed) return;
        this.#fed = true;
        const feeding = async (): Promise<void> => {
            for await (const piece of input) {
                if (this.result) return;
                await this.#offer(typeof piece === "string" ? Buffer.from(piece) : piece);
            }
            if (!this.result) await this.closeStdin();
        };
        feeding().catch(async (error: unknown) => {
            if (this.result || this.#signal?.aborted || error instanceof Conflict || error instanceof NotFound) return; // it takes no more
            this.#broken.abort(error);
            await this.kill();
        }).catch(() => undefined); // the daemon is gone, which whoever reads the output hears
    }

    async #offer(data: Uint8Array): Promise<void> {
        for (let at = 0; at < data.length;) {
            try {
                await this.#write(data.subarray(at, at + INPUT_MOST), false);
                at += INPUT_MOST;
            } catch (error) {
                if (!(error instanceof LimitReached && error.status === 429)) throw error;
                await sleep(20); // it does not read; its deadline ends that, if nothing else
            }
        }
    }

    async #write(data: Uint8Array, eof: boolean, signal?: AbortSignal): Promise<void> {
        await this.#client.call("POST", `${this.#path}/stdin`, { content: data, params: eof ? { eof: 1 } : {}, signal: signal ?? this.#signal });
    }

    /** Input, for a command that was started with stdinOpen or a pty. */
    async write(data: string | Uint8Array, how: { eof?: boolean; signal?: AbortSignal } = {}): Promise<void> {
        await this.#write(typeof data === "string" ? Buffer.from(data) : data, how.eof ?? false, how.signal);
    }

    async closeStdin(): Promise<void> {
        await this.#write(Buffer.alloc(0), true);
    }

    async signal(signal: string | number): Promise<void> {
        await this.#client.call("POST", `${this.#path}/signal`, { body: { signal } });
    }

    async resize(cols: number, rows: number): Promise<void> {
        await this.#client.call("POST", `${this.#path}/resize`, { body: { cols, rows } });
    }

    /** Ends it and everything that it started. */
    async kill(): Promise<void> {
        await this.#client.call("POST", `${this.#path}/kill`);
    }

    async info(): Promise<Item> {
        return this.#client.call("GET", this.#path);
    }
}
