// SPDX-License-Identifier: Apache-2.0
import { setTimeout as sleep } from "node:timers/promises";
import { given, type Item } from "./bytes.js";
import { Conflict, ConnectionFailed, NotFound, Unavailable } from "./errors.js";
import type { Stoppable } from "./files.js";
import { find } from "./find.js";
import { itemOf, lines, listIn, Transport, type Answer, type Request } from "./http.js";
import type { AuditRecord, CarrelEvent, Key, Template } from "./models.js";
import { Plan, type PlanState } from "./plans.js";
import { Workspace } from "./workspace.js";

export interface CarrelOptions {
    /** An address such as http://127.0.0.1:7070, or the path of the daemon's Unix socket. */
    url?: string;
    /** The path of the daemon's Unix socket. */
    socket?: string;
    key?: string;
    /** Seconds that an answer may take, of calls that take no time of their own. */
    timeout?: number;
}

export interface WorkspaceOptions extends Stoppable {
    /** What it stands on: Workspace.fork. */
    fork?: { workspace: string; snapshot: string };
    /** false: one that is missing is an error. */
    create?: boolean;
    /** What one that is made gets. */
    policy?: Item;
    template?: string;
    labels?: Record<string, string>;
    links?: Item;
    owner?: string;
    python?: string | boolean;
    node?: boolean;
}

export interface AuditOptions extends Stoppable {
    /** Also the records that come. */
    follow?: boolean;
    workspace?: string;
    /** A final * stands for any end. */
    operation?: string;
    actor?: string;
    result?: string;
    /** Only records with a larger number. */
    after?: number;
    /** Only at or after this time, or before it, in UTC. */
    from?: string;
    to?: string;
    /** Only up to this number. */
    until?: number;
}

const GIVE_UP_AFTER = 60_000;

/** A connection to the daemon. Without url and socket, CARREL_URL, CARREL_SOCKET and CARREL_KEY say, as on the command line, else it is
 * the socket below the default state directory. */
export class Carrel {
    readonly transport: Transport;

    constructor(options: CarrelOptions = {}) {
        this.transport = new Transport(find(options), (options.timeout ?? 90) * 1000);
    }

    /** Closes its idle connections. A program ends without it, too. */
    close(): void {
        this.transport.close();
    }

    // --- how every call is made ---

    call(method: string, path: string, how: Request = {}): Promise<Item> {
        return this.transport.call(method, path, how);
    }

    /** JSON objects, one a line, as they come. */
    async * lines(method: string, path: string, how: Request = {}): AsyncGenerator<Item, void, undefined> {
        yield* this.items(await this.transport.open(method, path, { ...how, stream: true }));
    }

    async * items(answer: Answer): AsyncGenerator<Item, void, undefined> {
        for await (const line of lines(answer.body)) if (line.length) yield itemOf(line);
    }

    /** The items of a list that comes in pages. */
    async * pages(path: string, member: string, how: Request = {}): AsyncGenerator<Item, void, undefined> {
        let cursor: unknown;
        do {
            const answer = await this.call("GET", path, { ...how, params: { ...how.params, cursor: cursor as string | undefined } });
            yield* listIn(answer, member);
            cursor = answer.next;
        } while (cursor);
    }

    async all(path: string, member: string, how: Request = {}): Promise<Item[]> {
        const items: Item[] = [];
        for await (const item of this.pages(path, member, how)) items.push(item);
        return items;
    }

    // --- workspaces ---

    /** The workspace of that id, made when it is missing. */
    async workspace(id: string, how: WorkspaceOptions = {}): Promise<Workspace> {
        const { create, signal, ...wanted } = how;
        const path = `/v1/workspaces/${encodeURIComponent(id)}`;
        try {
            return new Workspace(this, await this.call("GET", path, { signal }));
        } catch (error) {
            if (create === false || !(error instanceof NotFound)) throw error;
        }
        try {
            return await this.createWorkspace({ ...wanted, id, signal });
        } catch (error) {
            if (!(error instanceof Conflict)) throw error;
            // Another client was faster; if it is somebody else's, this says that it is not ours.
            return new Workspace(this, await this.call("GET", path, { signal }).catch(() => { throw error; }));
        }
    }

    /** A new one; without an id the daemon chooses one. */
    async createWorkspace(how: Omit<WorkspaceOptions, "create"> & { id?: string } = {}): Promise<Workspace> {
        const { signal, ...wanted } = how;
        return new Workspace(this, await this.call("POST", "/v1/workspaces", { body: given(wanted), wait: true, signal }));
    }

    /** Out of the trash, with its tree as it was. */
    async undelete(id: string, how: Stoppable = {}): Promise<Workspace> {
        return new Workspace(this, await this.call("POST", `/v1/workspaces/${encodeURIComponent(id)}/undelete`, { wait: true, signal: how.signal }));
    }

    /** Directories that lie in a bucket already become workspaces, where they are; for an administrator's key. */
    async adopt(how: { path?: string; owner?: string; dryRun?: boolean } & Stoppable = {}): Promise<Item> {
        const body = given({ path: how.path, owner: how.owner, dry_run: how.dryRun });
        return this.call("POST", "/v1/adopt", { body, wait: true, signal: how.signal });
    }

