# SPDX-License-Identifier: Apache-2.0
"""What the figures are held against. `why` is what is known about a mark that is missed; it is printed only then."""

import dataclasses

MET, MISSED, NOISY, UNKNOWN = "met", "MISSED", "too noisy", "not measured"


@dataclasses.dataclass
class Mark:
    what: str
    bound: str  # in words
    part: str
    table: str  # {} stands for the identity
    row: str
    key: str
    most: float = None  # the value must not be above
    least: float = None  # ... or below; of its inverse, see inverse
    inverse: bool = False
    why: str = ""


# Profiles: perf over enginebench, and bench/phases.
NO_TIME_TO_PREPARE = (
    "back to back the pool has no time of its own: it must make one sandbox for each run, and that takes more of two "
    "processors than 2.5 bare starts last. Of what a sandbox adds to the cpu time a fifth is its network namespace "
    "(made, and taken down by the kernel's threads), a tenth the end of pid 1; the rest is spread over some 400 system "
    "calls. Tried: all of the frame ahead, mounts taken down by the pool's thread, the pool resting "
    "while runs come, no copy of memory for the id map's helper, no openat2 in the frame, nothing zeroed that is not used; "
    "not tried: pid 1 forked from one that is exec'd already")
AT_THE_MARK = ("2.3 to 2.7 from run to run, of 20 starts each: workspace checks, ten moved mounts, the drop of privileges, the "
               "filter and the end of the namespaces are what cannot be prepared without the tenant's tree")
FILTERED = ("under any filter a system call takes the kernel's slower way in, some 50 ns, which shows in small ones; the rest "
            "differs from run to run")
CHECKED_OPEN = ("creating runs the filter, which looks at the mode (set-id bits), and the id map of the workspace's mount: "
                "about 0.1 µs a call")
ENGINE = "fresh sandbox in the engine, pool of 4, against a bare spawn: {}"
RUN = "`carrel run -- true` against bubblewrap with the same mounts: {}"
START = ("of a run's processor time, as traced: the namespaces a tenth (the network's most of it), the two execs and what true does itself a "
         "fifth, 61 mounts an eighth, the filter a fortieth; the line it replaces has 19 mounts, no filter, no files of its own in /proc and /etc "
         "and no map of ids. Of its wall clock on a busy machine, taking the host's root away was a tenth as root and a quarter as an ordinary "
         "user: it waits for the kernel's RCU, 1.3 and 3.2 ms, and a child does it now beside the rest (back to back 0.57 and 0.60 × the line's "
         "time, without it 0.81 and 0.86, at a load of 20; 150 ms apart it loses some of that where the child waits for a processor, 0.83 to 1.01, "
         "without 0.70 to 0.82). Directories of /etc for Java and others looked through by their names only (root: 4 %). Tried before: the end of "
         "namespaces not waited for (6 to 12 %), paths and mount(2) instead of descriptors in the frame (9 %), pid 1 first and the rest beside it "
         "(2 %); without gain: one reply instead of two, mounts held by the kernel's collector of sockets; not tried: the network namespace made "
         "beside the frame")
SEEDS = "`carrel run -- true` against the bubblewrap line it replaces: {}"
TIGHT, SPACED = "back to back", "300 ms apart"
EXEC = "exec of `true` in a live sandbox through HTTP against a bare spawn: {}"
FIRST = "first exec on a sleeping workspace through HTTP against a bare spawn: {}"
HOPS = ("client, front, broker, keeper and back are seven wake-ups where a bare start has two. Of a live command's 0.85 ms back to back (bare: "
        "0.62) the command itself takes 0.6; front and broker use 0.12 and 0.13 ms of processor time (0.15 and 0.19 when ends waited for the "
        "disk), spread flat: more than half of it the kernel's sockets, pipes and files, a tenth JSON, a twentieth the database. What it took: one "
        "row instead of two and no file without output, ends told before their record is on disk (0.2 ms), start, end and that nothing is left in "
        "one message, pipes that are not watched for so short a time (0.25 ms). Tried: a segment of the record that is written ahead (its sync takes "
        "as long), output pipes held open by the keeper (no gain), all on one processor (as long)")
