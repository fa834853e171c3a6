// SPDX-License-Identifier: Apache-2.0
// Requests and answers, over a Unix socket or TCP.
import * as http from "node:http";
import * as https from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Content, Item } from "./bytes.js";
import { CarrelError, ConnectionFailed, errorOf, OldDaemon, TimedOut, WrongServer } from "./errors.js";
import type { Where } from "./find.js";

/** Of the daemon's interface, which this client was written for. */
const API = 1;
const CONNECT_MS = 10_000;
const IDLE_SOCKETS = 32;
/** A connection that was never there: what was asked for has not begun. ConnectionRefused and FailedToOpenSocket are Bun's. */
const NOT_MADE = new Set(["ECONNREFUSED", "ENOENT", "ENOTFOUND", "EACCES", "EHOSTUNREACH", "ENETUNREACH", "EAI_AGAIN", "ConnectionRefused", "FailedToOpenSocket"]);

type Value = string | number | boolean | undefined | null;

export interface Request {
    params?: Record<string, Value> | undefined;
    /** Sent as JSON. */
    body?: unknown;
    /** Sent as it is. */
    content?: Content | undefined;
    headers?: Record<string, string> | undefined;
    /** The answer may take as long as it likes. */
    wait?: boolean | undefined;
    /** Its head comes soon, and then what there is, when it is there. */
    stream?: boolean | undefined;
    signal?: AbortSignal | undefined;
}

export interface Answer {
    status: number;
    headers: http.IncomingHttpHeaders;
    body: AsyncIterable<Buffer>;
    /** Closes the connection, when the rest is not wanted. */
    drop(): void;
}

/** Signals of which any ends it. */
export function anyOf(...signals: (AbortSignal | undefined)[]): AbortSignal | undefined {
    const those = signals.filter((signal) => signal !== undefined);
    return those.length > 1 ? AbortSignal.any(those) : those[0];
}

export class Transport {
    readonly where: Where;
    readonly #timeout: number;
    readonly #agent: http.Agent;
    readonly #module: typeof http | typeof https;
    readonly #base: URL;
    #met: Promise<void> | undefined;

    constructor(where: Where, timeout: number) {
        this.where = where;
        this.#timeout = timeout;
        this.#base = new URL(where.url);
        this.#module = this.#base.protocol === "https:" ? https : http;
        this.#agent = new this.#module.Agent({ keepAlive: true, maxFreeSockets: IDLE_SOCKETS });
    }

    close(): void {
        this.#agent.destroy();
    }

    unreachable(error: unknown): ConnectionFailed {
        const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
        const why = error instanceof Error ? error.message || code || error.name : String(error);
        const at = `the daemon at ${this.where.socket ?? this.where.url}`;
        if (error instanceof Late && error.answer) {
            return new TimedOut(`${at} has not answered (${why}); what was asked for may still be done`, { code: "timed_out", cause: error });
        }
        if (error instanceof Late) return new TimedOut(`${at} cannot be reached (${why}); is \`carrel serve\` running there?`, { code: "timed_out", cause: error });
        if (NOT_MADE.has(code ?? "") || (error as NodeJS.ErrnoException).syscall === "connect") {
            return new ConnectionFailed(`${at} cannot be reached (${why}); is \`carrel serve\` running there?`, { code: "connection_failed", cause: error });
        }
        return new ConnectionFailed(`the connection to ${at} broke before the answer was whole (${why}); what was asked for may be done or not`,
            { code: "connection_failed", cause: error });
    }

    /** One request, up to the head of its answer. An answer that is an error is thrown. */
    async open(method: string, path: string, how: Request = {}): Promise<Answer> {
        how.signal?.throwIfAborted();
        if (!this.#met) {
            this.#met = this.#meet();
            this.#met.catch(() => { this.#met = undefined; }); // the next call asks again
        }
        await stoppable(this.#met, how.signal);
        const answer = await this.#tried(method, path, how);
        if (answer.status < 400) return answer;
        throw await this.#failure(answer, how.signal);
    }

    async #tried(method: string, path: string, how: Request): Promise<Answer> {
        try {
            return await this.#attempt(method, path, how);
        } catch (error) {
            // What an idle connection was closed under has not been looked at; only what changes nothing is asked again.
            if (!(error instanceof StaleConnection)) throw error;
            return this.#attempt(method, path, how);
        }
    }

