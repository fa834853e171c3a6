// SPDX-License-Identifier: Apache-2.0
import { setTimeout as sleep } from "node:timers/promises";
import { given, nameField, type Item } from "./bytes.js";
import type { Carrel } from "./client.js";
import { CarrelError, TimedOut } from "./errors.js";
import type { RunOptions } from "./exec.js";
import type { Stoppable } from "./files.js";
import type { Result } from "./models.js";
import type { Workspace } from "./workspace.js";

export type PlanState = "open" | "closed" | "pending" | "approved" | "rejected" | "expired" | "queued" | "applying" | "applied" | "undoing"
    | "undone" | "stale" | "failed" | "discarded";

const BUSY: PlanState[] = ["queued", "applying", "undoing"];

/** A list of file operations on a workspace, of which nothing is done until it is applied. */
export class Plan {
    readonly id: string;
    readonly workspace: string;
    /** The daemon's own object. */
    info: Item;
    readonly #client: Carrel;
    readonly #path: string;

    constructor(client: Carrel, info: Item) {
        this.#client = client;
        this.info = info;
        this.id = String(info.id);
        this.workspace = String(info.workspace);
        this.#path = `/v1/workspaces/${encodeURIComponent(this.workspace)}/plans/${encodeURIComponent(this.id)}`;
    }

    get state(): PlanState {
        return this.info.state as PlanState;
    }

    /** What is approved and applied is what has this hash. */
    get hash(): string | undefined {
        return (this.info.hash ?? undefined) as string | undefined;
    }

    async #ask(verb: string, body: Item | undefined, how: Stoppable): Promise<this> {
        this.info = await this.#client.call("POST", `${this.#path}/${verb}`, { body, wait: true, signal: how.signal });
        return this;
    }

    async refresh(how: Stoppable = {}): Promise<this> {
        this.info = await this.#client.call("GET", this.#path, how);
        return this;
    }

    /** Ends what still runs in it; what was done so far is the plan. */
    async close(how: Stoppable = {}): Promise<this> {
        return this.#ask("close", undefined, how);
    }

    /** What it would do, one object an operation. */
    async operations(how: Stoppable = {}): Promise<Item[]> {
        const items: Item[] = [];
        for await (const item of this.#client.pages(this.#path, "items", { params: { operations: 1 }, ...how })) items.push(item);
        return items;
    }

    /** What changes in texts. */
    async diff(path?: string, how: Stoppable = {}): Promise<string> {
        const answer = await this.#client.transport.send("GET", `${this.#path}/diff`, { params: { path }, wait: true, signal: how.signal });
        return answer.data.toString();
    }

    /** For a person: its state and every operation. */
    async show(how: Stoppable = {}): Promise<string> {
        const lines = [`plan ${this.id} of ${this.workspace}: ${this.state}`];
        for (const item of await this.operations(how)) {
            const source = "from" in item || "from_b64" in item ? `${nameField(item, "from")} -> ` : "";
            lines.push(`  ${String(item.op ?? "?").padEnd(8)} ${source}${nameField(item)}`);
        }
        return lines.join("\n");
    }

    /** check: a command that is to pass in the planned view. */
    async verify(check?: readonly string[], how: Stoppable = {}): Promise<this> {
        return this.#ask("verify", check ? { check } : {}, how);
    }

    /** Of what this object shows: a plan that has changed since is refused. */
    async approve(comment?: string, how: Stoppable = {}): Promise<this> {
        return this.#ask("approve", given({ hash: this.hash, comment }), how);
    }

    async reject(comment?: string, how: Stoppable = {}): Promise<this> {
        return this.#ask("reject", given({ hash: this.hash, comment }), how);
    }

    /** All of it or nothing; keepGoing: what can be done; background: in its turn, also after a restart. */
    async apply(how: { keepGoing?: boolean; background?: boolean } & Stoppable = {}): Promise<this> {
        return this.#ask("apply", given({ hash: this.hash, keep_going: how.keepGoing ?? false, async: how.background || undefined }), how);
    }

    /** Takes it out of the queue. */
    async cancel(how: Stoppable = {}): Promise<this> {
        return this.#ask("cancel", undefined, how);
    }

    /** Until it is neither queued, applied nor undone any more. */
    async wait(how: { seconds?: number } & Stoppable = {}): Promise<this> {
        const { seconds = 600, signal } = how;
        for (const until = Date.now() + seconds * 1000; BUSY.includes((await this.refresh({ signal })).state);) {
            if (Date.now() > until) throw new TimedOut(`plan ${this.id} is still ${this.state} after ${seconds} s`, { code: "timed_out" });
            await sleep(100, undefined, { signal });
        }
        return this;
    }

    /** Takes back what was applied, all of it or some paths; force: also what was changed since. */
    async undo(how: { paths?: readonly string[]; force?: boolean } & Stoppable = {}): Promise<this> {
        return this.#ask("undo", given({ paths: how.paths, force: how.force ?? false }), how);
    }

    async discard(how: Stoppable = {}): Promise<this> {
        this.info = await this.#client.call("DELETE", this.#path, { wait: true, signal: how.signal });
        return this;
    }
}

/** A plan that is being made: every command in it sees what the ones before it did, and the workspace stays as it is. With
 * `await using` one that was not closed is discarded at the end of the block. */
export class OpenPlan implements AsyncDisposable {
    plan: Plan | undefined;
    readonly #workspace: Workspace;

    constructor(workspace: Workspace) {
        this.#workspace = workspace;
    }

    async run(command: string | readonly string[], how: RunOptions = {}): Promise<Result> {
        const result = await this.#workspace.run(command, { ...how, check: false, mode: "plan", keepOpen: true, plan: this.plan?.id });
        if (!this.plan) {
            if (!result.plan) throw new CarrelError("the daemon made no plan of this command", { code: "plan_invalid" });
            this.plan = await this.#workspace.getPlan(result.plan.id);
        }
        return how.check ? result.check() : result;
    }

    /** What was done is the plan; nothing of it is in the workspace yet. */
    async close(): Promise<Plan> {
        if (!this.plan) throw new CarrelError("no command has run in this plan yet", { code: "plan_not_found" });
        return this.plan.state === "open" ? this.plan.close() : this.plan;
    }

    async discard(): Promise<void> {
        await this.plan?.discard();
    }

    async [Symbol.asyncDispose](): Promise<void> {
        if (this.plan?.state === "open") await this.plan.discard();
    }
}
