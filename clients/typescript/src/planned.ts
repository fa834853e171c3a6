// SPDX-License-Identifier: Apache-2.0
// With which key a backend works, and who decides about what it has changed. With planned writes the agent has a key of its own, all of
// whose changes go into a plan; the daemon sees to that, not this client.
import { getConfig } from "@langchain/langgraph";
import type { Item } from "./bytes.js";
import { Carrel } from "./client.js";
import { CarrelError, InvalidRequest } from "./errors.js";
import type { Stoppable } from "./files.js";
import type { Plan } from "./plans.js";
import { Workspace } from "./workspace.js";

export interface DeskOptions extends Stoppable {
    client?: Carrel;
    url?: string;
    socket?: string;
    key?: string;
    writes?: "direct" | "plan";
    /** Who decides about plans; left out, the owner, with a key that is made. */
    person?: Carrel;
    /** The key that the agent works with; left out, one is made. */
    agentKey?: string;
}

/** A plan as LangChain's human-in-the-loop asks about a tool call, so that whatever shows those shows it. */
export interface Review {
    action_requests: { name: "apply_plan"; args: Item; description: string }[];
    review_configs: { action_name: "apply_plan"; allowed_decisions: ("approve" | "reject")[] }[];
}

/** What a person answers. */
export interface Decision {
    decisions: [{ type: "approve" | "reject"; message?: string }];
}

const MOST_SHOWN = 50_000; // characters of a description
const ASK_MOST = 100;
const WAITING = ["pending", "closed"] as const;

interface Sides {
    /** What the agent works with. */
    agent: Workspace;
    /** The same, with the key of whoever decides. */
    person: Workspace;
}

/** Of the LangGraph run in which this is called; undefined: in none, or in one without a thread. */
export function threadId(): string | undefined {
    const config = getConfig() as { configurable?: { thread_id?: unknown } } | undefined; // outside of a run there is none
    const id = config?.configurable?.thread_id;
    return id === undefined || id === null || id === "" ? undefined : String(id);
}

/** The desk that a call is for: the one that was named, or that of the LangGraph thread in which the call is made. */
export class Desks {
    readonly #named: string | Workspace | undefined;
    readonly #options: DeskOptions;
    readonly #client: Carrel;
    readonly #owns: boolean;
    readonly #made = new Map<string, Desk>();

    constructor(workspace: string | Workspace | undefined, options: DeskOptions) {
        const { writes, person, agentKey, client } = options;
        if (writes !== undefined && writes !== "plan" && writes !== "direct") throw new InvalidRequest(`writes: direct or plan, not '${String(writes)}'`);
        if (writes !== "plan" && (person || agentKey)) throw new InvalidRequest("person and agentKey are for writes: plan");
        const named = typeof workspace === "object" ? workspace.client : undefined;
        this.#named = workspace;
        this.#options = options;
        this.#client = client ?? named ?? new Carrel(options);
        this.#owns = !client && !named;
    }

    get id(): string | undefined {
        return typeof this.#named === "object" ? this.#named.id : this.#named ?? threadId();
    }

    here(): Desk {
        const id = this.id;
        if (!id) throw new InvalidRequest('no workspace: name one, or run with { configurable: { thread_id: "…" } }, whose id it then has');
        return this.of(id);
    }

