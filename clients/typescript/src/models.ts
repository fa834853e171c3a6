// SPDX-License-Identifier: Apache-2.0
// What the daemon answers, as objects.
import { bytesField, nameField, text, type Item } from "./bytes.js";
import { CommandFailed } from "./errors.js";

/** Something that the sandbox did not allow. */
export interface Denial {
    what: string;
    rule: string;
    fix: string;
    source: "kernel" | "inferred";
    count: number;
}

/** The plan that a command has made, in short. */
export interface PlanBrief {
    id: string;
    state: string;
    hash?: string;
    operations?: number;
}

/** How a command ended, with its output. */
export class Result {
    readonly exitCode: number;
    /** exit, signal, timeout, output, oom, pids, disk */
    readonly reason: string;
    readonly execId: string;
    readonly signal: number | undefined;
    readonly timedOut: boolean;
    readonly oomKilled: boolean;
    /** Output is missing: the bound on it was reached. */
    readonly truncated: boolean;
    readonly durationMs: number;
    readonly usage: Item;
    readonly denials: Denial[];
    readonly plan: PlanBrief | undefined;
    /** The daemon's own object. */
    readonly raw: Item;
    readonly stdoutBytes: Uint8Array;
    readonly stderrBytes: Uint8Array;

    constructor(end: Item, out: Uint8Array, err: Uint8Array) {
        this.exitCode = Number(end.exit_code);
        this.reason = String(end.reason);
        this.execId = String(end.exec_id ?? "");
        this.signal = (end.signal ?? undefined) as number | undefined;
        this.timedOut = end.timed_out === true;
        this.oomKilled = end.oom_killed === true;
        this.truncated = end.truncated === true;
        this.durationMs = Number(end.duration_ms ?? 0);
        this.usage = (end.usage ?? {}) as Item;
        this.denials = (end.denials ?? []) as Denial[];
        this.plan = (end.plan ?? undefined) as PlanBrief | undefined;
        this.raw = end;
        this.stdoutBytes = out;
        this.stderrBytes = err;
    }

    get ok(): boolean {
        return this.exitCode === 0;
    }

    get stdout(): string {
        return text(this.stdoutBytes);
    }

    get stderr(): string {
        return text(this.stderrBytes);
    }

    /** Itself; throws CommandFailed where the status is not 0. */
    check(): this {
        if (!this.ok) throw new CommandFailed(this);
        return this;
    }

    toString(): string {
        const state = this.ok ? "" : `\n[exit ${this.exitCode}: ${this.reason}]`;
        return (this.stdout + this.stderr).replace(/\n+$/, "") + state + refusals(this.denials);
    }
}

export function refusals(denials: Denial[]): string {
    return denials.map((d) => `\n[refused: ${d.what} (${d.rule}); ${d.fix}]`).join("");
}

/** A piece of a command's output. */
export class Output {
    constructor(
        readonly stream: "stdout" | "stderr" | "pty",
        readonly data: Uint8Array,
        /** Of its first byte, in the bytes of all streams together. */
        readonly offset: number,
    ) {}

    get text(): string {
        return text(this.data);
    }
}

/** Something in a directory. A name that is no UTF-8 has lone surrogates in the place of its bytes. */
export interface Entry {
    path: string;
    name: string;
    type: "file" | "directory" | "symlink" | "fifo" | "socket" | "device" | "unknown";
    isDir: boolean;
    size?: number;
    mode?: string;
    mtime?: string;
    etag?: string;
    target?: string;
}

export function entryOf(item: Item): Entry {
    const path = nameField(item);
    const type = (item.type ?? "unknown") as Entry["type"];
    const target = bytesField(item, "target") === undefined ? undefined : nameField(item, "target");
    const facts = { size: item.size, mode: item.mode, mtime: item.mtime ?? undefined, etag: item.etag, target };
    const known = Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined));
    return { path, name: path.slice(path.lastIndexOf("/") + 1), type, isDir: type === "directory", ...known };
}

/** A line that grep found. */
export interface Match {
    path: string;
    line: number;
    text: string;
}

/** What was found; truncated: there is more. */
export type Found<T> = T[] & { truncated: boolean };

