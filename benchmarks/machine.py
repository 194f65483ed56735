"""What the benchmark ran on: the machine and the versions of both sides, for people."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_OUR_PACKAGES = ("modalities-pipeline", "numpy", "orjson", "fastokens", "tokenizers", "transformers", "torch")
_PEER_PACKAGES = ("modalities", "numpy", "jq", "tokenizers", "transformers", "torch")
_PEER_CODE = """
import importlib.metadata, platform, sys
print("Python", platform.python_version(), end="")
for name in sys.argv[1:]:
    print(",", name, importlib.metadata.version(name), end="")
"""


def describe_machine() -> str:
    """Processor, cores, memory, operating system."""
    memory_in_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory_in_gib:.0f} GiB of memory, "
        f"{platform.system()} {platform.release()}"
    )


def our_versions() -> str:
    """Versions of Python and of the packages that do the work here."""
    return ", ".join([f"Python {platform.python_version()}", *_versions(_OUR_PACKAGES)])


def peer_versions(python: Path) -> str:
    """The same in the environment of Modalities."""
    process = subprocess.run([str(python), "-c", _PEER_CODE, *_PEER_PACKAGES], capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{python} has no environment with Modalities, see docs/benchmarks.md:\n{process.stderr}")
    return process.stdout


def _versions(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"no {name}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