    /** Before anything else: whether it is a daemon, and one of a version that this client understands. */
    async #meet(): Promise<void> {
        const answer = await this.#attempt("GET", "/v1/version", {});
        const pieces: Buffer[] = [];
        for await (const piece of answer.body) pieces.push(piece);
        meets(this.where.socket ?? this.where.url, answer.status, parsed(Buffer.concat(pieces)));
    }

    /** One request with the whole of its answer. */
    async send(method: string, path: string, how: Request = {}): Promise<{ status: number; headers: http.IncomingHttpHeaders; data: Buffer }> {
        const answer = await this.open(method, path, how);
        const pieces: Buffer[] = [];
        for await (const piece of answer.body) pieces.push(piece);
        return { status: answer.status, headers: answer.headers, data: Buffer.concat(pieces) };
    }

    /** One request whose answer is a JSON object, or nothing. */
    async call(method: string, path: string, how: Request = {}): Promise<Item> {
        const { status, headers, data } = await this.send(method, path, how);
        if (status === 204 || data.length === 0) return {};
        const item = parsed(data);
        if (typeof item !== "object" || item === null) throw errorOf(status, undefined, String(headers["x-request-id"] ?? ""));
        return item as Item;
    }

    async #failure(answer: Answer, signal: AbortSignal | undefined): Promise<Error> {
        const pieces: Buffer[] = [];
        try {
            for await (const piece of answer.body) pieces.push(piece);
        } catch {
            if (signal?.aborted) return signal.reason as Error;
        }
        return errorOf(answer.status, parsed(Buffer.concat(pieces)), String(answer.headers["x-request-id"] ?? ""));
    }

    #attempt(method: string, path: string, how: Request): Promise<Answer> {
        const { headers, content } = this.#encoded(method, how);
        const query = queryOf(how.params);
        const options: http.RequestOptions = {
            method, headers, agent: this.#agent, path: `${this.#base.pathname.replace(/\/$/, "")}${path}${query}`,
            ...(this.where.socket ? { socketPath: this.where.socket } : { hostname: this.#base.hostname.replace(/^\[|\]$/g, ""), port: this.#base.port }),
        };
        return new Promise<Answer>((resolve, reject) => {
            const request = this.#module.request(options);
            const watch = new Watch(request, how.signal, how.wait ? 0 : this.#timeout);
            request.on("error", (error) => {
                watch.end();
                if (how.signal?.aborted) reject(how.signal.reason as Error);
                else if (watch.source) reject(watch.source);
                else if (request.reusedSocket && method === "GET" && !watch.late) reject(new StaleConnection());
                else reject(this.unreachable(watch.late ?? error));
            });
            request.on("response", (message) => {
                if (how.stream) watch.patient();
                resolve({
                    status: message.statusCode ?? 0, headers: message.headers, body: this.#body(message, watch, how),
                    drop: () => { watch.end(); message.destroy(); },
                });
            });
            feed(request, content, watch);
        });
    }

    #encoded(method: string, how: Request): { headers: Record<string, string>; content: Content | undefined } {
        const headers: Record<string, string> = { ...how.headers };
        if (this.where.key) headers.Authorization = `Bearer ${this.where.key}`;
        let content = how.content;
        if (how.body !== undefined) {
            content = JSON.stringify(how.body);
            headers["Content-Type"] = "application/json";
        }
        if (typeof content === "string") content = Buffer.from(content);
        if (content instanceof Uint8Array) headers["Content-Length"] = String(content.byteLength);
        else if (content === undefined && method !== "GET" && method !== "DELETE") headers["Content-Length"] = "0";
        return { headers, content };
    }

    async * #body(message: http.IncomingMessage, watch: Watch, how: Request): AsyncGenerator<Buffer> {
        let whole = false;
        try {
            for await (const piece of message) {
                watch.moved();
                yield piece as Buffer;
            }
            whole = message.complete;
        } catch (error) {
            if (how.signal?.aborted) throw how.signal.reason;
            throw this.unreachable(watch.late ?? error);
        } finally {
            watch.end();
            if (!whole) message.destroy();
        }
        if (how.signal?.aborted) throw how.signal.reason;
        if (!whole) throw this.unreachable(new Error("the connection broke off in the middle of an answer"));
    }
}

/** What a daemon says of itself; or the error that it is not one for us. */
function meets(at: string, status: number, body: unknown): void {
    const said = body as { api?: unknown; api_oldest?: unknown; error?: unknown } | undefined | null;
    if (status === 200 && typeof said?.api === "number" && typeof said.api_oldest === "number") {
        if (said.api_oldest <= API && API <= said.api) return;
        const [word, what] = said.api < API ? ["old", "daemon"] : ["new", "client"];
        throw new OldDaemon(`the daemon at ${at} is too ${word} for this client (it has version ${said.api_oldest} to ${said.api} of the interface, `
            + `this is of ${API}): upgrade the ${what}`, { code: "old_daemon" });
    }
    const told = typeof said?.error === "object" && said.error !== null;
    if (told && (status === 401 || status === 404)) {
        throw new OldDaemon(`the daemon at ${at} is older than this client, it has no /v1/version: upgrade the daemon`, { code: "old_daemon", status });
    }
    if (told) throw errorOf(status, body);
    throw new WrongServer(`the server at ${at} answered ${status}, not as Carrel does; is the address right?`, { code: "wrong_server", status });
}

