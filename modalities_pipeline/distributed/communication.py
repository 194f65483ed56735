"""A test of whether the processes of a run can talk to each other, before anything large is built."""

import torch
import torch.distributed as dist

from modalities_pipeline.exceptions import RunningEnvError


def check_communication(device: torch.device) -> None:
    """Gather and sum one number of each process on `device`; needs a process group.

    Raises:
        RunningEnvError: a collective operation failed, or gave a wrong result.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    own = torch.tensor([float(rank)], device=device)
    gathered = [torch.empty_like(own) for _ in range(world_size)]
    total = own.clone()
    try:
        dist.all_gather(gathered, own)
        dist.all_reduce(total)
    except RuntimeError as error:
        raise RunningEnvError(
            f"Rank {rank} of {world_size} cannot talk to the others ({dist.get_backend()}): {error}. Check the network "
            "between the machines, and that every process was started."
        ) from error
    ranks = [int(number) for number in gathered]
    if ranks != list(range(world_size)) or int(total) != sum(range(world_size)):
        raise RunningEnvError(
            f"Rank {rank} of {world_size} received wrong numbers ({dist.get_backend()}): gathered {ranks}, sum "
            f"{int(total)}. The network or the communication library is at fault."
        )
