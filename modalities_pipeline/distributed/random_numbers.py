"""The random numbers of a run: what dropout draws."""

import hashlib

import torch
from torch.distributed.device_mesh import DeviceMesh

from modalities_pipeline.distributed.mesh import get_data_parallel_rank


def seed_random_numbers(seed: int, num_seen_steps: int, device_mesh: DeviceMesh | None) -> None:
    """Seed torch's global generators of all devices.

    Equal runs then draw the same. Ranks that see different samples draw different numbers, ranks that share the work on
    a sample the same. A run that goes on draws others than the one before drew in its first steps.

    Args:
        seed: of the run.
        num_seen_steps: steps done before this run.
        device_mesh: the mesh of the run; without one every rank sees other samples.
    """
    digest = hashlib.sha256(f"{seed}:{num_seen_steps}:{get_data_parallel_rank(device_mesh)}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7], "little"))
