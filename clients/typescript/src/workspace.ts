// SPDX-License-Identifier: Apache-2.0
import { bytesField, type Content, type Item } from "./bytes.js";
import type { AuditOptions, Carrel } from "./client.js";
import { Env } from "./env.js";
import { Command, execBody, type ExecOptions, type RunOptions, type StreamOptions } from "./exec.js";
import { ConnectionFailed } from "./errors.js";
import { Files, type Stoppable } from "./files.js";
import { Result, type AuditRecord, type CarrelEvent, type Port, type Side, type Snapshot, type VersionChange } from "./models.js";
import { OpenPlan, Plan, type PlanState } from "./plans.js";

/** A workspace: a directory that its commands see as /, and whose files stay. */
export class Workspace {
    readonly id: string;
    readonly client: Carrel;
    readonly files: Files;
    readonly env: Env;
    /** The daemon's own object. */
    info: Item;
    readonly #path: string;

    constructor(client: Carrel, info: Item) {
        this.client = client;
        this.info = info;
        this.id = String(info.id);
        this.#path = `/v1/workspaces/${encodeURIComponent(this.id)}`;
        this.files = new Files(client, this.#path);
        this.env = new Env(client, this.#path);
    }

    // --- commands ---

    /** Runs a command to its end. A text is a line for bash, a list a program and its arguments. */
    async run(command: string | readonly string[], how: RunOptions = {}): Promise<Result> {
        const running = this.stream(command, how);
        for await (const output of running) how.onOutput?.(output);
        if (!running.result) throw new ConnectionFailed("the command did not end", { code: "connection_failed" });
        return how.check ? running.result.check() : running.result;
    }

    /** A command that begins when it is iterated over; each item is a piece of output, .result its end. */
    stream(command: string | readonly string[], how: StreamOptions = {}): Command {
        return new Command(this.client, this.#path, { ...how, body: execBody(command, how) });
    }

    /** Starts a command in the background. */
    async start(command: string | readonly string[], how: ExecOptions = {}): Promise<Command> {
        const body = { ...execBody(command, how), background: true };
        const started = await this.client.call("POST", `${this.#path}/exec`, { body, signal: how.signal });
        return new Command(this.client, this.#path, { ...how, id: String(started.exec_id) });
    }

    /** A shell, or another command, in a terminal: its keys are written, its screen is iterated over. */
    async pty(command: string | readonly string[] = ["bash"], how: ExecOptions & { cols?: number; rows?: number } = {}): Promise<Command> {
        const { cols, rows, ...rest } = how;
        return this.start(command, { ...rest, pty: { cols: cols ?? 80, rows: rows ?? 24 } });
    }

    /** One that was started before, here or elsewhere. */
    command(execId: string, how: { keep?: boolean } & Stoppable = {}): Command {
        return new Command(this.client, this.#path, { ...how, id: execId });
    }

    async execs(how: { state?: "running" | "ended" } & Stoppable = {}): Promise<Item[]> {
        return this.client.all(`${this.#path}/exec`, "execs", { params: { state: how.state }, signal: how.signal });
    }

    // --- plans ---

    /** Makes a plan of what the function runs: `const plan = await ws.plan(async (p) => { await p.run("…"); })`. Nothing in the workspace
     * changes until it is applied; if the function throws, the plan is discarded. Without a function: a plan to run commands in. */
    plan(): OpenPlan;
    plan(make: (p: OpenPlan) => Promise<unknown>): Promise<Plan>;
    plan(make?: (p: OpenPlan) => Promise<unknown>): OpenPlan | Promise<Plan> {
        const open = new OpenPlan(this);
        if (!make) return open;
        return (async () => {
            try {
                await make(open);
            } catch (error) {
                await open.discard().catch(() => undefined); // why it was given up is the news
                throw error;
            }
            return open.close();
        })();
    }

    async plans(how: { state?: PlanState } & Stoppable = {}): Promise<Plan[]> {
        const items = await this.client.all(`${this.#path}/plans`, "plans", { params: { state: how.state }, signal: how.signal });
        return items.map((item) => new Plan(this.client, item));
    }

    async getPlan(id: string, how: Stoppable = {}): Promise<Plan> {
        return new Plan(this.client, await this.client.call("GET", `${this.#path}/plans/${encodeURIComponent(id)}`, how));
    }

    /** A plan that is written, not run: { moves, deletions, creations, validations }, or a list of operations. */
    async submitPlan(operations: Item | Item[], how: Stoppable = {}): Promise<Plan> {
        return new Plan(this.client, await this.client.call("POST", `${this.#path}/plans`, { body: operations, wait: true, signal: how.signal }));
    }

    // --- ports ---

    /** An address under which a server inside is reached; access token: by whoever has the address. */
    async openPort(port: number, how: { access?: "key" | "token" } & Stoppable = {}): Promise<Port> {
        const answer = await this.client.call("POST", `${this.#path}/ports/${port}`, { body: { access: how.access ?? "key" }, signal: how.signal });
        return answer as unknown as Port;
    }

    async closePort(port: number, how: Stoppable = {}): Promise<void> {
        await this.client.call("DELETE", `${this.#path}/ports/${port}`, how);
    }

    async ports(how: Stoppable = {}): Promise<Port[]> {
        return await this.client.all(`${this.#path}/ports`, "ports", how) as unknown as Port[];
    }

    // --- itself ---

    async refresh(how: Stoppable = {}): Promise<this> {
        this.info = await this.client.call("GET", this.#path, how);
        return this;
    }

    async update(changes: { policy?: Item; links?: Item; labels?: Item }, how: Stoppable = {}): Promise<this> {
        this.info = await this.client.call("PATCH", this.#path, { body: changes, wait: true, signal: how.signal });
        return this;
    }

    /** Keeps the files as they are now; commands that run stand still for that moment (frozen_ms). */
    async snapshot(how: { name?: string } & Stoppable = {}): Promise<Snapshot> {
        const body = how.name === undefined ? {} : { name: how.name };
        return await this.client.call("POST", `${this.#path}/snapshots`, { body, wait: true, signal: how.signal }) as unknown as Snapshot;
    }

    /** The oldest first. */
    async snapshots(how: Stoppable = {}): Promise<Snapshot[]> {
        return (await this.client.call("GET", `${this.#path}/snapshots`, how))["snapshots"] as unknown as Snapshot[];
    }

    /** By its id or name. */
    async getSnapshot(snapshot: string, how: Stoppable = {}): Promise<Snapshot> {
        return await this.client.call("GET", `${this.#path}/snapshots/${encodeURIComponent(snapshot)}`, how) as unknown as Snapshot;
    }

    /** A new workspace that starts with its files, as they are now or were in a snapshot (id or name); its own changes are kept apart. */
    async fork(how: { id?: string; snapshot?: string } & Stoppable = {}): Promise<Workspace> {
        const made = how.snapshot === undefined ? await this.snapshot({ signal: how.signal }) : await this.getSnapshot(how.snapshot, how);
        return await this.client.createWorkspace({ id: how.id, fork: { workspace: this.id, snapshot: made.id }, signal: how.signal });
    }

    /** A plan by which the files become what they were in the snapshot (id or name). Nothing changes before it is applied. */
    async restoreSnapshot(snapshot: string, how: Stoppable = {}): Promise<Plan> {
        const path = `${this.#path}/snapshots/${encodeURIComponent(snapshot)}/restore`;
        return new Plan(this.client, await this.client.call("POST", path, { body: {}, wait: true, signal: how.signal }));
    }

    /** A plan that brings in what the fork has changed. Conflicts are refused, or decided for "ours" or "theirs", by path or all (`prefer`). */
    async merge(fork: string, how: { prefer?: Side; decided?: Record<string, Side> } & Stoppable = {}): Promise<Plan> {
        const body: Item = { fork };
        if (how.prefer !== undefined)
            body["prefer"] = how.prefer;
        if (how.decided !== undefined)
            body["decided"] = how.decided;
        return new Plan(this.client, await this.client.call("POST", `${this.#path}/merge`, { body, wait: true, signal: how.signal }));
    }

    /** What two versions have different: snapshots, "now", of a fork "base"; `to` may be of another workspace. */
    async compare(from: string, how: { to?: string; workspace?: string } & Stoppable = {}): Promise<VersionChange[]> {
        const body: Item = { from };
        if (how.to !== undefined)
            body["to"] = how.to;
        if (how.workspace !== undefined)
            body["workspace"] = how.workspace;
        const answer = await this.client.call("POST", `${this.#path}/compare`, { body, wait: true, signal: how.signal });
        return answer["changes"] as unknown as VersionChange[];
    }

    async deleteSnapshot(snapshot: string, how: Stoppable = {}): Promise<void> {
        await this.client.call("DELETE", `${this.#path}/snapshots/${encodeURIComponent(snapshot)}`, { wait: true, signal: how.signal });
    }

    /** Ends its sandbox; the next command wakes it. */
    async sleep(how: Stoppable = {}): Promise<void> {
        await this.client.call("POST", `${this.#path}/sleep`, { wait: true, signal: how.signal });
    }

    /** Removes what it has changed of its own system; it has to be asleep. */
    async resetSystem(how: Stoppable = {}): Promise<void> {
        await this.client.call("POST", `${this.#path}/reset-system`, { wait: true, signal: how.signal });
    }

    /** Into the trash; purge: for good. */
    async delete(how: { purge?: boolean } & Stoppable = {}): Promise<void> {
        await this.client.call("DELETE", this.#path, { params: { purge: how.purge ? 1 : undefined }, wait: true, signal: how.signal });
    }

    /** Its whole tree as a tar archive, in pieces; one that breaks off throws. */
    async * backup(how: Stoppable = {}): AsyncGenerator<Uint8Array, void, undefined> {
        yield* (await this.client.transport.open("GET", `${this.#path}/backup`, { wait: true, signal: how.signal })).body;
    }

    /** Unpacks such an archive over what is there. */
    async restore(archive: Content, how: Stoppable = {}): Promise<Result> {
        const headers = { "Content-Type": "application/x-tar" };
        const answer = await this.client.call("POST", `${this.#path}/restore`, { content: archive, headers, wait: true, signal: how.signal });
        return new Result(answer, bytesField(answer, "stdout") ?? Buffer.alloc(0), bytesField(answer, "stderr") ?? Buffer.alloc(0));
    }

    /** What was done in it; see Carrel.audit. */
    audit(how: Omit<AuditOptions, "workspace"> = {}): AsyncGenerator<AuditRecord, void, undefined> {
        return this.client.audit({ ...how, workspace: this.id });
    }

    /** What happens in it, as it happens. */
    events(how: Stoppable = {}): AsyncGenerator<CarrelEvent, void, undefined> {
        return this.client.events({ ...how, workspace: this.id });
    }
}
