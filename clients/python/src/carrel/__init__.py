# SPDX-License-Identifier: Apache-2.0
"""Private, persistent desks for AI agents: the client of the Carrel daemon.

    from carrel import Carrel
    ws = Carrel().workspace("thread-1")
    ws.files.write("/notes.txt", "hello")
    print(ws.run("cat notes.txt").stdout)
"""
from ._async.client import AsyncCarrel
from ._async.exec import AsyncCommand
from ._async.plans import AsyncPlan
from ._async.workspace import AsyncWorkspace
from ._sync.client import Carrel
from ._sync.exec import Command
from ._sync.plans import Plan
from ._sync.workspace import Workspace
from .errors import (CarrelError, CommandFailed, Conflict, ConnectionFailed, EnvFailed, FileNotFound, Forbidden, InvalidRequest, LimitReached, NotFound,
                     OldDaemon, PlanRefused, TimedOut, Unauthorized, Unavailable, Unsupported, WrongServer)
from .local import Local
from .models import Change, Diff, Entry, Match, Operations, Output, Page, Result

__version__ = "0.1.0"
__all__ = ["AsyncCarrel", "AsyncCommand", "AsyncPlan", "AsyncWorkspace", "Carrel", "CarrelError", "Change", "Command", "CommandFailed", "Conflict",
           "ConnectionFailed", "Diff", "Entry", "EnvFailed", "FileNotFound", "Forbidden", "InvalidRequest", "LimitReached", "Local", "Match",
           "NotFound", "OldDaemon", "Operations", "Output", "Page", "Plan", "PlanRefused", "Result", "TimedOut", "Unauthorized", "Unavailable",
           "Unsupported", "Workspace", "WrongServer"]
