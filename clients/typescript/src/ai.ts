// SPDX-License-Identifier: Apache-2.0
/** A workspace as the sandbox of Vercel's AI SDK, for tools that ask for one.
 *
 *     import { sandbox } from "carrel/ai";
 *     await generateText({ model, tools, prompt, experimental_sandbox: sandbox(await new Carrel().workspace("thread-1")) });
 */
import { Readable } from "node:stream";
import type { Experimental_SandboxSession } from "ai";
import { CarrelError, FileNotFound } from "./errors.js";
import type { Command } from "./exec.js";
import type { Workspace } from "./workspace.js";

type Session = Experimental_SandboxSession;
type Process = Awaited<ReturnType<Session["spawn"]>>;

const DESCRIPTION = "A Linux sandbox whose root directory is /; commands start there, and files in it stay. /usr and the rest of the system can be "
    + "read and not changed. What the sandbox does not allow, such as the network, fails with the reason.";
const KINDS: Record<string, "file" | "directory" | "symlink"> = { file: "file", directory: "directory", symlink: "symlink" };

/** null: there is no such file. */
async function orNull<T>(promise: Promise<T>): Promise<T | null> {
    try {
        return await promise;
    } catch (error) {
        if (error instanceof FileNotFound || (error instanceof CarrelError && error.code === "not_a_directory")) return null;
        throw error;
    }
}

export function sandbox(workspace: Workspace): Session {
    const { files } = workspace;
    const readBinaryFile: Session["readBinaryFile"] = ({ path, abortSignal }) => orNull(files.readBytes(path, { signal: abortSignal }));
    return {
        description: DESCRIPTION,
        async readFile({ path, abortSignal }) {
            const entry = await orNull(files.stat(path, { follow: true, signal: abortSignal }));
            if (!entry) return null;
            return Readable.toWeb(Readable.from(files.readStream(path, { signal: abortSignal }), { objectMode: false })) as ReadableStream<Uint8Array>;
        },
        readBinaryFile,
        async readTextFile({ encoding = "utf-8", startLine = 1, endLine = Infinity, ...how }) {
            const bytes = await readBinaryFile(how);
            if (!bytes) return null;
            const text = new TextDecoder(encoding).decode(bytes);
            return startLine === 1 && endLine === Infinity ? text : text.split("\n").slice(startLine - 1, endLine).join("\n");
        },
        async writeFile({ path, content, abortSignal }) {
            await files.write(path, Readable.fromWeb(content as import("node:stream/web").ReadableStream), { signal: abortSignal });
        },
        async writeBinaryFile({ path, content, abortSignal }) {
            await files.write(path, content, { signal: abortSignal });
        },
        async writeTextFile({ path, content, encoding = "utf-8", abortSignal }) {
            await files.write(path, Buffer.from(content, encoding as BufferEncoding), { signal: abortSignal });
        },
        async stat({ path, abortSignal }) {
            const entry = await orNull(files.stat(path, { follow: true, signal: abortSignal }));
            return entry && { type: entry.type === "file" || entry.type === "directory" ? entry.type : "other", size: entry.size ?? 0 };
        },
        async listDirectory({ path, abortSignal }) {
            const entries = await files.ls(path, { signal: abortSignal }).catch((error: unknown) => {
                if (error instanceof FileNotFound) return null;
                throw error;
            });
            return entries && entries.map(({ name, type }) => ({ name: name.toWellFormed(), type: KINDS[type] ?? "other" }));
        },
        async deleteFile({ path, abortSignal }) {
            return await orNull(files.rm(path, { signal: abortSignal }).then(() => true)) ?? false;
        },
        spawn: (({ command, workingDirectory, env, abortSignal, stdin }) =>
            begin(workspace, command, { cwd: workingDirectory, env, stdinOpen: stdin === true }, abortSignal)) as Session["spawn"],
        async run({ command, workingDirectory, env, abortSignal }) {
            const { exitCode, stdout, stderr } = await workspace.run(command, { cwd: workingDirectory, env, signal: abortSignal });
            return { exitCode, stdout, stderr };
        },
    };
}

async function begin(workspace: Workspace, line: string, how: { cwd: string | undefined; env: Record<string, string> | undefined; stdinOpen: boolean },
    signal: AbortSignal | undefined): Promise<Process> {
    signal?.throwIfAborted();
    const command = await workspace.start(line, how);
    const kill = async (): Promise<void> => { await command.kill().catch(ended); };
    const abort = (): void => { kill().catch(() => undefined); }; // whoever waits hears it
    signal?.addEventListener("abort", abort, { once: true });
    const controllers: Partial<Record<"stdout" | "stderr", ReadableStreamDefaultController<Uint8Array>>> = {};
    const stream = (name: "stdout" | "stderr"): ReadableStream<Uint8Array> =>
        new ReadableStream({ start(controller) { controllers[name] = controller; }, cancel() { delete controllers[name]; } });
    const process = { stdout: stream("stdout"), stderr: stream("stderr") };
    const over = follow(command, controllers).finally(() => { signal?.removeEventListener("abort", abort); });
    over.catch(() => undefined); // told by the streams, and by wait
    const wait = async (): Promise<{ exitCode: number }> => {
        const exitCode = await over;
        signal?.throwIfAborted();
        return { exitCode };
    };
    if (!how.stdinOpen) return { ...process, wait, kill };
    const stdin = new WritableStream<Uint8Array>({ write: (data) => command.write(data), close: () => command.closeStdin().catch(ended) });
    return { ...process, stdin, wait, kill };
}

/** Its output goes to whoever reads it, up to its exit code. */
async function follow(command: Command, controllers: Partial<Record<string, ReadableStreamDefaultController<Uint8Array>>>): Promise<number> {
    try {
        for await (const output of command) controllers[output.stream]?.enqueue(output.data);
        for (const controller of Object.values(controllers)) controller?.close();
    } catch (error) {
        for (const controller of Object.values(controllers)) controller?.error(error);
        throw error;
    }
    return command.result?.exitCode ?? -1;
}

/** To end what has ended is no error. */
function ended(error: unknown): void {
    if (!(error instanceof CarrelError && (error.status === 404 || error.status === 409))) throw error;
}
