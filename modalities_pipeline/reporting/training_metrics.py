"""The numbers that a training reports at each logging interval, under Modalities' names."""

import enum
import resource
from collections.abc import Callable

import torch
import torch.distributed as dist

from modalities_pipeline.batch import EvaluationResultBatch, ResultItem
from modalities_pipeline.distributed.env import get_rank, get_world_size
from modalities_pipeline.util import Aggregator


class ThroughputAggregationKeys(enum.Enum):
    """What is summed over the steps between two logs."""

    NUM_SAMPLES = "NUM_SAMPLES"
    FORWARD_BACKWARD_TIME = "FORWARD_BACKWARD_TIME"


class TrainingMetrics:
    """Collects what happens between two logs.

    Args:
        dp_degree: number of ranks that see different samples.
        num_tokens_per_step: tokens that one step consumes on all ranks.
        compute_mfu: samples per second -> share of the peak FLOP/s; None: the MFU is reported as -1, unknown.
    """

    def __init__(
        self,
        dp_degree: int,
        num_tokens_per_step: int,
        compute_mfu: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self._dp_degree = dp_degree
        self._num_tokens_per_step = num_tokens_per_step
        self._compute_mfu = compute_mfu
        self._reset()

    def _reset(self) -> None:
        self._loss_totals: list[torch.Tensor] = []
        self._gradient_norms: list[torch.Tensor] = []
        self._throughput: Aggregator[ThroughputAggregationKeys] = Aggregator()

    def add_step(self, loss_totals: torch.Tensor, gradient_norm: torch.Tensor, num_local_samples: int) -> None:
        """Take up one step.

        Args:
            loss_totals: float64 (4): summed loss and number of terms of all micro batches, then of the last ones, each
                over all ranks.
            gradient_norm: norm before clipping, without dimensions.
            num_local_samples: samples that this rank has seen.
        """
        self._loss_totals.append(loss_totals)
        self._gradient_norms.append(gradient_norm)
        self._throughput.add_value(
            ThroughputAggregationKeys.NUM_SAMPLES, torch.tensor(num_local_samples, device=loss_totals.device)
        )

    def result(
        self, dataloader_tag: str, num_steps: int, num_tokens: int, learning_rates: list[float], duration_in_s: float
    ) -> EvaluationResultBatch:
        """The numbers since the previous call; `num_steps` and `num_tokens` are totals. Every rank has to call it."""
        totals = torch.stack(self._loss_totals)
        norms = torch.stack(self._gradient_norms)
        self._throughput.add_value(
            ThroughputAggregationKeys.FORWARD_BACKWARD_TIME,
            torch.tensor(duration_in_s, dtype=torch.float64, device=totals.device),
        )
        duration = self._throughput.get_all_reduced_value(
            ThroughputAggregationKeys.FORWARD_BACKWARD_TIME, dist.ReduceOp.MAX
        )
        num_ranks_per_sample = get_world_size() / self._dp_degree
        samples = self._throughput.get_all_reduced_value(ThroughputAggregationKeys.NUM_SAMPLES) / num_ranks_per_sample
        samples_per_s = samples / duration
        mfu = self._compute_mfu(samples_per_s) if self._compute_mfu else torch.tensor(-1.0)
        tokens_per_s = len(norms) * self._num_tokens_per_step / duration
        batch = EvaluationResultBatch(
            dataloader_tag=dataloader_tag,
            num_train_steps_done=num_steps,
            losses={
                "train loss avg": ResultItem(totals[:, 0].sum() / totals[:, 1].sum(), 2),
                "train loss last": ResultItem(totals[-1, 2] / totals[-1, 3], 2),
            },
            metrics={
                "consumed tokens": ResultItem(torch.tensor(num_tokens), 0),
                "grad norm avg": ResultItem(norms.mean(), 2),
                "grad norm last": ResultItem(norms[-1], 2),
            },
            throughput_metrics={
                "train samples/s": ResultItem(samples_per_s, 1),
                "train mfu (16-bit)": ResultItem(mfu, 2),
                "lr mean": ResultItem(torch.tensor(learning_rates, dtype=torch.float64).mean()),
                "peak memory rank 0 (MB)": ResultItem(torch.tensor(_peak_memory_of_rank_0_in_mb()), 2),
                "train tokens/s": ResultItem(tokens_per_s, 1),
            },
        )
        self._reset()
        return batch


def _peak_memory_of_rank_0_in_mb() -> float:
    if get_rank() != 0:
        return -1.0
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated() / 1024**2
        torch.cuda.reset_peak_memory_stats()
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
