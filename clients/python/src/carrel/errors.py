# SPDX-License-Identifier: Apache-2.0
"""Errors are classes: one for what can be done about it, the daemon's own code in `.code`."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import Result


class CarrelError(Exception):
    """Anything that went wrong. `code` is for programs, the text for people."""

    def __init__(self, message: str, *, code: str = "", status: int = 0, details: dict[str, Any] | None = None,
                 request_id: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = details or {}
        self.request_id = request_id


class ConnectionFailed(CarrelError):
    """The daemon cannot be reached, or the connection broke and did not come back."""


class TimedOut(ConnectionFailed):
    """The daemon did not answer in time."""


class WrongServer(CarrelError):
    """What answers at this address is no Carrel daemon."""


class OldDaemon(CarrelError):
    """The daemon and this client are of versions that do not understand each other."""


class InvalidRequest(CarrelError):
    """The request itself is wrong; the text says which field."""


class Unauthorized(CarrelError):
    """The key is missing, wrong or revoked."""


class Forbidden(CarrelError):
    """The key lacks the scope, or the policy does not allow it."""


class NotFound(CarrelError):
    """There is no such thing, or it is somebody else's."""


class FileNotFound(NotFound, FileNotFoundError):
    """There is no such file in the workspace."""

    def __str__(self) -> str:  # not OSError's
        return str(self.args[0])


class Conflict(CarrelError):
    """Something else is in the way: it exists, has changed, is busy."""


class LimitReached(CarrelError):
    """A quota or limit of the owner, the workspace or the host."""


class PlanRefused(Conflict):
    """The plan cannot be carried out: it is refused, stale, or waits for an approval."""


class Unavailable(CarrelError):
    """The daemon starts, stops or is overloaded; try again."""


class Unsupported(CarrelError):
    """This host cannot do what was asked for; the text says how to change that."""


class EnvFailed(CarrelError):
    """An environment was not made; all is as it was."""


class CommandFailed(CarrelError):
    """A command ended with another status than 0, and check=True asked for an error."""

    def __init__(self, result: Result) -> None:
        said = (result.stderr or result.stdout).strip().splitlines()
        super().__init__(f"the command ended with {result.exit_code} ({result.reason}){': ' if said else ''}{said[-1] if said else ''}",
                         code="command_failed", details={"exit_code": result.exit_code, "reason": result.reason})
        self.result = result


BY_CODE: dict[str, type[CarrelError]] = {
    "invalid_request": InvalidRequest, "invalid_path": InvalidRequest, "invalid_range": InvalidRequest, "invalid_pattern": InvalidRequest,
    "pattern_too_broad": InvalidRequest, "plan_invalid": InvalidRequest, "unauthorized": Unauthorized, "forbidden": Forbidden,
    "permission_denied": Forbidden, "read_only": Forbidden, "reserved": Forbidden, "not_found": NotFound, "gone": NotFound,
    "plan_not_found": NotFound, "snapshot_not_found": NotFound, "file_not_found": FileNotFound, "quota_exceeded": LimitReached, "too_large": LimitReached,
    "disk_full": LimitReached, "too_many": LimitReached, "too_many_watches": LimitReached, "plan_limit": LimitReached,
    "incomplete_body": InvalidRequest, "invalid_archive": InvalidRequest, "method_not_allowed": InvalidRequest,
    "internal": CarrelError, "not_recorded": CarrelError, "io_error": CarrelError, "unsupported": Unsupported,
    "port_timeout": Unavailable, "port_closed": Unavailable, "port_unreachable": Unavailable, "port_bad_answer": Unavailable, "version_missing": NotFound, "env_failed": EnvFailed, "env_exists": Conflict,
    "env_broken": EnvFailed, "tools_missing": EnvFailed, "workspace_busy": Conflict, "conflict": Conflict, "already_exists": Conflict,
    "is_directory": Conflict, "not_a_directory": Conflict, "not_a_file": Conflict, "not_empty": Conflict, "busy": Conflict, "changed": Conflict,
    "cross_device": Conflict, "too_many_links": Conflict, "string_not_found": Conflict, "multiple_occurrences": Conflict,
    "not_a_text_file": Conflict, "precondition_failed": Conflict, "locked": Conflict,
    "plan_stale": PlanRefused, "plan_conflict": PlanRefused, "plan_refused": PlanRefused, "plan_open": PlanRefused,
    "approval_required": PlanRefused, "approval_refused": PlanRefused, "unavailable": Unavailable,
    "snapshot_refused": InvalidRequest, "snapshot_limit": LimitReached, "snapshot_in_use": Conflict, "is_a_fork": Conflict, "merge_conflict": Conflict, "no_changes": Conflict,
    "store_taken": Conflict, "store_has_copy": Conflict, "not_mirrored": Conflict, "rclone_missing": Unsupported, "store_failed": Unavailable,
}
BY_STATUS: dict[int, type[CarrelError]] = {400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: NotFound,
                                           412: Conflict, 413: LimitReached, 422: InvalidRequest, 423: Conflict, 429: LimitReached,
                                           503: Unavailable, 507: LimitReached}


API = 1  # of the daemon's interface, which this client was written for


def version_fits(at: str, status: int, body: Any) -> str:
    """What a daemon says of itself at /v1/version: its version, or the error that it is not one for us."""
    if status == 200 and isinstance(body, dict) and isinstance(body.get("api"), int) and isinstance(body.get("api_oldest"), int):
        if not body["api_oldest"] <= API <= body["api"]:
            older = body["api"] < API
            raise OldDaemon(f"the daemon at {at} is too {'old' if older else 'new'} for this client (it has version {body['api_oldest']} to {body['api']} "
                            f"of the interface, this is of {API}): upgrade {'the daemon' if older else 'the client'}", code="old_daemon")
        return str(body.get("version"))
    if status in (401, 404) and isinstance(body, dict) and isinstance(body.get("error"), dict):
        raise OldDaemon(f"the daemon at {at} is older than this client, it has no /v1/version: upgrade the daemon", code="old_daemon")
    if status >= 400 and isinstance(body, dict) and isinstance(body.get("error"), dict):
        raise from_answer(status, body)
    raise WrongServer(f"the server at {at} answered {status}, not as Carrel does; is the address right?", code="wrong_server", status=status)


def from_answer(status: int, body: Any, request_id: str = "") -> CarrelError:
    """The error that an answer of the daemon holds."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        other: type[CarrelError] = Unavailable if status in (502, 503, 504) else WrongServer
        return other(f"the server answered {status}, not as Carrel does; is the address right?", status=status, code="wrong_server")
    code = str(error.get("code", ""))
    kind = BY_CODE.get(code) or BY_STATUS.get(status, CarrelError)
    return kind(str(error.get("message", code)), code=code, status=status, details=error.get("details"), request_id=request_id)


def stream_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item of a stream as it is; or the error, when it is the daemon's last word: why the stream ends before its end."""
    if item.get("type") == "error" and isinstance(item.get("error"), dict):
        raise from_answer(0, item)
    return item
