"""What loading the definitions costs, as a ratio to `import dagster`; the limit is 1.3.

Run: python benchmarks/definitions_import.py [rounds]
"""

import statistics
import subprocess
import sys

CODE = """
import importlib, sys, time
started = time.process_time()
importlib.import_module(sys.argv[1])
print(time.process_time() - started)
"""


def main() -> None:
    """Print CPU seconds (median of interleaved runs, each in its own process) and their ratio."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    seconds: dict[str, list[float]] = {"dagster": [], "modalities_pipeline.definitions": []}
    for _ in range(rounds):
        for module, measured in seconds.items():
            run = subprocess.run([sys.executable, "-c", CODE, module], capture_output=True, text=True, check=True)
            measured.append(float(run.stdout))
    base, ours = (statistics.median(measured) for measured in seconds.values())
    print(f"import dagster {base:.2f} s, import modalities_pipeline.definitions {ours:.2f} s, ratio {ours / base:.2f}")


if __name__ == "__main__":
    main()