POOLED = "a sandbox is taken from the pool, gets its tree and makes a keeper first; then as for a live one: " + HOPS
TWO_COPIES = ("each byte goes into the spool and out of it again before it is sent, and half of the front's time is the file system's for "
              "pages of the spool; tried: a pipe of 1 MiB once one is full; sendfile (less copied, but a reference for each page: no "
              "faster), larger and smaller pieces, more or less taken at once. What is kept of each command, up to 64 MiB, is memory taken "
              "anew: in a virtual machine whose host takes free memory back, that costs up to twice as much as the stream itself")
STAT_EACH = ("a call of stat for each entry, and reading the directory, take the kernel about 0.13 ms for 100, a sixth of a bare start; the "
             "request itself takes as long as one stat over HTTP, and the rest is 17 KB of JSON, made and sent twice. Tried: the front looks "
             "for the answer without going to sleep (stat a quarter faster, this a fifth slower: the two share a core)")
NAMES = ("reading a directory of 100 names takes the kernel 0.03 to 0.04 ms on ext4, which sorts them into a tree of its own each time, and "
         "the server 0.015 ms to put in order and write out; the request itself takes as long as one stat over HTTP")
FIRST_LOOK = ("the broker is asked, a sleeping reader enters the tree, and back to back the next one is made meanwhile: two more processes are woken "
              "than when the workspace is awake")
SAME_DISK = ("the line of the record goes to the same disk while the file is written: 1.3 to 1.6 from run to run; tried: the file server asked "
             "before the record, and the record only before the end of the body (1 to 5 %, which loses the record of what is broken off)")
DISK_NOISE = "1.0 to 1.2 from run to run: two daemons in turns, whose syncs take as long as the disk lets them"
LAYERS = ("a live workspace on a template has an overlay for each of Python's, Node's and the two caches' directories, and every fork of the "
          "broker copies the descriptors of all live ones")