export function found<T>(items: T[], truncated: unknown): Found<T> {
    return Object.assign(items, { truncated: truncated === true });
}

/** Some lines of a text file; nextOffset is where the next page begins. */
export interface Page {
    path: string;
    content: string;
    totalLines?: number;
    startLine?: number;
    endLine?: number;
    nextOffset?: number;
    size: number;
    etag: string;
    /** No text: all of it is in data. */
    binary: boolean;
    data: Uint8Array;
}

export function pageOf(item: Item): Page {
    const data = bytesField(item, "content") ?? Buffer.alloc(0);
    const numbers = { totalLines: item.total_lines, startLine: item.start_line, endLine: item.end_line, nextOffset: item.next_offset };
    const known = Object.fromEntries(Object.entries(numbers).filter(([, value]) => typeof value === "number"));
    return { path: nameField(item), content: text(data), size: Number(item.size), etag: String(item.etag), binary: item.binary === true, data, ...known };
}

/** Something that happened to a file that is watched. */
export interface Change {
    path: string;
    event: "ready" | "create" | "modify" | "delete" | "move" | "attrib" | "overflow";
    isDir: boolean;
    /** Of a move: its new path. */
    to?: string;
}

export function changeOf(item: Item): Change {
    const to = bytesField(item, "to") === undefined ? {} : { to: nameField(item, "to") };
    return { path: nameField(item), event: item.event as Change["event"], isDir: item.is_dir === true, ...to };
}

export interface Key {
    id: string;
    owner: string;
    scopes: string[];
    workspaces?: string[];
    name?: string;
    [more: string]: unknown;
}

export interface Port {
    workspace: string;
    port: number;
    access: "key" | "token";
    path: string | null;
    url: string | null;
    host_url: string | null;
    [more: string]: unknown;
}

export interface Snapshot {
    id: string;
    name: string | null;
    created: string;
    files: number;
    bytes: number;
    copied: number;
    own_bytes: number;
    frozen_ms?: number;
    [more: string]: unknown;
}

/** Of a conflict: what the workspace has, or what the fork has. */
export type Side = "ours" | "theirs";

export interface VersionChange {
    change: "added" | "removed" | "changed";
    type: "file" | "directory" | "symlink";
    mode: string;
    path?: string;
    path_b64?: string;
    size?: number;
    was_size?: number;
    [more: string]: unknown;
}

export interface Template {
    id: string;
    name: string;
    state: string;
    [more: string]: unknown;
}

export interface AuditRecord {
    seq: number;
    time: string;
    actor: string;
    workspace: string;
    request: string;
    operation: string;
    result: string;
    details: Item;
    prev: string;
}

export interface CarrelEvent {
    type: string;
    workspace: string;
    owner: string;
    time: string;
    [more: string]: unknown;
}

/** The first and the last of an output, whatever its size; between them something may be left out. */
export class Ends {
    readonly #half: number;
    #head: Buffer[] = [];
    #tail: Buffer[] = [];
    #headSize = 0;
    #tailSize = 0;
    #size = 0;

    constructor(most: number) {
        this.#half = most >> 1;
    }

    add(data: Uint8Array): void {
        this.#size += data.length;
        const bytes = Buffer.from(data); // a copy: the piece may be a part of something larger
        const first = bytes.subarray(0, this.#half - this.#headSize);
        const rest = bytes.subarray(first.length);
        if (first.length) this.#head.push(first);
        this.#headSize += first.length;
        if (rest.length) this.#tail.push(rest);
        this.#tailSize += rest.length;
        if (this.#tailSize > 2 * this.#half) {
            this.#tail = [Buffer.from(this.#last())];
            this.#tailSize = this.#half;
        }
    }

    #last(): Buffer {
        const tail = Buffer.concat(this.#tail);
        return tail.subarray(Math.max(0, tail.length - this.#half));
    }

    get missing(): number {
        return this.#size - this.#headSize - Math.min(this.#tailSize, this.#half);
    }

    bytes(): Buffer {
        const word = this.missing ? `\n[... ${this.missing} bytes are left out here ...]\n` : "";
        return Buffer.concat([...this.#head, Buffer.from(word), this.#last()]);
    }
}