/** A list in an answer. */
export function listIn(answer: Item, member: string): Item[] {
    const list = answer[member];
    if (!Array.isArray(list)) throw errorOf(200, undefined);
    return list as Item[];
}

/** A promise, unless the signal comes first. */
export function stoppable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    if (!signal) return promise;
    return new Promise((resolve, reject) => {
        const stop = (): void => { reject(signal.reason as Error); };
        signal.addEventListener("abort", stop, { once: true });
        promise.then(resolve, reject).finally(() => { signal.removeEventListener("abort", stop); });
    });
}

class Late extends Error {
    /** answer: of the answer, not of the connection. */
    constructor(why: string, readonly answer: boolean) {
        super(why);
    }
}

class StaleConnection extends CarrelError {
    constructor() {
        super("the connection was closed while it was idle", { code: "connection_failed" });
    }
}

/** Who may end a request before its answer is whole: the caller's signal, a connection that is not made, an answer that does not come. */
class Watch {
    late: Error | undefined;
    /** What went wrong where the content comes from: not the daemon's. */
    source: Error | undefined;
    readonly #request: http.ClientRequest;
    readonly #signal: AbortSignal | undefined;
    #most: number;
    readonly #abort: () => void;
    #timer: NodeJS.Timeout | undefined;

    constructor(request: http.ClientRequest, signal: AbortSignal | undefined, most: number) {
        this.#request = request;
        this.#signal = signal;
        this.#most = most;
        this.#abort = () => { request.destroy(new Error("aborted")); };
        signal?.addEventListener("abort", this.#abort, { once: true });
        this.moved();
        request.once("socket", (socket) => {
            if (!socket.connecting) return;
            const connect = setTimeout(() => { this.#stop(`no connection within ${CONNECT_MS / 1000} s`, false); }, CONNECT_MS);
            socket.once("connect", () => { clearTimeout(connect); });
            socket.once("close", () => { clearTimeout(connect); });
        });
    }

    #stop(why: string, answer: boolean): void {
        this.late = new Late(why, answer);
        this.#request.destroy(this.late);
    }

    moved(): void {
        clearTimeout(this.#timer);
        if (this.#most > 0) this.#timer = setTimeout(() => { this.#stop(`no answer within ${this.#most / 1000} s`, true); }, this.#most);
    }

    patient(): void {
        this.#most = 0;
        this.moved();
    }

    end(): void {
        clearTimeout(this.#timer);
        this.#signal?.removeEventListener("abort", this.#abort);
    }
}

function feed(request: http.ClientRequest, content: Content | undefined, watch: Watch): void {
    if (content === undefined || typeof content === "string" || content instanceof Uint8Array) {
        request.end(content);
        return;
    }
    // What goes wrong while sending ends the request, which tells it.
    pipeline(Readable.from(bytesOnly(content, watch)), request).catch((error: unknown) => { request.destroy(error as Error); });
}

async function* bytesOnly(content: AsyncIterable<string | Uint8Array>, watch: Watch): AsyncGenerator<Uint8Array> {
    try {
        for await (const piece of content) {
            yield typeof piece === "string" ? Buffer.from(piece) : piece;
            watch.moved();
        }
    } catch (error) {
        watch.source = error as Error;
        throw error;
    }
}

function queryOf(params: Record<string, Value> | undefined): string {
    const pairs = Object.entries(params ?? {}).filter(([, value]) => value !== undefined && value !== null);
    if (pairs.length === 0) return "";
    return "?" + pairs.map(([name, value]) => `${name}=${encodeURIComponent(typeof value === "boolean" ? Number(value) : String(value))}`).join("&");
}

function parsed(data: Buffer): unknown {
    try {
        return JSON.parse(data.toString()) as unknown;
    } catch {
        return undefined;
    }
}

/** The lines of a stream, in constant memory. */
export async function* lines(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    let begun: Buffer[] = [];
    for await (const piece of pieces) {
        let from = 0;
        for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, from)) {
            const line = piece.subarray(from, end);
            yield begun.length ? Buffer.concat([...begun, line]) : line;
            begun = [];
            from = end + 1;
        }
        if (from < piece.length) begun.push(piece.subarray(from));
    }
}

/** An item of a stream; or the error, when it is the daemon's last word: why the stream ends before its end. */
export function itemOf(line: Buffer): Item {
    const item = parsed(line) as Item | undefined;
    if (typeof item !== "object" || item === null) throw errorOf(200, undefined);
    if (item.type === "error" && typeof item.error === "object") throw errorOf(0, item);
    return item;
}
