// SPDX-License-Identifier: Apache-2.0
// Errors are classes: one for what can be done about it, the daemon's own code in `code`.
import type { Result } from "./models.js";

export interface ErrorFacts {
    code?: string;
    status?: number;
    details?: Record<string, unknown>;
    requestId?: string;
    cause?: unknown;
}

/** Anything that went wrong. `code` is for programs, the message for people. */
export class CarrelError extends Error {
    readonly code: string;
    readonly status: number;
    readonly details: Record<string, unknown>;
    readonly requestId: string;

    constructor(message: string, facts: ErrorFacts = {}) {
        super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
        this.name = new.target.name;
        this.code = facts.code ?? "";
        this.status = facts.status ?? 0;
        this.details = facts.details ?? {};
        this.requestId = facts.requestId ?? "";
    }
}

/** The daemon cannot be reached, or the connection broke and did not come back. */
export class ConnectionFailed extends CarrelError {}
/** The daemon did not answer in time. */
export class TimedOut extends ConnectionFailed {}
/** What answers at this address is no Carrel daemon. */
export class WrongServer extends CarrelError {}
/** The daemon and this client are of versions that do not understand each other. */
export class OldDaemon extends CarrelError {}
/** The request itself is wrong; the text says which field. */
export class InvalidRequest extends CarrelError {}
/** The key is missing, wrong or revoked. */
export class Unauthorized extends CarrelError {}
/** The key lacks the scope, or the policy does not allow it. */
export class Forbidden extends CarrelError {}
/** There is no such thing, or it is somebody else's. */
export class NotFound extends CarrelError {}
/** There is no such file in the workspace. */
export class FileNotFound extends NotFound {}
/** Something else is in the way: it exists, has changed, is busy. */
export class Conflict extends CarrelError {}
/** A quota or limit of the owner, the workspace or the host. */
export class LimitReached extends CarrelError {}
/** The plan cannot be carried out: it is refused, stale, or waits for an approval. */
export class PlanRefused extends Conflict {}
/** The daemon starts, stops or is overloaded; try again. */
export class Unavailable extends CarrelError {}
/** This host cannot do what was asked for; the text says how to change that. */
export class Unsupported extends CarrelError {}
/** An environment was not made; all is as it was. */
export class EnvFailed extends CarrelError {}

/** A command ended with another status than 0, and `check` asked for an error. */
export class CommandFailed extends CarrelError {
    readonly result: Result;

    constructor(result: Result) {
        const said = (result.stderr || result.stdout).trim().split("\n").at(-1);
        super(`the command ended with ${result.exitCode} (${result.reason})${said ? `: ${said}` : ""}`,
            { code: "command_failed", details: { exit_code: result.exitCode, reason: result.reason } });
        this.result = result;
    }
}

type Kind = new (message: string, facts?: ErrorFacts) => CarrelError;

const CODES: [Kind, string][] = [
    [InvalidRequest, "invalid_request invalid_path invalid_range invalid_pattern pattern_too_broad plan_invalid incomplete_body invalid_archive "
        + "method_not_allowed snapshot_refused"],
    [Unauthorized, "unauthorized"],
    [Forbidden, "forbidden permission_denied read_only reserved"],
    [NotFound, "not_found gone plan_not_found snapshot_not_found version_missing"],
    [FileNotFound, "file_not_found"],
    [LimitReached, "quota_exceeded too_large disk_full too_many too_many_watches plan_limit snapshot_limit"],
    [PlanRefused, "plan_stale plan_conflict plan_refused plan_open approval_required approval_refused"],
    [Unavailable, "unavailable port_timeout port_closed port_unreachable port_bad_answer store_failed"],
    [Unsupported, "unsupported rclone_missing"],
    [EnvFailed, "env_failed env_broken tools_missing"],
    [Conflict, "conflict already_exists is_directory not_a_directory not_a_file not_empty busy changed cross_device too_many_links string_not_found "
        + "multiple_occurrences not_a_text_file precondition_failed locked workspace_busy env_exists "
        + "snapshot_in_use is_a_fork merge_conflict no_changes store_taken store_has_copy not_mirrored"],
    [CarrelError, "internal not_recorded io_error"],
];
const BY_CODE = new Map(CODES.flatMap(([kind, codes]) => codes.split(" ").map((code) => [code, kind] as const)));
const BY_STATUS: Record<number, Kind> = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: NotFound, 412: Conflict,
    413: LimitReached, 422: InvalidRequest, 423: Conflict, 429: LimitReached, 503: Unavailable, 507: LimitReached,
};

/** The error that an answer of the daemon holds. */
export function errorOf(status: number, body: unknown, requestId = ""): CarrelError {
    const error = (body as { error?: { code?: unknown; message?: unknown; details?: Record<string, unknown> } } | null | undefined)?.error;
    if (typeof error !== "object" || error === null) {
        const kind = status === 502 || status === 503 || status === 504 ? Unavailable : WrongServer;
        return new kind(`the server answered ${status}, not as Carrel does; is the address right?`, { status, requestId, code: "wrong_server" });
    }
    const code = String(error.code ?? "");
    const kind = BY_CODE.get(code) ?? BY_STATUS[status] ?? CarrelError;
    return new kind(String(error.message ?? code), { code, status, details: error.details ?? {}, requestId });
}
