"""Stands in for torchrun: starts workers in sessions of their own, as torchrun does, and writes metrics.

    fake_launcher.py METRICS_FILE SECONDS EXIT_CODE [--stubborn] [--leave-workers]

It ends after SECONDS with EXIT_CODE. `--stubborn`: neither it nor its workers heed SIGTERM. `--leave-workers`: the
workers are still running when it ends.
"""

import json
import signal
import subprocess
import sys
import time

WORKER = """
import signal, sys, time
if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(300)
"""


def main() -> int:
    metrics_path, seconds, exit_code, *flags = sys.argv[1:]
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, *flags], start_new_session=True) for _ in range(2)]

    def stop(*_: object) -> None:
        for worker in workers:
            worker.terminate()
        sys.exit(143)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--stubborn" in flags else stop)
    print("the launcher runs", flush=True)
    started = time.monotonic()
    step = 0
    while time.monotonic() - started < float(seconds):
        step += 1
        line = {
            "dataloader_tag": "train",
            "num_train_steps_done": step,
            "losses": {"train loss avg": 5.0 - step / 100},
            "metrics": {},
            "throughput_metrics": {"lr mean": 0.001},
        }
        with open(metrics_path, "a") as file:
            file.write(json.dumps(line) + "\n")
        time.sleep(0.1)
    if "--leave-workers" not in flags:
        for worker in workers:
            worker.kill()
    return int(exit_code)


if __name__ == "__main__":
    sys.exit(main())
