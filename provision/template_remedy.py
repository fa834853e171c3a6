# SPDX-License-Identifier: Apache-2.0
"""What to do when uv or bun has failed, by what it said."""

NETWORK = ("the package index was not reached: see that this host reaches it, and the settings package_index, "
           "package_registry and package_ca of the daemon")
OFFLINE = "not everything is in the shared cache yet: build once with the network, without --offline"
DISK = "the disk is full: make room, or raise the limit, and build again"
UNKNOWN = "the index has no package of that name: correct it in the template's file"
VERSION = "there is no such version: correct it in the template's file"
CONFLICT = "these versions do not go together: ask for others in the template's file"
WHEELS = ('there is no wheel of it for this system: ask for another version, or say "build": true to let its own code run'
          ' at the build')
HASHES = "what the index serves is not what the lock names: find out why before you use --update-lock"
FROZEN = "the lock does not fit the packages any more: build with --update-lock"
TOOLS = "uv and bun are missing: run 'carrel env setup'"

# The first that is found counts: causes before what follows from them.
KNOWN = (
    ("No space left on device", DISK),
    ("os error 28", DISK),
    ("os error 122", DISK),
    ("NoSpaceLeft", DISK),
    ("ENOSPC", DISK),
    ("network was disabled", OFFLINE),
    ("Network connectivity is disabled", OFFLINE),
    ("dns error", NETWORK),
    ("tcp connect error", NETWORK),
    ("client error (Connect)", NETWORK),
    ("operation timed out", NETWORK),
    ("invalid peer certificate", NETWORK),
    ("error sending request", NETWORK),
    ("Request failed after", NETWORK),
    ("ConnectionRefused", NETWORK),
    ("ConnectionClosed", NETWORK),
    ("FailedToOpenSocket", NETWORK),
    ("UNABLE_TO_", NETWORK),
    ("SELF_SIGNED_CERT", NETWORK),
    ("Hash mismatch", HASHES),
    ("IntegrityCheckFailed", HASHES),
    ("Integrity check failed", HASHES),
    ("no usable wheels", WHEELS),
    ("no wheels with a matching", WHEELS),
    ("no wheels are usable", WHEELS),
    ("building from source is disabled", WHEELS),
    ("was not found in the package registry", UNKNOWN),
    (" - 404", UNKNOWN),
    ("there is no version of", VERSION),
    ("there are no versions of", VERSION),
    ("No version matching", VERSION),
    ("requirements are unsatisfiable", CONFLICT),
    ("No solution found", CONFLICT),
    ("lockfile is frozen", FROZEN),
)
NOT_FOUND = 127


def remedy(output, exit_code):
    """None: there is none."""
    return next((then for said, then in KNOWN if said in output), TOOLS if exit_code == NOT_FOUND else None)
