"""What looking at a config costs, as a ratio to `import torch`; the goal is less than 0.25.

Run: python benchmarks/config_check.py [rounds]
"""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_CONFIG = _ROOT / "configs" / "train_tiny_cpu.yaml"
_BASE = "import torch"
_COMMANDS = {
    _BASE: ["-c", "import torch"],
    "modalities-pipeline --help": ["-m", "modalities_pipeline", "--help"],
    "config check configs/train_tiny_cpu.yaml": ["-m", "modalities_pipeline", "config", "check", str(_CONFIG)],
    "config show configs/train_tiny_cpu.yaml": ["-m", "modalities_pipeline", "config", "show", str(_CONFIG)],
    "components": ["-m", "modalities_pipeline", "components"],
}
_GOAL = 0.25


def cpu_seconds(arguments: list[str]) -> float:
    """User and system seconds of one Python process with these arguments, which must end with exit code 0."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=_ROOT, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print medians of interleaved runs, and the median of each round's ratio to `import torch`."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    for arguments in _COMMANDS.values():
        cpu_seconds(arguments)  # reads the files into the system's cache
    measured = [{name: cpu_seconds(arguments) for name, arguments in _COMMANDS.items()} for _ in range(rounds)]
    print(f"| command | CPU s, median of {rounds} | ratio to `{_BASE}` | goal |\n|---|---|---|---|")
    for name in _COMMANDS:
        seconds = statistics.median(round_[name] for round_ in measured)
        ratio = statistics.median(round_[name] / round_[_BASE] for round_ in measured)
        goal = "" if name == _BASE else f"< {_GOAL}{'' if ratio < _GOAL else ' (missed)'}"
        print(f"| {name} | {seconds:.3f} | {ratio:.3f} | {goal} |")


if __name__ == "__main__":
    main()
