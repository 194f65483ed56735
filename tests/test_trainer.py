"""The training loop: the right gradient, the right numbers in the right order, and no silent end."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch
from tiny_training import LOSS, ListLoader, TinyModel, make_batches, train_tiny
from torch import nn

from modalities_pipeline.batch import DatasetBatch, EvaluationResultBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.optim.gradient_clipping import DummyGradientClipper, FSDPGradientClipper, GradientClippingMode
from modalities_pipeline.profiling.kernel_tracing import SteppableKernelProfiler
from modalities_pipeline.profiling.profilers import SteppableNoProfiler
from modalities_pipeline.progress.mfu import MFUCalculatorABC
from modalities_pipeline.trainer import Trainer


@pytest.mark.parametrize("gradient_acc_steps", [2, 4, 8])
def test_accumulation_changes_neither_gradient_nor_logged_loss(publisher, recorder, gradient_acc_steps):
    """B048, B049: also if the targets that count are spread unevenly over the micro batches."""
    whole = train_tiny(publisher, make_batches(8, mask_up_to=13), 1)
    loss = recorder.events[-1].losses["train loss avg"].value
    split = train_tiny(publisher, make_batches(8 // gradient_acc_steps, mask_up_to=13), gradient_acc_steps)
    assert recorder.events[-1].losses["train loss avg"].value.item() == pytest.approx(loss.item(), abs=1e-6)
    difference = whole.model_parts[0].embedding.weight - split.model_parts[0].embedding.weight
    assert difference.abs().max() < 1e-6
    assert not torch.equal(whole.model_parts[0].embedding.weight, TinyModel().embedding.weight)


def test_micro_batches_are_clipped_together_not_one_by_one(publisher, recorder):
    """B050: the step is as long as the norm allows, and in the direction of the one big batch."""
    weights = []
    for batch_size in (8, 2):
        batches = make_batches(batch_size, mask_up_to=13)
        weights.append(train_tiny(publisher, batches, 8 // batch_size, max_norm=1e-3).model_parts[0].embedding.weight)
        assert recorder.events[-1].metrics["grad norm last"].value > 0.01
    assert (weights[0] - weights[1]).abs().max() < 1e-7
    assert (weights[1] - TinyModel().embedding.weight).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_logged_loss_is_the_mean_over_all_targets_since_the_last_log(publisher, recorder):
    """B049, W19: of two steps with four micro batches each, whatever their number of targets; `last` is of the last."""
    batches = make_batches(2, mask_up_to=13, count=16)
    model = TinyModel()
    with torch.no_grad():
        losses = [_loss_sum_and_count(model, batch) for batch in batches]
    model.embedding.weight.requires_grad_(True)
    train_tiny(publisher, batches, 4, log_interval=2, model=model, max_norm=1e-30)  # steps that change nothing
    (result,) = [event for event in recorder.events if hasattr(event, "losses")]
    expected = sum(loss for loss, _ in losses) / sum(count for _, count in losses)
    assert result.losses["train loss avg"].value.item() == pytest.approx(expected, abs=1e-6)
    assert result.losses["train loss last"].value.item() == pytest.approx(losses[-1][0] / losses[-1][1], abs=1e-6)


def _loss_sum_and_count(model: nn.Module, batch: DatasetBatch) -> tuple[float, int]:
    logits = model(batch.samples)["logits"].flatten(0, 1)
    targets = batch.targets["target_ids"].flatten()
    return nn.functional.cross_entropy(logits, targets, reduction="sum").item(), int((targets != -100).sum())


def test_a_micro_batch_without_any_target_counts_nothing(publisher, recorder):
    batches = make_batches(4, mask_up_to=0)
    empty = DatasetBatch(
        dict(batches[0].samples), {"target_ids": torch.full_like(batches[0].targets["target_ids"], -100)}
    )
    with_empty = train_tiny(publisher, [*batches, empty], 3)
    without = train_tiny(publisher, batches, 2)
    difference = with_empty.model_parts[0].embedding.weight - without.model_parts[0].embedding.weight
    assert difference.abs().max() < 1e-6
    numbers = [event.losses for event in recorder.events if isinstance(event, EvaluationResultBatch)]
    for name in ("train loss avg", "train loss last"):
        assert numbers[0][name].value.item() == pytest.approx(numbers[1][name].value.item(), abs=1e-6)


def test_a_step_without_any_target_is_not_taken_and_said_to_be_one(publisher):
    """W19: it is not the loss that diverged."""
    masked = [
        DatasetBatch(batch.samples, {key: torch.full_like(tensor, -100) for key, tensor in batch.targets.items()})
        for batch in make_batches(4, 0)
    ]
    model = TinyModel()
    before = model.embedding.weight.detach().clone()
    with pytest.raises(TrainingError, match="Step 1 has no target that counts"):
        train_tiny(publisher, masked, 2, model=model)
    assert torch.equal(model.embedding.weight, before)


def test_a_run_without_clipping_reports_the_norm_minus_one(publisher, recorder):
    train_tiny(publisher, make_batches(4, 0), 2, gradient_clipper=DummyGradientClipper())
    [result] = [event for event in recorder.events if isinstance(event, EvaluationResultBatch)]
    assert result.metrics["grad norm last"].value == -1


def test_a_loss_that_is_not_finite_stops_before_the_step(process_group, publisher, monkeypatch):
    """B053: the message names step and rank, the weights are still those of the step before."""
    calls: list = []
    weights: list[torch.Tensor] = []
    model = TinyModel()

    def sum_and_count(batch):
        calls.append(batch)
        weights.append(model.embedding.weight.detach().clone())
        loss_sum, count = CLMCrossEntropyLoss.sum_and_count(LOSS, batch)
        return (loss_sum * float("inf") if len(calls) == 2 else loss_sum), count

    monkeypatch.setattr(LOSS, "sum_and_count", sum_and_count)
    with pytest.raises(TrainingError, match=r"Step 2 is not finite: loss inf \(from rank 0\)"):
        train_tiny(publisher, make_batches(8, 0, count=24), 1, model=model)
    assert len(calls) == 2
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(model.embedding.weight, weights[1])


def test_data_that_do_not_suffice_are_refused_before_the_first_step(publisher, recorder):
    """A loader that is shorter than the target never just ends the training."""
    with pytest.raises(TrainingError, match=r"suffice for 5 more steps, but 6 are to be done \(up to step 6\)"):
        train_tiny(publisher, make_batches(2, 0, count=22), gradient_acc_steps=2, num_steps=6)
    assert recorder.events == []


def test_last_step_is_logged_whatever_the_interval(publisher, recorder):
    train_tiny(publisher, make_batches(8, 0, count=40), 1, log_interval=3)
    logged = [event.num_train_steps_done for event in recorder.events if hasattr(event, "losses")]
    assert logged == [3, 5]


def test_throughput_leaves_out_evaluation_and_checkpoints(publisher, recorder, monkeypatch):
    """Time passes only inside callbacks here, so the measured duration stays 0 and the rate is not finite."""
    clock = [0.0]
    monkeypatch.setattr("modalities_pipeline.util.time.perf_counter", lambda: clock[0])

    def wait(num_train_steps_done: int) -> None:
        clock[0] += 100.0

    model = TinyModel()
    app_state = AppState(model, torch.optim.SGD(model.parameters(), lr=1.0))
    clipper = FSDPGradientClipper(model, GradientClippingMode.P2_NORM, 1e9)
    trainer = Trainer(0, publisher, publisher, 1, 128, None, 0, 0, 2, 256, clipper)
    trainer.train(app_state, ListLoader(make_batches(8, 0, count=16)), LOSS, 1, wait, lambda training_progress: None)
    assert clock[0] == 200.0
    rates = [event.throughput_metrics["train tokens/s"].value for event in recorder.events if hasattr(event, "losses")]
    assert all(torch.isinf(rate) for rate in rates)


class _Profiler(SteppableNoProfiler):
    """Notes what happens, among the events of the training."""

    def __init__(self, events: list) -> None:
        self._events = events

    def __enter__(self) -> Self:
        self._events.append("enter")
        return self

    def __exit__(self, *error: object) -> None:
        self._events.append("exit")

    def step(self) -> None:
        self._events.append("profiled")


def test_the_profiler_is_stepped_once_after_each_optimizer_step(publisher, recorder):
    """W30: not per micro batch; it is left before the training returns."""
    train_tiny(publisher, make_batches(2, 0), 2, profiler=_Profiler(recorder.events))
    events = [event if isinstance(event, str) else type(event).__name__ for event in recorder.events]
    step = ["ProgressUpdate", "ProgressUpdate", "EvaluationResultBatch", "profiled"]
    assert events == ["enter", *step, *step, "exit"]


def test_the_profiler_is_left_if_the_training_fails(publisher, recorder):
    with pytest.raises(IndexError):
        train_tiny(
            publisher, [DatasetBatch({"input_ids": torch.tensor([[500]])}, {})], 1, profiler=_Profiler(recorder.events)
        )
    assert recorder.events == ["enter", "exit"]


def test_fewer_steps_than_the_profiler_wants_are_no_error(publisher, tmp_path, caplog):
    """W30: the training is good, whatever was profiled of it."""
    flags = dict.fromkeys(("profile_memory", "record_shapes", "with_flops", "with_stack", "with_modules"), False)
    profiler = SteppableKernelProfiler(1, 1, 5, ["CPU"], **flags, output_folder_path=tmp_path)
    train_tiny(publisher, make_batches(2, 0), 1, profiler=profiler)
    assert "needs 7 steps, there were only 4" in caplog.text
    assert (tmp_path / "profiler_trace_ranks_1_rank_0.json").is_file()


class _MFU(MFUCalculatorABC):
    def compute(self, num_samples_per_second: torch.Tensor | float) -> torch.Tensor:
        return torch.as_tensor(num_samples_per_second) / 1e6


@pytest.mark.parametrize("calculator", [_MFU(), None])
def test_mfu_is_that_of_the_samples_per_second_or_none(calculator, publisher, recorder):
    train_tiny(publisher, make_batches(8, 0), 1, mfu_calculator=calculator)
    throughput = recorder.events[-1].throughput_metrics
    expected = throughput["train samples/s"].value.item() / 1e6 if calculator else -1.0
    assert throughput["train mfu (16-bit)"].value.item() == pytest.approx(expected)


def test_several_parts_and_pipelines_are_refused_before_the_first_step(publisher, recorder):
    """They would be trained in part only."""
    models = [TinyModel(), TinyModel()]
    clipper = FSDPGradientClipper(models[0], GradientClippingMode.P2_NORM, 1e9)
    trainer = Trainer(0, publisher, publisher, 1, 128, None, 0, 0, 1, 128, clipper)
    for parts, pipeline in ((models, None), (models[:1], object())):
        app_state: Any = SimpleNamespace(model_parts=parts)
        with pytest.raises(TrainingError, match="pipeline parallelism is not supported"):
            trainer.train(app_state, ListLoader(make_batches(8, 0)), LOSS, 1, None, None, scheduled_pipeline=pipeline)
    assert recorder.events == []


def test_training_leaves_the_global_random_numbers_alone(publisher):
    """W32: whatever draws from them afterwards does not depend on how long the training was."""
    model = TinyModel()
    before = random.getstate(), torch.get_rng_state(), torch.initial_seed()
    train_tiny(publisher, make_batches(2, 0), 2, model=model)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.initial_seed() == before[2]


@pytest.mark.multi_process
def test_ranks_with_uneven_targets_train_as_one_process(run_distributed):
    """B048, B051, B053, W19: see the script; also with evaluation, and models that nothing synchronises are refused."""
    run_distributed(Path(__file__).parent / "uneven_training.py", 2)