MARKS = [
    Mark(ENGINE.format(TIGHT), "≤ 2.5 ×", "starts", "{}-tight", "pool", "vs_bare", most=2.5,
         why=NO_TIME_TO_PREPARE),
    Mark(ENGINE.format(SPACED), "≤ 2.5 ×", "starts", "{}-spaced", "pool", "vs_bare", most=2.5,
         why=AT_THE_MARK),
    Mark(RUN.format(TIGHT), "≥ 1.5 × as fast", "starts", "{}-tight", "carrel", "vs_bwrap", least=1.5, inverse=True),
    Mark(RUN.format(SPACED), "≥ 1.5 × as fast", "starts", "{}-spaced", "carrel", "vs_bwrap", least=1.5, inverse=True),
    Mark(SEEDS.format(TIGHT), "≥ 1.1 × as fast", "starts", "{}-tight", "carrel", "vs_seeds", least=1.1, inverse=True,
         why=START),
    Mark(SEEDS.format(SPACED), "≥ 1.1 × as fast", "starts", "{}-spaced", "carrel", "vs_seeds", least=1.1, inverse=True,
         why=START),
    Mark("start in the engine, pool of 4, from 1 to 500 live sandboxes", "≤ 1.5 ×", "live", "{}-growth", "500", "x_pool",
         most=1.5),
    Mark("start in the engine, nothing prepared, from 1 to 500 live sandboxes", "≤ 1.5 ×", "live", "{}-growth", "500",
         "x_engine", most=1.5),
    Mark("`carrel run`, from 1 to 500 live sandboxes", "≤ 1.5 ×", "live", "{}-growth", "500", "x_carrel", most=1.5),
    Mark("memory of a live sandbox and the command in it, of 500", "≤ 1 MiB", "live", "{}-memory", "engine-500",
         "each_mib", most=1.0),
    *(Mark(f"file I/O inside: {what}", "1.0 × native, within noise", "files", "{}-files", row, "x_carrel", most=1.0,
           why=CHECKED_OPEN if row == "create" else FILTERED)
      for row, what in (("read-small", "small reads"), ("write-small", "small writes"), ("write-durable", "durable writes"),
                        ("read-large", "large reads"), ("write-large", "large writes"), ("create", "create"),
                        ("stat", "stat"), ("rename", "rename"), ("unlink", "unlink"))),
    Mark("file I/O inside: git status in a big tree", "1.0 × native, within noise", "files", "{}-git", "time", "x_carrel",
         most=1.0),
    *(Mark(f"system call whose arguments the filter reads: {call}", "≤ 2.5 × native", "calls", "{}-calls", call,
           "x_carrel", most=2.5) for call in ("ioctl", "open+close")),
    *(Mark(f"`carrel run -- true` beside {what}", "≤ 3 × alone", "neighbours", "{}-neighbours", row, "vs_alone", most=3.0)
      for row, what in (("fork", "a fork bomb"), ("threads", "a thread bomb"), ("memory", "a memory bomb"),
                        ("tmpfs", "a bomb on tmpfs"), ("disk", "a disk filler"), ("files", "a filler of empty files"),
                        ("print", "an endless printer"))),
    *(Mark(EXEC.format(words), f"≤ {most} ×", "daemon", "{}-" + mode, "live", "vs_bare", most=most, why=HOPS)
      for mode, words, most in (("tight", TIGHT, 1.65), ("spaced", SPACED, 1.8))),
    *(Mark(FIRST.format(words), "≤ 3.5 ×", "daemon", "{}-" + mode, "asleep", "vs_bare", most=3.5,
           why=POOLED)
      for mode, words in (("tight", TIGHT), ("spaced", SPACED))),
    Mark("raw stream of a command's output to a client against a plain pipe", "≥ 0.5 ×", "daemon", "{}-stream", "raw",
         "vs_pipe", least=0.5, why=TWO_COPIES),
    *(Mark(f"{what} through HTTP against a bare spawn", "≤ 0.3 ×", "filesapi", "{}-calls", row, "vs_bare", most=0.3,
           why={"ls-brief": NAMES, "ls": STAT_EACH}.get(row, ""))
      for row, what in (("read", "4 KiB of a file"), ("stat", "stat of a file"), ("ls-brief", "list of 100 entries, names and types,"),
                        ("ls", "list of 100 entries, all facts,"))),
    Mark("4 KiB of a file of a sleeping workspace through HTTP against a bare spawn", "≤ 1 ×", "filesapi", "{}-calls",
         "read-asleep", "vs_bare", most=1.0, why=FIRST_LOOK),
    Mark("durable write of 4 KiB through HTTP against write, fsync, rename and fsync of the directory", "≤ 1.5 ×", "filesapi",
         "{}-durable", "put", "vs_bare", most=1.5, why=SAME_DISK),
    Mark("what waiting for the audit record's disk adds to a command, 8 clients", "≤ 1.1 ×", "daemon", "{}-record", "8",
         "adds", most=1.1, why=DISK_NOISE),
    Mark("what plan mode adds to a run of 1,000 changes, in 100,000 files against in 1,000", "≤ 1.5 ×", "plans", "{}-runs", "1000-100000",
         "x_small", most=1.5),
    Mark("run in plan mode with 1,000 changes against a plain run", "≤ 3 ×", "plans", "{}-runs", "1000-1000", "x_plain", most=3.0),
    *(Mark(f"{verb} of 20,000 changes against `mv` of as many files", "≤ 10 ×", "plans", "{}-apply", f"{verb}-20000", "x_mv", most=10.0)
      for verb in ("apply", "undo")),
    Mark("move of a file of 2 GiB in plan mode, the start of the sandbox included", "≤ 100 ms", "plans", "{}-large", "plan", "ms", most=100.0),
    Mark("workspace on `office` created and its first `import pandas` against the import on the bare host", "≤ 1.2 ×", "environments",
         "{}-import", "both", "vs_bare", most=1.2),
    Mark("venv and 5 packages from a warm cache in a workspace against plain uv on the host", "≤ 1.3 ×", "environments", "{}-install",
         "inside", "vs_host", most=1.3),
    Mark("disk of a workspace on `office`, of 1,000, without what they share", "≤ 1 MiB", "environments", "{}-many", "1000", "disk_each_mib",
         most=1.0),
    Mark("memory of a live workspace on `office`, of 1,000", "≤ 2 MiB", "environments", "{}-many", "1000", "memory_each_mib", most=2.0,
         why=LAYERS),
    Mark("creation of a workspace on `office`, from 10 to 1,000 of them", "≤ 1.5 ×", "environments", "{}-many", "1000", "x_create", most=1.5,
         why=LAYERS),
    Mark("what a connection by name takes more than one of the bare host", "≤ 0.3 ms", "network", "{}-network", "connect", "adds_ms", most=0.3),
    Mark("bytes of a connection by name against the bare host", "≥ 0.5 ×", "network", "{}-network", "bulk", "x", least=0.5),
    *(Mark(f"what the Python package adds to bare httpx, {words}", "≤ 0.15 ms", "clients", "{}-package", row, "adds_ms", most=0.15)
      for row, words in (("stat", "stat"), ("read", "4 KiB of a file"), ("stat-async", "stat with await"), ("read-async", "4 KiB with await"))),
    *(Mark(f"what the TypeScript package adds to bare node:http, {words}", "≤ 0.1 ms", "clients", "{}-node", row, "adds_ms", most=0.1)
      for row, words in (("stat-node", "stat"), ("read-node", "4 KiB of a file"), ("stat-node-socket", "stat over a Unix socket"),
                         ("read-node-socket", "4 KiB over a Unix socket"))),
]
NO_OTHER = "not measured: what it is compared with is not here"
LEAST_NOISE = 0.05  # a run that shows less noise than this has been lucky
MOST_NOISE = 0.25  # a run that shows more cannot tell


