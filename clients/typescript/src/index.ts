// SPDX-License-Identifier: Apache-2.0
/** Private, persistent desks for AI agents: the client of the Carrel daemon.
 *
 *     import { Carrel } from "carrel";
 *     const ws = await new Carrel().workspace("thread-1");
 *     await ws.files.write("/notes.txt", "hello");
 *     console.log((await ws.run("cat notes.txt")).stdout);
 */
export { bytesOfName, nameOfBytes, type Content, type Item, type Path } from "./bytes.js";
export { Carrel, type AuditOptions, type CarrelOptions, type WorkspaceOptions } from "./client.js";
export {
    CarrelError, CommandFailed, Conflict, ConnectionFailed, EnvFailed, FileNotFound, Forbidden, InvalidRequest, LimitReached, NotFound, OldDaemon,
    PlanRefused, TimedOut, Unauthorized, Unavailable, Unsupported, WrongServer,
} from "./errors.js";
export { Env } from "./env.js";
export { Command, type ExecOptions, type RunOptions, type StreamOptions } from "./exec.js";
export { Files, type GlobOptions, type GrepOptions, type Range, type Stoppable, type TransferOptions, type WriteOptions } from "./files.js";
export { Local, local, type LocalOptions } from "./local.js";
export {
    Output, Result, type AuditRecord, type CarrelEvent, type Change, type Denial, type Entry, type Found, type Key, type Match, type Page,
    type PlanBrief, type Port, type Side, type Snapshot, type Template, type VersionChange,
} from "./models.js";
export { OpenPlan, Plan, type PlanState } from "./plans.js";
export { Workspace } from "./workspace.js";
