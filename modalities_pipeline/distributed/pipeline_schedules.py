"""What torch's pipeline schedules ask for: stages per rank, which stages, how many micro batches. Imports no torch."""

from enum import StrEnum

from modalities_pipeline.exceptions import ConfigError


class PipelineSchedules(StrEnum):
    """Schedules of torch.distributed.pipelining, by the names that torch gives them."""

    ONE_F_ONE_B = "1F1B"
    INTERLEAVED_1F1B = "Interleaved1F1B"
    GPIPE = "GPipe"
    LOOPED_BFS = "LoopedBFS"
    INTERLEAVED_ZERO_BUBBLE = "InterleavedZeroBubble"
    ZBV_ZERO_BUBBLE = "ZBVZeroBubble"
    DUAL_PIPE_V = "DualPipeV"

    @property
    def is_v(self) -> bool:
        """Whether the stages go down the ranks and back up: the first rank has the first and the last stage."""
        return self in (PipelineSchedules.ZBV_ZERO_BUBBLE, PipelineSchedules.DUAL_PIPE_V)

    @property
    def takes_one_stage(self) -> bool:
        """Whether each rank has a single stage."""
        return self in (PipelineSchedules.ONE_F_ONE_B, PipelineSchedules.GPIPE)

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of inputs and of parameters are computed in passes of their own (zero bubble)."""
        return self.is_v or self is PipelineSchedules.INTERLEAVED_ZERO_BUBBLE

    @property
    def can_evaluate(self) -> bool:
        """Whether torch can run the schedule without backward passes; with V schedules one rank fails, others hang."""
        return not self.is_v


def stage_ids_of_rank(schedule: PipelineSchedules, num_stages: int, pp_size: int, pp_rank: int) -> list[int]:
    """The stages of one rank of a pipeline with `pp_size` ranks, in ascending order.

    Raises:
        ConfigError: the schedule needs another number of stages on each rank.
    """
    num_stages_per_rank = num_stages // pp_size
    wanted = 1 if schedule.takes_one_stage else 2 if schedule.is_v else num_stages_per_rank
    if num_stages_per_rank != wanted:
        raise ConfigError(
            f"{schedule} needs {wanted} stage{'s' if wanted > 1 else ''} on each rank, but num_layers_per_stage makes "
            f"{num_stages_per_rank}. Change num_layers_per_stage, or use another pp_schedule_name."
        )
    if schedule.is_v:
        return [pp_rank, num_stages - 1 - pp_rank]
    return list(range(pp_rank, num_stages, pp_size))


def check_num_microbatches(schedule: PipelineSchedules, num_microbatches: int, pp_size: int) -> None:
    """Refuse a number of micro batches per batch that the schedule cannot take.

    Raises:
        ConfigError: there are too few, or they do not fill whole rounds over the ranks.
    """
    fewest = {PipelineSchedules.ONE_F_ONE_B: pp_size, PipelineSchedules.DUAL_PIPE_V: 2 * pp_size}.get(schedule, 1)
    if num_microbatches < fewest:
        raise ConfigError(
            f"{schedule} needs at least {fewest} micro batches for {pp_size} pipeline ranks, but there are "
            f"{num_microbatches} (batch_size // microbatch_size). Raise batch_size, or lower microbatch_size."
        )
    in_rounds = (PipelineSchedules.INTERLEAVED_1F1B, PipelineSchedules.INTERLEAVED_ZERO_BUBBLE)
    num_rounds = max(1, num_microbatches // pp_size)
    if schedule in in_rounds and num_microbatches % num_rounds:
        raise ConfigError(
            f"{schedule} needs micro batches that fill whole rounds over {pp_size} pipeline ranks, but "
            f"{num_microbatches} (batch_size // microbatch_size) are not a multiple of {num_rounds} rounds. Make them "
            "a multiple of pp_degree."
        )
