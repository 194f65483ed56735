"""Builds everything in the given YAML files; run by torchrun on two processes."""

import sys
from pathlib import Path

from building import CONFIGS, build_everything, check_interfaces, load, rows_in

from modalities_pipeline.distributed.env import DistributedEnv

if __name__ == "__main__":
    data, names = Path(sys.argv[1]), sys.argv[2:]
    with DistributedEnv():
        for name in names:
            config = load(CONFIGS / name, data)
            _, built = build_everything(config)
            check_interfaces(built)
            assert {row for row, _ in built} == rows_in(config)
