"""One timed section in a fresh process; the standard library only, since Modalities' interpreter runs it too.

A stage script is started with one argument, a JSON request. It imports what the stage needs, then calls `measure`,
which writes the figures to the file named in the request.
"""

import cProfile
import dataclasses
import json
import os
import pstats
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NUM_PROFILED_FUNCTIONS = 8


@dataclasses.dataclass(frozen=True)
class Work:
    """What a stage script prepared.

    Attributes:
        run: the timed section.
        describe: from its result, something that must be equal whoever ran it; not timed.
    """

    run: Callable[[], Any]
    describe: Callable[[Any], Any] = lambda result: None


def measure(request: dict[str, Any], work: Work) -> None:
    """Run the section; CPU seconds are those of this process, its threads and its child processes."""
    os.sync()  # what other runs left to be written would be written meanwhile, at the cost of this one
    anonymous_before = tree_anonymous_in_bytes(os.getpid())
    profile = cProfile.Profile(time.process_time) if request.get("with_profile") else None
    started, cpu_started = time.monotonic(), _cpu_seconds()
    result = work.run() if profile is None else profile.runcall(work.run)
    cpu_ended, ended = _cpu_seconds(), time.monotonic()
    figures = {
        "cpu_s": cpu_ended - cpu_started,
        "wall_s": ended - started,
        "started_at": started,
        "ended_at": ended,
        "anonymous_before_in_bytes": anonymous_before,
        "anonymous_after_in_bytes": tree_anonymous_in_bytes(os.getpid()),
        "description": work.describe(result),
        "profile": [] if profile is None else _largest(profile),
    }
    Path(request["result_path"]).write_text(json.dumps(figures), "utf-8")


def _largest(profile: cProfile.Profile) -> list[tuple[str, float]]:
    """Functions with the most CPU time of their own, and that time in seconds."""
    own: dict[str, float] = {}
    for (path, _, name), (_, _, seconds, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        label = name if path == "~" else f"{Path(path).name}: {name}"
        own[label] = own.get(label, 0.0) + seconds
    return sorted(own.items(), key=lambda entry: -entry[1])[:_NUM_PROFILED_FUNCTIONS]


def tree_anonymous_in_bytes(pid: int) -> int:
    """Anonymous memory of a process and all processes below it; pages shared after a fork count once."""
    children = _descendants(pid)
    if not children:
        return _field_in_bytes(f"/proc/{pid}/status", "RssAnon:")
    return sum(_field_in_bytes(f"/proc/{process}/smaps_rollup", "Pss_Anon:") for process in (pid, *children))


def _field_in_bytes(path: str, name: str) -> int:
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass  # the process ended meanwhile
    return 0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def _cpu_seconds() -> float:
    """Of this process, of children that ended, and of children that still run."""
    ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in ended) + _cpu_seconds_of_living_children()


def _cpu_seconds_of_living_children() -> float:
    ticks = 0
    for pid in _descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[11:15]))  # own and waited-for children's user and system time
    return ticks / os.sysconf("SC_CLK_TCK")
