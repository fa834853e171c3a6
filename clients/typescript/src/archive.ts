// SPDX-License-Identifier: Apache-2.0
// Trees of this host as tar archives, in and out, in constant memory. Names are bytes all the way.
import { constants } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, readlink, rm, symlink, link, type FileHandle } from "node:fs/promises";
import { resolve } from "node:path";
import { bytesOfName, nameOfBytes } from "./bytes.js";
import { CarrelError } from "./errors.js";

const BLOCK = 512;
const NAME_MOST = 100; // bytes that a header has room for
const RECORD_MOST = 1 << 20; // of a long name, or of the facts ahead of an entry
const CHUNK = 1 << 18;
const SLASH = Buffer.from("/");

function below(directory: Buffer, name: Buffer): Buffer {
    return Buffer.concat([directory, SLASH, name]);
}

function padding(size: number): Buffer {
    return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

// --- out of a directory ---

interface Head {
    name: Buffer;
    type: "0" | "2" | "5" | "L" | "K";
    mode?: number;
    size?: number;
    mtime?: number;
    target?: Buffer;
}

function octal(block: Buffer, at: number, length: number, value: number): void {
    const digits = Math.max(0, Math.floor(value)).toString(8);
    if (digits.length < length) {
        block.write(digits.padStart(length - 1, "0"), at, "latin1");
        return;
    }
    block.writeUInt8(0x80, at); // too large for digits: a number in binary
    block.writeBigUInt64BE(BigInt(Math.floor(value)), at + length - 8);
}

function header(head: Head): Buffer {
    const block = Buffer.alloc(BLOCK);
    head.name.copy(block, 0, 0, NAME_MOST);
    octal(block, 100, 8, head.mode ?? 0o644);
    octal(block, 108, 8, 0);
    octal(block, 116, 8, 0);
    octal(block, 124, 12, head.size ?? 0);
    octal(block, 136, 12, head.mtime ?? 0);
    block.write("        " + head.type, 148, "latin1");
    head.target?.copy(block, 157, 0, NAME_MOST);
    block.write("ustar  \0", 257, "latin1");
    const sum = block.reduce((all, byte) => all + byte, 0);
    block.write(sum.toString(8).padStart(6, "0") + "\0 ", 148, "latin1");
    return block;
}

/** The head of an entry, and what it has no room for ahead of it. */
function* heads(head: Head): Generator<Buffer> {
    for (const [type, long] of [["L", head.name], ["K", head.target]] as const) {
        if (!long || long.length <= NAME_MOST) continue;
        const whole = Buffer.concat([long, Buffer.alloc(1)]);
        yield header({ name: Buffer.from("././@LongLink"), type, size: whole.length });
        yield Buffer.concat([whole, padding(whole.length)]);
    }
    yield header(head);
}

async function* content(path: Buffer, size: number): AsyncGenerator<Buffer> {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
        for (let left = size; left > 0;) {
            const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(Math.min(left, CHUNK)));
            if (bytesRead === 0) throw new CarrelError(`'${nameOfBytes(path)}' became shorter while it was read`, { code: "changed" });
            left -= bytesRead;
            yield buffer.subarray(0, bytesRead);
        }
    } finally {
        await file.close();
    }
    yield padding(size);
}

async function* entries(top: Buffer, relative: Buffer): AsyncGenerator<Buffer> {
    const names = await readdir(relative.length ? below(top, relative) : top, { encoding: "buffer" });
    for (const name of names.sort((a, b) => Buffer.compare(a, b))) {
        const within = relative.length ? below(relative, name) : name;
        const path = below(top, within);
        const facts = await lstat(path);
        const known = { name: within, mode: facts.mode & 0o777, mtime: facts.mtimeMs / 1000 };
        if (facts.isDirectory()) {
            yield* heads({ ...known, name: Buffer.concat([within, SLASH]), type: "5" });
            yield* entries(top, within);
        } else if (facts.isSymbolicLink()) {
            yield* heads({ ...known, type: "2", target: await readlink(path, { encoding: "buffer" }) });
        } else if (facts.isFile()) {
            yield* heads({ ...known, type: "0", size: facts.size });
            yield* content(path, facts.size);
        }
    }
}

