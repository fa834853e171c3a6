// SPDX-License-Identifier: Apache-2.0
// Which operation of docs/openapi.json (OPENAPI names it) each public method asks for first, against operations.json: every method has its
// row, every operation has a method or a reason to have none, and each row is what the method does.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Carrel, CarrelError, Command, Env, Files, OpenPlan, Plan, Workspace } from "carrel";

const THIS = fileURLToPath(import.meta.url);
const PLAN = { id: "p1", workspace: "w", state: "closed", hash: "h" };
// What a method is called with that needs something.
const WITH = /** @type {Record<string, any[]>} */ ({
    "Carrel.workspace": ["w"], "Carrel.undelete": ["w"], "Carrel.createKey": [{ scopes: ["read"] }], "Carrel.revokeKey": ["k"], "Carrel.template": ["n"],
    "Carrel.createTemplate": [{ name: "n", workspace: "w" }], "Carrel.deleteTemplate": ["n"], "Workspace.update": [{ labels: {} }],
    "Workspace.restore": [""], "Workspace.run": ["true"], "Workspace.start": ["true"], "OpenPlan.run": ["true"], "Command.write": ["x"],
    "Command.signal": ["TERM"], "Command.resize": [80, 24], "Workspace.getPlan": ["p1"], "Workspace.submitPlan": [[]], "Workspace.openPort": [80],
    "Workspace.closePort": [80], "Files.write": ["/f", ""], "Files.append": ["/f", ""], "Files.upload": [THIS, "/f"], "Files.download": ["/f", "/none"],
    "Files.edit": ["/f", "a", "b"], "Files.mv": ["/f", "/g"], "Files.cp": ["/f", "/g"], "Files.chmod": ["/f", 0o644], "Files.symlink": ["/f", "g"],
    "Files.glob": ["*"], "Files.find": ["*"], "Files.grep": ["x"], "Files.readMany": [["/f"]], "Files.writeMany": [[["/f", ""]]], "Files.unpack": [""],
});

/** @param {any} value */
async function asked(value) {
    try {
        if (typeof value?.next === "function") await value.next();
        else await value;
    } catch (error) {
        if (!(error instanceof CarrelError)) throw error;
    }
}

test("every method makes the operation of its row, and every operation has a row", async () => {
    const document = JSON.parse(readFileSync(process.env.OPENAPI ?? new URL("../../../docs/openapi.json", import.meta.url), "utf8"));
    const rows = JSON.parse(readFileSync(new URL("operations.json", new URL("../", import.meta.url)), "utf8"));
    const operations = Object.entries(document.paths).flatMap(([path, methods]) => Object.entries(methods).filter(([method]) => method !== "parameters")
        .map(([method, one]) => ({ method: method.toUpperCase(), id: one.operationId,
            path: new RegExp(`^${path.replace(/\{path\}/g, ".*").replace(/\{\w+\}/g, "[^/]+")}$`) })));
    let first = /** @type {string | undefined} */ (undefined);
    let wantsVersion = false;
    const server = createServer((request, response) => {
        const path = (request.url ?? "").split("?")[0] ?? "";
        request.resume();
        const version = path === "/v1/version" && !wantsVersion;
        if (!version) first ??= operations.find((one) => one.method === request.method && one.path.test(path))?.id ?? `${request.method} ${path}`;
        const answer = JSON.stringify(version ? { version: "0", api: 1, api_oldest: 1 } : { error: { code: "not_found", message: "no such thing" } });
        response.writeHead(version ? 200 : 404, { "Content-Length": answer.length }).end(answer);
    });
    await new Promise((resolve) => { server.listen(0, "127.0.0.1", () => { resolve(undefined); }); });
    const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
    const client = new Carrel({ url: `http://127.0.0.1:${port}` });
    const workspace = new Workspace(client, { id: "w" });
    await client.version().catch(() => undefined); // so that it has met the daemon
    const make = /** @type {Record<string, () => any>} */ ({ Carrel: () => client, Workspace: () => workspace, Files: () => workspace.files,
        Env: () => workspace.env, Command: () => new Command(client, "/v1/workspaces/w", { id: "x1" }), Plan: () => new Plan(client, PLAN), OpenPlan: () => workspace.plan() });
    const does = /** @type {Record<string, string[]>} */ ({});
    const methods = new Set();
    for (const kind of [Carrel, Workspace, Files, Env, Command, Plan, OpenPlan]) {
        for (const name of Object.getOwnPropertyNames(kind.prototype)) {
            const what = `${kind.name}.${name}`;
            if (name === "constructor" || typeof Object.getOwnPropertyDescriptor(kind.prototype, name)?.value !== "function") continue;
            methods.add(what);
            if (rows.without_operation[what]) continue;
            first = undefined;
            wantsVersion = what === "Carrel.version";
            await asked(make[kind.name]?.()[name](...(WITH[what] ?? [])));
            (does[first ?? "nothing"] ??= []).push(what);
        }
    }
    client.close();
    server.close();
    const sorted = (/** @type {Record<string, string[]>} */ all) => Object.fromEntries(Object.entries(all).map(([id, list]) => [id, [...list].sort()]).sort());
    assert.deepEqual(sorted(does), sorted(rows.operations));
    assert.deepEqual(operations.map((one) => one.id).sort(), [...Object.keys(rows.operations), ...Object.keys(rows.not_for_clients)].sort());
    assert.deepEqual(Object.keys(rows.without_operation).filter((what) => !methods.has(what)), []);
});
