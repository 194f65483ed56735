"""Which part of the data a process reads, from its place in a device mesh."""

import math
from collections.abc import Sequence

from torch.distributed.device_mesh import DeviceMesh

from modalities_pipeline.distributed.configs import DATA_PARALLEL, ParallelismDegrees
from modalities_pipeline.distributed.mesh import get_flat_rank
from modalities_pipeline.exceptions import ConfigError


def rank_in_mesh(
    device_mesh: DeviceMesh, data_parallel_key: ParallelismDegrees | str | Sequence[ParallelismDegrees | str]
) -> tuple[int, int]:
    """(rank, number of ranks) of this process along the data parallel dimensions of a mesh, flattened in its order.

    A dimension of a list that the mesh lacks counts as one of size 1, as in `number_conversion/parallel_degree`.

    Args:
        device_mesh: the mesh, its dimensions named.
        data_parallel_key: one dimension, which must be there, or a list of dimensions, of which one must be.

    Raises:
        ConfigError: there is no such dimension; a name is no data parallel dimension or is there twice; or the mesh
            splits data over a dimension that is not named, whose ranks would train on the same samples.
    """
    keys = [data_parallel_key] if isinstance(data_parallel_key, str) else list(data_parallel_key)
    wanted = _checked_keys(keys)
    names = device_mesh.mesh_dim_names or ()
    if not wanted & set(names):
        raise ConfigError(
            f"data_parallel_key: the device mesh has no dimension {' or '.join(sorted(wanted))} (it has: "
            f"{', '.join(names) or 'no names'})."
        )
    sizes = {name: device_mesh.size(dimension) for dimension, name in enumerate(names)}
    left_out = [name for name in DATA_PARALLEL if name not in wanted and sizes.get(name, 1) > 1]
    if left_out:
        needed = [name.value for name in DATA_PARALLEL if name in names]
        raise ConfigError(
            f"data_parallel_key: {', '.join(left_out)} of the device mesh is not named, so its {sizes[left_out[0]]} "
            f"ranks would train on the same samples. Write data_parallel_key: [{', '.join(needed)}]."
        )
    return get_flat_rank(device_mesh, wanted), math.prod(sizes[name] for name in names if name in wanted)


def _checked_keys(keys: Sequence[str]) -> set[str]:
    allowed = {name.value for name in DATA_PARALLEL}
    others = [str(key) for key in keys if key not in allowed]
    if others or not keys:
        raise ConfigError(
            f"data_parallel_key: data is split over {' and '.join(sorted(allowed))} only, not over "
            f"{', '.join(others) or 'nothing'}: the ranks of any other dimension work on the same samples."
        )
    if len(set(keys)) != len(keys):
        raise ConfigError(f"data_parallel_key: {', '.join(keys)} names a dimension twice.")
    return {str(key) for key in keys}