/** What is in a directory, without who owns it. */
export async function* pack(local: string): AsyncGenerator<Buffer> {
    yield* entries(bytesOfName(resolve(local)), Buffer.alloc(0));
    yield Buffer.alloc(2 * BLOCK);
}

// --- into a directory ---

class Reader {
    #rest: Buffer = Buffer.alloc(0);
    readonly #pieces: AsyncIterator<Uint8Array>;

    constructor(pieces: AsyncIterable<Uint8Array>) {
        this.#pieces = pieces[Symbol.asyncIterator]();
    }

    /** At most that many bytes; none: the end. */
    async some(most: number): Promise<Buffer> {
        while (this.#rest.length === 0) {
            const next = await this.#pieces.next();
            if (next.done) return this.#rest;
            this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
        }
        const taken = this.#rest.subarray(0, most);
        this.#rest = this.#rest.subarray(taken.length);
        return taken;
    }

    async * exactly(size: number): AsyncGenerator<Buffer> {
        for (let left = size; left > 0;) {
            const piece = await this.some(left);
            if (piece.length === 0) throw new CarrelError("the archive broke off", { code: "invalid_archive" });
            left -= piece.length;
            yield piece;
        }
    }

    async whole(size: number): Promise<Buffer> {
        if (size > RECORD_MOST) throw new CarrelError(`the archive has a record of ${size} bytes`, { code: "invalid_archive" });
        const pieces: Buffer[] = [];
        for await (const piece of this.exactly(size)) pieces.push(piece);
        return Buffer.concat(pieces);
    }

    async skip(size: number): Promise<void> {
        for await (const piece of this.exactly(size)) void piece;
    }

    async end(): Promise<void> {
        await this.#pieces.return?.();
    }
}

function numberAt(block: Buffer, at: number, length: number): number {
    const field = block.subarray(at, at + length);
    if (((field[0] ?? 0) & 0x80) !== 0) return Number(field.readBigUInt64BE(length - 8));
    return parseInt(field.toString("latin1").replace(/[\0 ].*$/s, "") || "0", 8);
}

function bytesAt(block: Buffer, at: number, length: number): Buffer {
    const field = block.subarray(at, at + length);
    const end = field.indexOf(0);
    return Buffer.from(end < 0 ? field : field.subarray(0, end));
}

/** The members of a record "LENGTH NAME=VALUE\n…". */
function facts(record: Buffer): Map<string, Buffer> {
    const members = new Map<string, Buffer>();
    for (let at = 0; at < record.length;) {
        const space = record.indexOf(0x20, at);
        const length = parseInt(record.subarray(at, space).toString("latin1"), 10);
        const equals = record.indexOf(0x3d, space);
        if (space < 0 || !(length > 0) || equals < 0 || equals > at + length) break;
        members.set(record.subarray(space + 1, equals).toString("latin1"), Buffer.from(record.subarray(equals + 1, at + length - 1)));
        at += length;
    }
    return members;
}

interface Member {
    name: Buffer;
    type: string;
    mode: number;
    size: number;
    target: Buffer;
}

async function next(reader: Reader): Promise<Member | undefined> {
    let ahead = new Map<string, Buffer>();
    for (;;) {
        const block = await reader.whole(BLOCK);
        if (block.every((byte) => byte === 0)) return undefined;
        const sum = block.reduce((all, byte, at) => all + (at >= 148 && at < 156 ? 0x20 : byte), 0);
        if (sum !== numberAt(block, 148, 8)) throw new CarrelError("this is no tar archive", { code: "invalid_archive" });
        const type = String.fromCharCode(block[156] || 0x30);
        const size = Number(ahead.get("size")?.toString() ?? numberAt(block, 124, 12));
        if (type === "x" || type === "g" || type === "L" || type === "K") {
            const record = await reader.whole(size);
            await reader.skip(padding(size).length);
            if (type === "x") ahead = new Map([...ahead, ...facts(record)]);
            else if (type !== "g") ahead.set(type === "L" ? "path" : "linkpath", bytesAt(record, 0, record.length));
            continue;
        }
        const prefix = block.subarray(257, 263).toString("latin1") === "ustar\0" ? bytesAt(block, 345, 155) : Buffer.alloc(0);
        const short = bytesAt(block, 0, NAME_MOST);
        const name = ahead.get("path") ?? (prefix.length ? below(prefix, short) : short);
        return { name, type, mode: numberAt(block, 100, 8), size, target: ahead.get("linkpath") ?? bytesAt(block, 157, NAME_MOST) };
    }
}

