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

const BY_CODE: Record<string, Kind> = {
    invalid_request: InvalidRequest, invalid_path: InvalidRequest, invalid_range: InvalidRequest, invalid_pattern: InvalidRequest,
    pattern_too_broad: InvalidRequest, plan_invalid: InvalidRequest, unauthorized: Unauthorized, forbidden: Forbidden,
    permission_denied: Forbidden, read_only: Forbidden, reserved: Forbidden, not_found: NotFound, gone: NotFound,
    plan_not_found: NotFound, file_not_found: FileNotFound, quota_exceeded: LimitReached, too_large: LimitReached,
    disk_full: LimitReached, too_many: LimitReached, too_many_watches: LimitReached, plan_limit: LimitReached,
    plan_stale: PlanRefused, plan_conflict: PlanRefused, plan_refused: PlanRefused, plan_open: PlanRefused,
    approval_required: PlanRefused, approval_refused: PlanRefused, unavailable: Unavailable,
};
const BY_STATUS: Record<number, Kind> = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: NotFound, 412: Conflict,
    413: LimitReached, 422: InvalidRequest, 423: Conflict, 429: LimitReached, 503: Unavailable, 507: LimitReached,
};

/** The error that an answer of the daemon holds. */
export function errorOf(status: number, body: unknown, requestId = ""): CarrelError {
    const error = (body as { error?: { code?: unknown; message?: unknown; details?: Record<string, unknown> } } | null | undefined)?.error;
    if (typeof error !== "object" || error === null) {
        const kind = BY_STATUS[status] ?? CarrelError;
        return new kind(`the daemon answered ${status}, not as Carrel does; is the address right?`, { status, requestId });
    }
    const code = String(error.code ?? "");
    const kind = (Object.hasOwn(BY_CODE, code) ? BY_CODE[code] : undefined) ?? BY_STATUS[status] ?? CarrelError;
    return new kind(String(error.message ?? code), { code, status, details: error.details ?? {}, requestId });
}
