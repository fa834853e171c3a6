// SPDX-License-Identifier: Apache-2.0
// With which key a backend works, and who decides about what it has changed. With planned writes the agent has a key of its own, all of
// whose changes go into a plan; the daemon sees to that, not this client.
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

export class Desk {
    readonly #named: string | Workspace;
    readonly #options: DeskOptions;
    readonly #client: Carrel;
    readonly #owned: Carrel[] = [];
    readonly #keys: string[] = [];
    #sides: Promise<Sides> | undefined;
    #asked: string | undefined;

    constructor(workspace: string | Workspace, options: DeskOptions) {
        const { writes, person, agentKey, client } = options;
        if (writes !== undefined && writes !== "plan" && writes !== "direct") throw new InvalidRequest(`writes: direct or plan, not '${String(writes)}'`);
        if (writes !== "plan" && (person || agentKey)) throw new InvalidRequest("person and agentKey are for writes: plan");
        this.#named = workspace;
        this.#options = options;
        const named = typeof workspace === "string" ? undefined : workspace.client;
        this.#client = client ?? named ?? new Carrel(options);
        if (!client && !named) this.#owned.push(this.#client);
    }

    async workspace(): Promise<Workspace> {
        return (await this.#both()).agent;
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

    async review(interrupt: (value: Review) => unknown): Promise<Plan | undefined> {
        if (this.#options.writes !== "plan") throw new InvalidRequest("review is for writes: plan; otherwise there is nothing to approve");
        const plan = await this.#waiting() ?? await this.closePlan();
        if (!plan) return undefined;
        this.#asked = plan.id;
        const { yes, why } = ask(interrupt, await reviewOf(plan));
        this.#asked = undefined;
        if (!yes) return plan.state === "closed" ? plan.discard() : plan.reject(why); // closed: it needs nobody's approval
        if (plan.state === "pending") await plan.approve(why);
        return plan.apply();
    }

    /** What a person was asked about, here or by a process before this one, and has not been decided. */
    async #waiting(): Promise<Plan | undefined> {
        const { person } = await this.#both();
        if (this.#asked) {
            const plan = await person.getPlan(this.#asked);
            if ((WAITING as readonly string[]).includes(plan.state)) return plan;
            this.#asked = undefined;
        }
        for (const state of WAITING) {
            const plan = (await person.plans({ state })).find((one) => one.info.shared && one.info.operations);
            if (plan) return plan.refresh();
        }
        return undefined;
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