function refuse(name: Buffer, why: string): never {
    throw new CarrelError(`'${nameOfBytes(name)}' ${why}; it is not unpacked`, { code: "invalid_archive", details: { path: nameOfBytes(name) } });
}

function partsOf(name: Buffer): Buffer[] {
    const parts = name.toString("latin1").split("/").filter((part) => part !== "" && part !== ".");
    if (name[0] === 0x2f || parts.includes("..")) refuse(name, "leads out of the directory");
    return parts.map((part) => Buffer.from(part, "latin1"));
}

/** Whether a link with that target, in the directory of those parts, stays within the tree. */
function staysWithin(directory: Buffer[], target: Buffer): boolean {
    if (target[0] === 0x2f) return false;
    let depth = directory.length;
    for (const part of target.toString("latin1").split("/")) {
        if (part === "..") depth -= 1;
        else if (part !== "" && part !== ".") depth += 1;
        if (depth < 0) return false;
    }
    return true;
}

class Unpacker {
    readonly #top: Buffer;
    readonly #made = new Set<string>();
    /** Made last, so that nothing is written through one. */
    readonly #links: { path: Buffer; target: Buffer }[] = [];

    constructor(top: Buffer) {
        this.#top = top;
    }

    async take(member: Member, reader: Reader): Promise<void> {
        const parts = partsOf(member.name);
        const path = await this.#place(member.name, parts, member.type === "5");
        if (member.type === "5") {
            if (parts.length) await chmod(path, (member.mode & 0o755) | 0o700);
        } else if (member.type === "0" || member.type === "7") {
            await this.#file(path, member, reader);
        } else if (member.type === "2") {
            if (!staysWithin(parts.slice(0, -1), member.target)) refuse(member.name, "is a link that leads out of the directory");
            this.#links.push({ path, target: member.target });
        } else if (member.type === "1") {
            const source = await this.#place(member.target, partsOf(member.target), false);
            await rm(path, { force: true });
            await link(source, path);
        } else {
            refuse(member.name, "is a device or the like");
        }
    }

    async finish(): Promise<void> {
        for (const { path, target } of this.#links) {
            await rm(path, { force: true });
            await symlink(target, path);
        }
    }

    /** The path of an entry. Directories above it are made, and are directories, not links to some. */
    async #place(name: Buffer, parts: Buffer[], directory: boolean): Promise<Buffer> {
        let path = this.#top;
        for (const [number, part] of parts.entries()) {
            path = below(path, part);
            if (number === parts.length - 1 && !directory) break;
            const key = path.toString("latin1");
            if (this.#made.has(key)) continue;
            const there = await lstat(path).catch(() => undefined);
            if (there && !there.isDirectory()) refuse(name, "goes through what is no directory");
            if (!there) await mkdir(path, 0o755);
            this.#made.add(key);
        }
        return path;
    }

    async #file(path: Buffer, member: Member, reader: Reader): Promise<void> {
        await rm(path, { force: true });
        const file: FileHandle = await open(path, "wx", (member.mode & 0o755) | 0o600);
        try {
            for await (const piece of reader.exactly(member.size)) await file.writeFile(piece);
        } finally {
            await file.close();
        }
        await reader.skip(padding(member.size).length);
    }
}

/** Into a directory. The workspace's files are an agent's: links that lead out of it, devices and the like are refused. */
export async function unpack(archive: AsyncIterable<Uint8Array>, local: string): Promise<void> {
    await mkdir(local, { recursive: true });
    const reader = new Reader(archive);
    const unpacker = new Unpacker(bytesOfName(resolve(local)));
    try {
        for (let member = await next(reader); member; member = await next(reader)) await unpacker.take(member, reader);
        await unpacker.finish();
        while ((await reader.some(1 << 16)).length > 0); // the rest is padding; read, so that the connection can be used again
    } finally {
        await reader.end();
    }
}