def find(figures, mark, identity):
    """The row of a mark, or the reason why there is none."""
    tables = {t["name"]: t for t in figures["parts"].get(mark.part, {}).get("tables", [])}
    table = tables.get(mark.table.format(identity))
    if not table:
        return None, f"part {mark.part} was not run"
    rows = {row["row"]: row for row in table["rows"]}
    row = rows.get(mark.row)
    if row is None or row.get(mark.key) is None:
        # The column may be missing because the row of that name is: it says why in the same table.
        other = rows.get(mark.key.removeprefix("x_"), {})
        return None, (row or {}).get("why") or other.get("why") or rows.get("more", {}).get("why") or NO_OTHER
    return row, ""


def judge(figures, mark, identity):
    """{what, bound, value, verdict, why} of one mark as one identity."""
    row, why = find(figures, mark, identity)
    result = {"what": mark.what, "identity": identity, "bound": mark.bound}
    if row is None:
        return {**result, "value": "-", "verdict": UNKNOWN, "why": why}
    value = row[mark.key]
    if mark.inverse:
        value = 1 / value
    result["value"] = f"{value:.2f}"
    if "noise" in row and mark.most == 1.0:  # no slower than native, as far as this run can tell
        noise = max(LEAST_NOISE, row["noise"])
        result["value"] += f" (noise ± {noise:.2f})"
        if noise > MOST_NOISE:
            return {**result, "verdict": NOISY, "why": "native differs as much from itself"}
        value -= noise
    met = value <= mark.most if mark.most is not None else value >= mark.least
    return {**result, "verdict": MET if met else MISSED, "why": "" if met else mark.why}


def judge_all(figures):
    """Every mark, for each identity that its part was measured as."""
    results = []
    for mark in MARKS:
        names = [t["name"].split("-")[0] for t in figures["parts"].get(mark.part, {}).get("tables", [])]
        for identity in dict.fromkeys(names) or ["root"]:
            results.append(judge(figures, mark, identity))
    return results
