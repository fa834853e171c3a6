// SPDX-License-Identifier: Apache-2.0
import { createReadStream, createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { pack, unpack as unpackTree } from "./archive.js";
import { bytesField, given, nameField, pathField, pathUrl, text, nameOfBytes, bytesOfName, type Content, type Item, type Path } from "./bytes.js";
import type { Carrel } from "./client.js";
import { CarrelError, errorOf, InvalidRequest, LimitReached, NotFound } from "./errors.js";
import { listIn, type Request } from "./http.js";
import { changeOf, entryOf, found, pageOf, type Change, type Entry, type Found, type Match, type Page } from "./models.js";

/** What every call takes. */
export interface Stoppable {
    signal?: AbortSignal | undefined;
}

export interface Range extends Stoppable {
    /** The first byte wanted. */
    start?: number | undefined;
    /** The one behind the last. */
    end?: number | undefined;
}

export interface WriteOptions extends Stoppable {
    mode?: number | undefined;
    append?: boolean | undefined;
    /** Only while it has this etag. */
    ifMatch?: string | undefined;
    /** Only where there is no file yet. */
    isNew?: boolean | undefined;
}

export interface TransferOptions extends Stoppable {
    replace?: boolean | undefined;
    parents?: boolean | undefined;
    recursive?: boolean | undefined;
}

export interface GlobOptions extends Stoppable {
    limit?: number | undefined;
    /** Also directories whose path matches. */
    directories?: boolean | undefined;
}

export interface GrepOptions extends Stoppable {
    regex?: boolean | undefined;
    ignoreCase?: boolean | undefined;
    /** Only in files that match one of them; with ! in front: not in these. */
    globs?: string[] | undefined;
    limit?: number | undefined;
}

const BATCH_BYTES = 8 << 20; // of content in one request for many files; what is larger goes by itself
const BATCH_FILES = 10_000;

/** The files of a workspace, as its commands see them; no process is started for any of these. */
export class Files {
    readonly #client: Carrel;
    readonly #workspace: string;

    constructor(client: Carrel, workspace: string) {
        this.#client = client;
        this.#workspace = workspace;
    }

    #at(path: Path): string {
        return `${this.#workspace}/files${pathUrl(path)}`;
    }

    #act(action: string, body: Item, how: Request = {}): Promise<Item> {
        return this.#client.call("POST", `${this.#workspace}/files-${action}`, { body, ...how });
    }

    // --- content ---

    async read(path: Path, how: Stoppable = {}): Promise<string> {
        return text(await this.readBytes(path, how));
    }

    /** All of it, or the bytes from `start` up to and without `end`. */
    async readBytes(path: Path, how: Range = {}): Promise<Uint8Array> {
        const pieces: Uint8Array[] = [];
        for await (const piece of this.readStream(path, how)) pieces.push(piece);
        return Buffer.concat(pieces);
    }

    /** The same in pieces, of which only one is in memory at a time. */
    async * readStream(path: Path, how: Range = {}): AsyncGenerator<Uint8Array, void, undefined> {
        const { start, end } = how;
        if (start !== undefined && end !== undefined && end <= start) return;
        const ranged = start !== undefined || end !== undefined;
        const headers = ranged ? { Range: `bytes=${start ?? 0}-${end === undefined ? "" : end - 1}` } : undefined;
        const answer = await this.#client.transport.open("GET", this.#at(path), { headers, signal: how.signal, wait: true });
        yield* answer.body;
    }

    /** A page of lines; .nextOffset is where the next one begins. */
    async lines(path: Path, how: { offset?: number; limit?: number } & Stoppable = {}): Promise<Page> {
        const params = { format: "text", offset: how.offset ?? 0, limit: how.limit ?? 2000 };
        return pageOf(await this.#client.call("GET", this.#at(path), { params, signal: how.signal, wait: true }));
    }

    /** The whole file, with the directories above it: on disk, all of it or nothing, when this returns. A stream is sent as it is read. */
    async write(path: Path, content: Content, how: WriteOptions = {}): Promise<Entry> {
        if (how.append && (how.ifMatch || how.isNew)) throw new InvalidRequest("append: give it without ifMatch and isNew");
        const params = { parents: 1, mode: how.mode?.toString(8).padStart(4, "0"), append: how.append ? 1 : undefined };
        const headers: Record<string, string> | undefined = how.ifMatch ? { "If-Match": how.ifMatch } : how.isNew ? { "If-None-Match": "*" } : undefined;
        return entryOf(await this.#client.call("PUT", this.#at(path), { params, headers, content, signal: how.signal, wait: true }));
    }

    /** Adds to its end. */
    async append(path: Path, content: Content, how: Stoppable = {}): Promise<Entry> {
        return this.write(path, content, { ...how, append: true });
    }

    /** Puts `new` in the place of `old`, which must occur once unless all. Returns how many were replaced. */
    async edit(path: Path, old: string, replacement: string, how: { all?: boolean } & Stoppable = {}): Promise<number> {
        const answer = await this.#act("edit", { ...pathField(path), old, new: replacement, all: how.all ?? false }, { signal: how.signal, wait: true });
        return Number(answer.occurrences);
    }

    /** In the order of the paths: the content, or the error. */
    async readMany(paths: readonly Path[], how: Stoppable = {}): Promise<(Uint8Array | CarrelError)[]> {
        const results: (Uint8Array | CarrelError)[] = [];
        for (let at = 0; at < paths.length; at += BATCH_FILES) {
            const some = paths.slice(at, at + BATCH_FILES);
            const answer = await this.#act("read", { paths: some.map((path) => pathField(path)) }, { signal: how.signal, wait: true });
            for (const [number, item] of listIn(answer, "results").entries()) {
                let one: Uint8Array | CarrelError = item.error ? errorOf(404, item) : bytesField(item, "content") ?? Buffer.alloc(0);
                // What has no room in one answer comes by itself.
                if (one instanceof LimitReached) one = await this.readBytes(some[number] ?? "/", how).catch(carrelError);
                results.push(one);
            }
        }
        return results;
    }

    /** In the order of the files: undefined, or the error. */
    async writeMany(files: Iterable<readonly [Path, string | Uint8Array]>, how: Stoppable = {}): Promise<(CarrelError | undefined)[]> {
        const results: (CarrelError | undefined)[] = [];
        let batch: Item[] = [];
        let bytes = 0;
        const flush = async (): Promise<void> => {
            if (batch.length === 0) return;
            const answer = await this.#act("write", { files: batch }, { signal: how.signal, wait: true });
            for (const item of listIn(answer, "results")) results.push(item.error ? errorOf(409, item) : undefined);
            batch = [];
            bytes = 0;
        };
        for (const [path, content] of files) {
            const size = typeof content === "string" ? Buffer.byteLength(content) : content.byteLength;
            if (bytes + size > BATCH_BYTES || batch.length === BATCH_FILES) await flush();
            if (size > BATCH_BYTES) {
                results.push(await this.write(path, content, how).then(() => undefined, carrelError));
                continue;
            }
            const plain = typeof content === "string" && content.isWellFormed() && !content.includes("\0"); // which no JSON of the daemon may have
            batch.push({ ...pathField(path), ...(plain ? { content } : { content_b64: Buffer.from(content as Uint8Array).toString("base64") }) });
            bytes += size;
        }
        await flush();
        return results;
    }

    // --- what there is ---

    async ls(path: Path = "/", how: { depth?: number } & Stoppable = {}): Promise<Entry[]> {
        const entries: Entry[] = [];
        let cursor: unknown;
        do {
            const params = { list: 1, depth: how.depth ?? 1, cursor: cursor as string | undefined };
            const answer = await this.#client.call("GET", this.#at(path), { params, signal: how.signal, wait: true });
            for (const item of listIn(answer, "entries")) entries.push(entryOf(item));
            cursor = answer.next;
        } while (cursor);
        return entries;
    }

    /** Everything below it, one at a time, without what Carrel provides (`/usr`, …); hash: with each file's SHA-256 in .sha256. */
    async * inventory(path: Path = "/", how: { hash?: boolean } & Stoppable = {}): AsyncGenerator<Entry & { sha256?: string }, void, undefined> {
        const body = { ...pathField(path), hash: how.hash ?? false };
        let whole = false;
        for await (const item of this.#client.lines("POST", `${this.#workspace}/files-inventory`, { body, signal: how.signal })) {
            if (item.summary) whole = true;
            else yield { ...entryOf(item), ...(item.sha256 ? { sha256: String(item.sha256) } : {}) };
        }
        if (!whole) throw this.#client.transport.unreachable(new Error("the list broke off before its end"));
    }

    async stat(path: Path, how: { follow?: boolean } & Stoppable = {}): Promise<Entry> {
        return entryOf(await this.#client.call("GET", this.#at(path), { params: { stat: 1, follow: how.follow ?? false }, signal: how.signal }));
    }

    async exists(path: Path, how: Stoppable = {}): Promise<boolean> {
        try {
            await this.stat(path, how);
            return true;
        } catch (error) {
            if (error instanceof NotFound || (error instanceof CarrelError && error.code === "not_a_directory")) return false;
            throw error;
        }
    }

    /** Files, and with directories those, too, whose path matches, absolute; without a slash the pattern is looked for in all directories. */
    async glob(pattern: string, path: Path = "/", how: GlobOptions = {}): Promise<Found<string>> {
        const entries = await this.find(pattern, path, how);
        return found(entries.map((entry) => entry.path), entries.truncated);
    }

    /** The same with what they are. */
    async find(pattern: string, path: Path = "/", how: GlobOptions = {}): Promise<Found<Entry>> {
        const body = given({ pattern, limit: how.limit ?? 10_000, directories: how.directories, ...pathField(path) });
        const answer = await this.#act("glob", body, { signal: how.signal, wait: true });
        return found(listIn(answer, "matches").map((item) => entryOf(item)), answer.truncated);
    }

    /** Lines with a text, or with a match of a regular expression. */
    async grep(pattern: string, path: Path = "/", how: GrepOptions = {}): Promise<Found<Match>> {
        const body = given({ pattern, regex: how.regex, ignore_case: how.ignoreCase, globs: how.globs?.length ? how.globs : undefined, limit: how.limit });
        const answer = await this.#act("grep", { ...body, ...pathField(path) }, { signal: how.signal, wait: true });
        const lines = listIn(answer, "matches").map((item) =>
            ({ path: nameField(item), line: Number(item.line), text: text(bytesField(item, "text") ?? Buffer.alloc(0)) }));
        return found(lines, answer.truncated);
    }

    /** Changes as they happen; the first has the event "ready": nothing is missed from there on. */
    async * watch(path: Path = "/", how: { recursive?: boolean } & Stoppable = {}): AsyncGenerator<Change, void, undefined> {
        const address = `${this.#workspace}/files-watch?path=${pathUrl(path)}&recursive=${Number(how.recursive ?? true)}`;
        for await (const item of this.#client.lines("GET", address, { signal: how.signal })) yield changeOf(item);
    }

    // --- changes ---

    async mkdir(path: Path, how: { parents?: boolean } & Stoppable = {}): Promise<void> {
        await this.#act("mkdir", { ...pathField(path), parents: how.parents ?? true }, { signal: how.signal });
    }

    async rm(path: Path, how: { recursive?: boolean } & Stoppable = {}): Promise<void> {
        await this.#client.call("DELETE", this.#at(path), { params: { recursive: how.recursive ? 1 : undefined }, signal: how.signal, wait: true });
    }

    async mv(source: Path, target: Path, how: Omit<TransferOptions, "recursive"> = {}): Promise<void> {
        const body = { ...pathField(source, "from"), ...pathField(target, "to"), replace: how.replace ?? false, parents: how.parents ?? true };
        await this.#act("move", body, { signal: how.signal, wait: true });
    }

    async cp(source: Path, target: Path, how: TransferOptions = {}): Promise<void> {
        const body = { ...pathField(source, "from"), ...pathField(target, "to"), replace: how.replace ?? false, parents: how.parents ?? true,
            recursive: how.recursive ?? true };
        await this.#act("copy", body, { signal: how.signal, wait: true });
    }

    async chmod(path: Path, mode: number, how: { recursive?: boolean } & Stoppable = {}): Promise<void> {
        const body = { ...pathField(path), mode: mode.toString(8).padStart(4, "0"), recursive: how.recursive ?? false };
        await this.#act("chmod", body, { signal: how.signal, wait: true });
    }

    /** Makes everything below it readable and writable again, for its owner. */
    async repair(path: Path = "/", how: Stoppable = {}): Promise<Item> {
        return this.#act("repair", pathField(path), { signal: how.signal, wait: true });
    }

    async symlink(path: Path, target: Path, how: { replace?: boolean } & Stoppable = {}): Promise<void> {
        const raw = bytesOfName(target);
        const held = nameOfBytes(raw).isWellFormed() ? { target: raw.toString() } : { target_b64: raw.toString("base64") };
        await this.#act("symlink", { ...pathField(path), ...held, replace: how.replace ?? false, parents: true }, { signal: how.signal });
    }

    // --- trees ---

    /** A file of this host to that path, or what is in a directory into that one. */
    async upload(local: string, path: Path, how: Stoppable = {}): Promise<void> {
        const facts = await stat(local);
        if (!facts.isDirectory()) {
            await this.write(path, createReadStream(local), { mode: facts.mode & 0o777, ...how });
            return;
        }
        await this.mkdir(path, how);
        await this.unpack(pack(local), path, how);
    }

    /** The other way; nothing is written outside of `local`, whatever the workspace holds. */
    async download(path: Path, local: string, how: Stoppable = {}): Promise<void> {
        if ((await this.stat(path, { follow: true, ...how })).isDir) await unpackTree(this.tar(path, how), local);
        else await pipeline(this.readStream(path, how), createWriteStream(local));
    }

    /** The tree below it as a tar archive, in pieces. */
    async * tar(path: Path = "/", how: Stoppable = {}): AsyncGenerator<Uint8Array, void, undefined> {
        const answer = await this.#client.transport.open("GET", this.#at(path), { params: { archive: "tar" }, signal: how.signal, wait: true });
        yield* answer.body;
    }

    /** Unpacks an archive below a directory. What was left out is in .skipped. */
    async unpack(archive: Content, path: Path = "/", how: { format?: "tar" | "zip" } & Stoppable = {}): Promise<Item> {
        return this.#client.call("POST", `${this.#workspace}/files-unpack?path=${pathUrl(path)}&format=${how.format ?? "tar"}`, {
            content: archive, headers: { "Content-Type": how.format === "zip" ? "application/zip" : "application/x-tar" }, signal: how.signal, wait: true });
    }
}

function carrelError(error: unknown): CarrelError {
    if (error instanceof CarrelError) return error;
    throw error;
}
