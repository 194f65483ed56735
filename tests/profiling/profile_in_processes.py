"""Profiles a config in all processes of torchrun: config file, root of experiment folders, experiment id."""

import sys
from pathlib import Path

from modalities_pipeline.profiling.run import profile_distributed

if __name__ == "__main__":
    profile_distributed(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