    async workspaces(how: { owner?: string; deleted?: boolean } & Stoppable = {}): Promise<Workspace[]> {
        const params = { owner: how.owner, deleted: how.deleted ? 1 : undefined };
        return (await this.all("/v1/workspaces", "workspaces", { params, signal: how.signal })).map((item) => new Workspace(this, item));
    }

    // --- plans of all workspaces, keys, templates, the record ---

    /** Plans of all workspaces that this key may see, newest first; state pending: those that wait for a person. */
    async plans(how: { state?: PlanState } & Stoppable = {}): Promise<Plan[]> {
        return (await this.all("/v1/plans", "plans", { params: { state: how.state }, signal: how.signal })).map((item) => new Plan(this, item));
    }

    async keys(how: Stoppable = {}): Promise<Key[]> {
        return await this.all("/v1/keys", "keys", how) as unknown as Key[];
    }

    /** A new key; its secret is in the member `key`, once. */
    async createKey(wanted: { scopes: string[]; owner?: string; workspaces?: string[]; name?: string; template?: string; policy?: Item },
        how: Stoppable = {}): Promise<Key & { key: string }> {
        return await this.call("POST", "/v1/keys", { body: given(wanted), signal: how.signal }) as unknown as Key & { key: string };
    }

    async revokeKey(id: string, how: Stoppable = {}): Promise<void> {
        await this.call("DELETE", `/v1/keys/${encodeURIComponent(id)}`, how);
    }

    async templates(how: Stoppable = {}): Promise<Template[]> {
        return await this.all("/v1/templates", "templates", how) as unknown as Template[];
    }

    async template(name: string, how: Stoppable = {}): Promise<Template> {
        return await this.call("GET", `/v1/templates/${encodeURIComponent(name)}`, how) as unknown as Template;
    }

    /** Makes a template of a workspace, which is then no more. */
    async createTemplate(wanted: { name: string; workspace: string; spec?: Item; shareCache?: boolean }, how: Stoppable = {}): Promise<Template> {
        const { shareCache, ...rest } = wanted;
        const body = given({ ...rest, share_cache: shareCache });
        return await this.call("POST", "/v1/templates", { body, wait: true, signal: how.signal }) as unknown as Template;
    }

    async deleteTemplate(name: string, how: Stoppable = {}): Promise<void> {
        await this.call("DELETE", `/v1/templates/${encodeURIComponent(name)}`, { wait: true, signal: how.signal });
    }

    /** Records, oldest first. One that follows goes on where it was when the connection breaks. */
    async * audit(how: AuditOptions = {}): AsyncGenerator<AuditRecord, void, undefined> {
        const { follow, signal, ...filters } = how;
        let after: unknown = filters.after;
        if (!follow) {
            for (;;) {
                const answer = await this.call("GET", "/v1/audit", { params: { ...filters, after: after as number }, signal });
                yield* listIn(answer, "records") as unknown as AuditRecord[];
                if (answer.next === null || answer.next === undefined || answer.next === after) return;
                after = answer.next;
            }
        }
        for (let aloneSince = 0; ;) {
            try {
                const params = { ...filters, after: after as number, follow: 1 };
                for await (const item of this.lines("GET", "/v1/audit", { params, signal })) {
                    aloneSince = 0;
                    after = item.seq;
                    yield item as unknown as AuditRecord;
                }
            } catch (error) {
                aloneSince ||= Date.now();
                if (!(error instanceof ConnectionFailed || error instanceof Unavailable) || Date.now() - aloneSince > GIVE_UP_AFTER) throw error;
            }
            await sleep(200, undefined, { signal });
        }
    }

    /** What happens, as it happens. */
    async * events(how: { workspace?: string } & Stoppable = {}): AsyncGenerator<CarrelEvent, void, undefined> {
        const answer = await this.transport.open("GET", "/v1/events", { params: { workspace: how.workspace }, stream: true, signal: how.signal });
        for await (const line of lines(answer.body)) {
            if (line.subarray(0, 5).toString("latin1") === "data:") yield itemOf(line.subarray(5)) as unknown as CarrelEvent;
        }
        throw this.transport.unreachable(new Error("the events ended"));
    }

    async health(how: Stoppable = {}): Promise<Item> {
        return this.call("GET", "/healthz", how);
    }

    /** Whether it takes requests; while it does not, this throws Unavailable. */
    async ready(how: Stoppable = {}): Promise<Item> {
        return this.call("GET", "/readyz", how);
    }

    /** Counters, as Prometheus reads them. */
    async metrics(how: Stoppable = {}): Promise<string> {
        return (await this.transport.send("GET", "/metrics", how)).data.toString();
    }

    /** What the daemon counts; for an administrator's key. */
    async host(how: Stoppable = {}): Promise<Item> {
        return this.call("GET", "/v1/host", how);
    }

    /** Of the daemon, and of its interface. Needs no key; a client asks by itself, before its first call. */
    async version(how: Stoppable = {}): Promise<{ version: string; api: number; api_oldest: number }> {
        return await this.call("GET", "/v1/version", how) as unknown as { version: string; api: number; api_oldest: number };
    }
}
