// SPDX-License-Identifier: Apache-2.0
/** A deepagents backend: every file operation is a call to the daemon, not a process.
 *
 *     import { CarrelBackend } from "carrel/deepagents";
 *     const agent = createDeepAgent({ model, backend: new CarrelBackend("thread-1") });
 */
import type {
    DeleteResult, EditResult, ExecuteResponse, FileDownloadResponse, FileInfo, FileUploadResponse, GlobResult, GrepResult, LsResult,
    ReadRawResult, ReadResult, SandboxBackendProtocolV2, WriteResult,
} from "deepagents";
import { absolute } from "./bytes.js";
import { CarrelError, FileNotFound, InvalidRequest } from "./errors.js";
import { wantedOf } from "./globs.js";
import { isText, mimeType } from "./mime.js";
import { Ends, refusals, type Entry } from "./models.js";
import { Desks, type DeskOptions, type Review } from "./planned.js";
import type { Plan } from "./plans.js";
import { Workspace } from "./workspace.js";

/** Where the daemon is; writes: plan lets nothing change in the workspace but by a plan that was approved, see review(); the signal ends
 * every command and call. */
export interface CarrelBackendOptions extends DeskOptions {
    /** Seconds for each command; left out, the policy's. */
    timeout?: number;
}

const EMPTY = "System reminder: File exists but has empty contents";
const OUTPUT_MOST = 10 << 20; // bytes of a command's output, of which a model is shown a part at most
const GLOB_MOST = 50_000;
const GREP_MOST = 100_000;
const PAGE_LINES = 100_000;
const FAILED = 125; // as the command line ends, where it is Carrel that failed
type Code = FileUploadResponse["error"];

/** workspace: an id (made when it is missing) or a workspace object; left out, that of the LangGraph thread in which it is used. */
export class CarrelBackend implements SandboxBackendProtocolV2 {
    readonly #desks: Desks;
    readonly #timeout: number | undefined;
    readonly #signal: AbortSignal | undefined;
    #closed = false;

    constructor(options?: CarrelBackendOptions);
    constructor(workspace: string | Workspace | undefined, options?: CarrelBackendOptions);
    constructor(first?: string | Workspace | CarrelBackendOptions, second: CarrelBackendOptions = {}) {
        const isOptions = typeof first === "object" && !(first instanceof Workspace);
        const options = isOptions ? first : second;
        if (first === "") throw new InvalidRequest("workspace: give an id, or a workspace");
        this.#desks = new Desks(isOptions ? undefined : first, options);
        this.#timeout = options.timeout;
        this.#signal = options.signal;
    }

    /** Of the workspace. deepagents asks for it also where no thread runs. */
    get id(): string {
        return this.#desks.id ?? "thread";
    }