    of(id: string): Desk {
        let desk = this.#made.get(id);
        if (!desk) {
            desk = new Desk(typeof this.#named === "object" && this.#named.id === id ? this.#named : id, this.#client, this.#options);
            this.#made.set(id, desk);
        }
        return desk;
    }

    /** Revokes the keys that were made here, and ends the connections. Plans and workspaces stay. */
    async close(): Promise<void> {
        for (const [id, desk] of this.#made) {
            await desk.close();
            this.#made.delete(id);
        }
        if (this.#owns) this.#client.close();
    }
}

export class Desk {
    readonly #named: string | Workspace;
    readonly #options: DeskOptions;
    readonly #client: Carrel;
    readonly #owned: Carrel[] = [];
    readonly #keys: string[] = [];
    #sides: Promise<Sides> | undefined;
    #asked: string | undefined;

    constructor(workspace: string | Workspace, client: Carrel, options: DeskOptions) {
        this.#named = workspace;
        this.#client = client;
        this.#options = options;
    }

    async workspace(): Promise<Workspace> {
        return (await this.#both()).agent;
    }

    /** The same, with the key of whoever decides. */
    async person(): Promise<Workspace> {
        return (await this.#both()).person;
    }

    #both(): Promise<Sides> {
        if (!this.#sides) {
            this.#sides = this.#options.writes === "plan" ? this.#planned() : this.#direct();
            this.#sides.catch(() => { this.#sides = undefined; }); // the next call tries again
        }
        return this.#sides;
    }

    async #direct(): Promise<Sides> {
        const named = this.#named;
        const workspace = typeof named === "string" ? await this.#client.workspace(named, { signal: this.#options.signal }) : named;
        return { agent: workspace, person: workspace };
    }

    async #planned(): Promise<Sides> {
        const { signal, person, agentKey } = this.#options;
        const id = typeof this.#named === "string" ? this.#named : this.#named.id;
        const workspace = await this.#client.workspace(id, { policy: { writes: "plan" }, signal });
        const policy = (workspace.info.policy ?? {}) as Item;
        if (policy.writes !== "plan") await workspace.update({ policy: { ...policy, writes: "plan" } }, { signal });
        // Over the socket without a key nobody would be on record as the one who approved.
        const decider = person ?? (this.#client.transport.where.key ? this.#client : this.#with(await this.#key(workspace, "owner")));
        const agent = this.#with(agentKey ?? await this.#key(workspace, "agent"));
        return { agent: await agent.workspace(id, { create: false, signal }), person: await decider.workspace(id, { create: false, signal }) };
    }

    async #key(workspace: Workspace, scope: "owner" | "agent"): Promise<string> {
        const made = await this.#client.createKey({ scopes: [scope], owner: String(workspace.info.owner), name: `carrel for TypeScript, ${scope}`,
            ...(scope === "agent" ? { workspaces: [workspace.id] } : {}) });
        this.#keys.push(made.id);
        return made.key;
    }

    #with(key: string): Carrel {
        const { socket, url } = this.#client.transport.where;
        const client = new Carrel({ ...(socket ? { socket } : { url }), key });
        this.#owned.push(client);
        return client;
    }

    /** What the agent has changed so far, as a plan that a person can look at; undefined: nothing. */
    async closePlan(): Promise<Plan | undefined> {
        const { agent, person } = await this.#both();
        for (const plan of await agent.plans({ state: "open" })) {
            if (!plan.info.shared) continue;
            try {
                await plan.close();
            } catch (error) {
                if (error instanceof CarrelError && error.code === "forbidden") continue; // another agent's
                throw error;
            }
            if (plan.info.operations) return person.getPlan(plan.id);
            await plan.discard();
        }
        return undefined;
    }

    async review(interrupt: (value: Review) => unknown, id?: string): Promise<Plan | undefined> {
        if (this.#options.writes !== "plan") throw new InvalidRequest("review is for writes: plan; otherwise there is nothing to approve");
        const plan = id === undefined ? await this.#waiting() ?? await this.closePlan() : await this.#waitingPlan(id);
        if (!plan) return undefined;
        this.#asked = plan.id;
        const { yes, why } = ask(interrupt, await reviewOf(plan));
        this.#asked = undefined;
        if (!yes) return plan.state === "closed" ? plan.discard() : plan.reject(why); // closed: it needs nobody's approval
        if (plan.state === "pending") await plan.approve(why);
        return plan.apply();
    }

    /** That plan, unless it is decided already. */
    async #waitingPlan(id: string): Promise<Plan | undefined> {
        const plan = await (await this.person()).getPlan(id);
        return (WAITING as readonly string[]).includes(plan.state) ? plan : undefined;
    }

    /** What a person was asked about, here or by a process before this one, and has not been decided. */
    async #waiting(): Promise<Plan | undefined> {
        const person = await this.person();
        if (this.#asked) {
            const plan = await this.#waitingPlan(this.#asked);
            if (plan) return plan;
            this.#asked = undefined;
        }
        const lists = await Promise.all(WAITING.map((state) => person.plans({ state })));
        const those = lists.flat().filter((one) => one.info.shared && one.info.operations);
        // An answer that is there already was given to one of them, and nothing says to which.
        if (those.length > 1) {
            throw new InvalidRequest(`several plans of ${person.id} wait for a person (${those.map((one) => one.id).join(", ")}): `
                + "give review the id of the one that closePlan gave");
        }
        return those[0]?.refresh();
    }

    /** Revokes the keys that were made here, and ends the connections. Plans and workspaces stay. */
    async close(): Promise<void> {
        await this.#sides?.catch(() => undefined);
        for (const key of this.#keys.splice(0)) await this.#client.revokeKey(key);
        for (const client of this.#owned) client.close();
    }
}

async function reviewOf(plan: Plan): Promise<Review> {
    const counts = (plan.info.counts ?? {}) as Record<string, number>;
    let description = await plan.show();
    if (counts.create || counts.write) description += `\n\n${await plan.diff()}`;
    if (description.length > MOST_SHOWN) {
        description = `${description.slice(0, MOST_SHOWN)}\n… all of it: carrel plan show ${plan.workspace} ${plan.id} --diff`;
    }
    const args = { workspace: plan.workspace, plan: plan.id, hash: plan.hash, operations: plan.info.operations, counts, verdict: plan.info.verdict };
    return { action_requests: [{ name: "apply_plan", args, description }],
        review_configs: [{ action_name: "apply_plan", allowed_decisions: ["approve", "reject"] }] };
}

/** The first time interrupt throws: the graph waits for a person. Anything but a plain yes or no is asked again, as LangGraph keeps each
 * answer, and in the end an error: nothing is applied by mistake. */
function ask(interrupt: (value: Review) => unknown, review: Review): { yes: boolean; why: string | undefined } {
    for (let times = 0; times < ASK_MOST; times++) {
        const decisions = (interrupt(review) as { decisions?: unknown } | null | undefined)?.decisions;
        const one = (Array.isArray(decisions) && decisions.length === 1 ? decisions[0] : undefined) as { type?: unknown; message?: unknown } | undefined;
        if (one?.type === "approve" || one?.type === "reject") return { yes: one.type === "approve", why: one.message ? String(one.message) : undefined };
    }
    throw new InvalidRequest('resume with { decisions: [{ type: "approve" }] }, or "reject" and a message');
}