    /** The workspace that it works in. */
    async workspace(): Promise<Workspace> {
        if (this.#closed) throw new InvalidRequest("this backend was closed");
        return this.#desks.here().workspace();
    }

    /** The workspace of a thread, with the key of the person who decides: plans are looked at and undone there. */
    forThread(id: string): Promise<Workspace> {
        return this.#desks.of(id).person();
    }

    get isRunning(): boolean {
        return !this.#closed;
    }

    /** Ends what the backend has made for itself. The workspace and its files stay. */
    async close(): Promise<void> {
        this.#closed = true;
        await this.#desks.close();
    }

    async execute(command: string): Promise<ExecuteResponse> {
        try {
            const kept = new Ends(OUTPUT_MOST);
            const ws = await this.workspace();
            const onOutput = (output: { data: Uint8Array }): void => { kept.add(output.data); };
            const result = await ws.run(command, { timeout: this.#timeout, signal: this.#signal, keep: false, onOutput });
            const refused = result.ok ? "" : refusals(result.denials);
            return { output: kept.bytes().toString() + refused, exitCode: result.exitCode, truncated: result.truncated || kept.missing > 0 };
        } catch (error) {
            return { output: `Error: ${told(error)}`, exitCode: FAILED, truncated: false }; // the model reads why, and can do something else
        }
    }

    async ls(path: string): Promise<LsResult> {
        try {
            return { files: (await (await this.workspace()).files.ls(path, { signal: this.#signal })).map((entry) => infoOf(entry, entry.path)) };
        } catch (error) {
            return error instanceof FileNotFound ? { files: [] } : { error: told(error) };
        }
    }

    async read(filePath: string, offset = 0, limit = 500): Promise<ReadResult> {
        const mime = mimeType(filePath);
        const first = Number.isFinite(offset) ? Math.max(0, Math.floor(offset)) : 0;
        const most = limit === Infinity ? Number.MAX_SAFE_INTEGER : Number.isFinite(limit) ? Math.max(0, Math.floor(limit)) : 0;
        try {
            const { files } = await this.workspace();
            if (!isText(mime)) return { content: await files.readBytes(filePath, { signal: this.#signal }), mimeType: mime };
            const entry = await files.stat(filePath, { follow: true, signal: this.#signal });
            if (entry.type !== "file") return { error: `File '${filePath}' is not a file` };
            if (entry.size === 0) return { content: EMPTY, mimeType: mime };
            if (most === 0) return { content: "", mimeType: mime };
            return await this.#readLines(filePath, mime, first, most);
        } catch (error) {
            return { error: readError(filePath, error) };
        }
    }

    async #readLines(path: string, mime: string, first: number, most: number): Promise<ReadResult> {
        const { files } = await this.workspace();
        const numbered: string[] = [];
        let at: number | undefined = first;
        let totalLines: number | undefined;
        while (at !== undefined && at - first < most) {
            const page = await files.lines(path, { offset: at, limit: Math.min(PAGE_LINES, most - (at - first)), signal: this.#signal });
            if (page.binary) return { content: page.data, mimeType: "application/octet-stream" };
            totalLines = page.totalLines ?? totalLines;
            if (page.startLine === undefined) break;
            const lines = page.content.replace(/\n$/, "").split("\n");
            for (const [number, line] of lines.entries()) numbered.push(`${String((page.startLine ?? 0) + number).padStart(6)}\t${line}\n`);
            at = page.nextOffset;
        }
        if (numbered.length === 0) return { content: "", mimeType: mime };
        const window = { startLine: first + 1, endLine: first + numbered.length };
        return { content: numbered.join(""), mimeType: mime, ...window, ...(totalLines === undefined ? {} : { totalLines }),
            ...(at === undefined ? {} : { nextOffset: at }) };
    }

    async readRaw(filePath: string): Promise<ReadRawResult> {
        try {
            const { files } = await this.workspace();
            const mime = mimeType(filePath);
            const [entry, bytes] = await Promise.all([files.stat(filePath, { follow: true }), files.readBytes(filePath, { signal: this.#signal })]);
            const when = entry.mtime ?? new Date(0).toISOString();
            const content = isText(mime) ? Buffer.from(bytes).toString() : bytes;
            return { data: { content, mimeType: mime, created_at: when, modified_at: when } };
        } catch (error) {
            return { error: readError(filePath, error) };
        }
    }

    async write(filePath: string, content: string): Promise<WriteResult> {
        try {
            const data = isText(mimeType(filePath)) ? content : Buffer.from(content, "base64");
            await (await this.workspace()).files.write(filePath, data, { signal: this.#signal });
            return { path: filePath, filesUpdate: null };
        } catch (error) {
            return { error: `Failed to write to ${filePath}: ${told(error)}` };
        }
    }

    async edit(filePath: string, oldString: string, newString: string, replaceAll = false): Promise<EditResult> {
        try {
            const occurrences = oldString === "" ? await this.#begin(filePath, newString)
                : oldString === newString ? await this.#find(filePath, oldString) : await this.#replace(filePath, oldString, newString, replaceAll);
            return { path: filePath, filesUpdate: null, occurrences };
        } catch (error) {
            return { error: editError(filePath, error) };
        }
    }

    /** An empty text can be replaced in an empty file only. */
    async #begin(path: string, content: string): Promise<number> {
        const { files } = await this.workspace();
        const entry = await files.stat(path, { follow: true, signal: this.#signal });
        if (entry.size !== 0) throw new InvalidRequest("oldString must not be empty unless the file is empty");
        if (content === "") return 0;
        await files.write(path, content, { ifMatch: entry.etag, signal: this.#signal });
        return 1;
    }

    async #find(path: string, text: string): Promise<number> {
        const content = await (await this.workspace()).files.read(path, { signal: this.#signal });
        if (!content.includes(text)) throw new CarrelError("the text is not in the file", { code: "string_not_found" });
        return 1;
    }

    async #replace(path: string, old: string, replacement: string, all: boolean): Promise<number> {
        const { files } = await this.workspace();
        try {
            return await files.edit(path, old, replacement, { all, signal: this.#signal });
        } catch (error) {
            if (!(error instanceof CarrelError && error.code === "string_not_found") || !old.includes("\n") || old.includes("\r\n")) throw error;
        }
        // A file with the line ends of Windows keeps them.
        return files.edit(path, old.replaceAll("\n", "\r\n"), replacement.replaceAll("\n", "\r\n"), { all, signal: this.#signal });
    }

    async delete(filePath: string): Promise<DeleteResult> {
        try {
            await (await this.workspace()).files.rm(filePath, { recursive: true, signal: this.#signal });
            return { path: filePath, filesUpdate: null };
        } catch (error) {
            return { error: error instanceof FileNotFound ? `Error: '${filePath}' not found` : `Error deleting file '${filePath}': ${told(error)}` };
        }
    }

    async grep(pattern: string, path?: string | null, glob?: string | null, maxCount?: number | null): Promise<GrepResult> {
        const limit = typeof maxCount === "number" && maxCount > 0 ? Math.floor(maxCount) : GREP_MOST;
        try {
            const { files } = await this.workspace();
            const matches = await files.grep(pattern, path || "/", { globs: glob ? [glob] : [], limit, signal: this.#signal });
            const texts = matches.filter((match) => isText(mimeType(match.path))).map((match) => ({ ...match, path: match.path.toWellFormed() }));
            return { matches: texts, truncated: matches.truncated };
        } catch (error) {
            return error instanceof FileNotFound ? { matches: [] } : { error: told(error) };
        }
    }

    /** Files and directories, by their paths below `path`. */
    async glob(pattern: string, path = "/"): Promise<GlobResult> {
        const top = absolute(path);
        const skip = top === "/" ? 1 : top.length + 1;
        const files: FileInfo[] = [];
        try {
            const wanted = wantedOf(pattern);
            for await (const entry of this.#below(absolute(`${top}/${wanted.base}`), wanted.depth)) {
                const relative = entry.path.slice(skip);
                if (!wanted.matches(relative)) continue;
                if (files.length === GLOB_MOST) return { files, truncated: true };
                files.push({ ...infoOf(entry, relative), path: relative.toWellFormed() });
            }
            return { files, truncated: false };
        } catch (error) {
            return error instanceof FileNotFound ? { files: [], truncated: false } : { error: told(error) };
        }
    }

    async * #below(path: string, depth: number | undefined): AsyncGenerator<Entry> {
        const { files } = await this.workspace();
        // Below the root, lists would go through the system's directories, too.
        if (depth === 1 || (depth !== undefined && path !== "/")) yield* await files.ls(path, { depth, signal: this.#signal });
        else yield* files.inventory(path, { signal: this.#signal });
    }

    async uploadFiles(files: [string, Uint8Array][]): Promise<FileUploadResponse[]> {
        const good = files.filter(([path]) => path.startsWith("/"));
        const done = await this.#each(good.length, async (those) => those.files.writeMany(good, { signal: this.#signal }));
        return files.map(([path]) => {
            const error = path.startsWith("/") ? done.shift() : new InvalidRequest("give an absolute path", { code: "invalid_path" });
            return { path, error: codeOf(error) };
        });
    }

    async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
        const good = paths.filter((path) => path.startsWith("/"));
        const done = await this.#each(good.length, async (those) => those.files.readMany(good, { signal: this.#signal }));
        return paths.map((path) => {
            const one = path.startsWith("/") ? done.shift() : new InvalidRequest("give an absolute path", { code: "invalid_path" });
            return one instanceof Uint8Array ? { path, content: one, error: null } : { path, content: null, error: codeOf(one) };
        });
    }

    /** One result for each; where the call itself fails, that error for all. */
    async #each<T>(count: number, act: (workspace: Workspace) => Promise<(T | CarrelError)[]>): Promise<(T | CarrelError)[]> {
        if (count === 0) return [];
        try {
            return await act(await this.workspace());
        } catch (error) {
            if (error instanceof CarrelError) return new Array<CarrelError>(count).fill(error);
            throw error;
        }
    }

    /** What the agent has changed so far, closed: a plan, of which nothing is done yet; undefined: it has changed nothing. */
    closePlan(): Promise<Plan | undefined> {
        return this.#desks.here().closePlan();
    }

    /** For a node of a LangGraph graph: `await backend.review(interrupt)`. Hands the plan of what the agent has changed to a person, and
     * does what that says: applies it, all or nothing, or rejects it. undefined: there was nothing to decide. plan: the id of the one that
     * is meant, from the graph's state, where several agents work in one workspace. */
    review(interrupt: (value: Review) => unknown, plan?: string): Promise<Plan | undefined> {
        return this.#desks.here().review(interrupt, plan);
    }
}

export type { Decision, DeskOptions, Review } from "./planned.js";

function infoOf(entry: Entry, path: string): FileInfo {
    // A model is sent texts: of a name that is none it sees that there is something.
    const name = path.toWellFormed();
    return { path: entry.isDir ? `${name}/` : name, is_dir: entry.isDir, ...(entry.size === undefined ? {} : { size: entry.size }),
        ...(entry.mtime === undefined ? {} : { modified_at: entry.mtime }) };
}

/** A message for the model; what is not ours to tell goes on. */
function told(error: unknown): string {
    if (error instanceof CarrelError) return error.message;
    if (error instanceof RangeError || error instanceof SyntaxError) return error.message; // a pattern that is none
    throw error;
}

/** Words of the daemon's that the protocol has others for; what it has no word for is told as it is. */
const CODES: Record<string, string> = { not_a_directory: "invalid_path", invalid_request: "invalid_path", forbidden: "permission_denied",
    reserved: "permission_denied", read_only: "permission_denied", not_a_file: "is_directory" };

function codeOf(error: unknown): Code {
    if (!(error instanceof CarrelError)) return null;
    return (CODES[error.code] ?? error.code) as Code;
}

function readError(path: string, error: unknown): string {
    if (error instanceof FileNotFound || (error instanceof CarrelError && error.code === "not_a_directory")) return `File '${path}' not found`;
    return `File '${path}': ${told(error)}`;
}

function editError(path: string, error: unknown): string {
    const code = error instanceof CarrelError ? error.code : "";
    if (code === "file_not_found" || code === "not_a_directory") return `Error: File '${path}' not found`;
    if (code === "string_not_found") return `String not found in file '${path}'`;
    if (code === "multiple_occurrences") return `Multiple occurrences found in '${path}'. Use replaceAll=true to replace all.`;
    return error instanceof InvalidRequest && !code ? error.message : `Error editing file '${path}': ${told(error)}`;
}
