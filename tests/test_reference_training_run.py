"""Whole runs on one process: losses, norms, message order and files are those of Modalities, also after a resume."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils.data import SequentialSampler

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.loading import load_app_state_
from modalities_pipeline.checkpointing.saving import CheckpointSaving, DCPCheckpointSaving
from modalities_pipeline.checkpointing.strategies import SaveKMostRecentCheckpointsStrategy
from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.dataloading.collators import GPT2LLMCollateFn
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.dataloading.samplers import ResumableDistributedSampler, get_batch_sampler
from modalities_pipeline.evaluator import Evaluator
from modalities_pipeline.gym import Gym
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.optim.gradient_clipping import FSDPGradientClipper, GradientClippingMode
from modalities_pipeline.optim.optimizers import get_adam_w
from modalities_pipeline.optim.schedulers import get_linear_warmup_cosine_annealing_lr
from modalities_pipeline.trainer import Trainer

RUNS = json.loads((Path(__file__).parent / "vectors" / "training_run.json").read_text("utf-8"))["runs"]
LOSS = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")
TOKENS_PER_STEP = 64


def _samples(count: int, salt: int) -> list[dict[str, torch.Tensor]]:
    position = torch.arange(count * 16 + 1)
    tokens = (position**2 * 7 + 3 * position + 11 + 5 * salt + (position // 13) * 17) % 128
    return [{"input_ids": tokens[index * 16 : (index + 1) * 16 + 1]} for index in range(count)]


def _loader(tag: str, samples: list, sampler) -> LLMDataLoader:
    batch_sampler = get_batch_sampler(sampler=sampler, batch_size=2, drop_last=True)
    collate = GPT2LLMCollateFn(sample_key="input_ids", target_key="target_ids")
    return LLMDataLoader(tag, samples, batch_sampler, collate_fn=collate, num_workers=0, pin_memory=False)


@pytest.fixture
def make_app_state(make_gpt2_config, fill):
    """Function -> app state of the model whose expected training is known."""

    def make() -> AppState:
        config = make_gpt2_config(sequence_length=16, ffn_hidden=512)
        node = {"component_key": "model", "variant_key": "gpt2", "config": config}
        model = ComponentFactory(Registry()).build_component(node)
        fill(model)
        optimizer = get_adam_w(1e-3, model, (0.9, 0.95), 1e-8, 0.1, ["embedding", "layernorm"])
        scheduler = get_linear_warmup_cosine_annealing_lr(optimizer, 2, 6, 1e-4, 1e-5, 1e-3)
        return AppState(model, optimizer, scheduler)

    return make


def _trainer(publisher, app_state, num_seen_steps: int = 0, gradient_acc_steps: int = 2) -> Trainer:
    return Trainer(
        global_rank=0,
        progress_publisher=publisher,
        evaluation_result_publisher=publisher,
        gradient_acc_steps=gradient_acc_steps,
        global_num_tokens_per_train_step=TOKENS_PER_STEP,
        device_mesh=None,
        num_seen_train_steps=num_seen_steps,
        global_num_seen_tokens=num_seen_steps * TOKENS_PER_STEP,
        num_target_steps=6,
        num_target_tokens=6 * TOKENS_PER_STEP,
        gradient_clipper=FSDPGradientClipper(app_state.model_parts, GradientClippingMode.P2_NORM, 1.0),
    )


@pytest.fixture
def train(tmp_path, publisher, make_app_state):
    """Function steps seen before -> app state after training to step 6 with Gym, evaluation and checkpoints."""

    def run(num_seen_steps: int = 0) -> AppState:
        app_state = make_app_state()
        execution = DCPCheckpointSaving(tmp_path, global_rank=0, experiment_id="exp")
        if num_seen_steps:
            (folder,) = tmp_path.glob(f"*seen_steps_{num_seen_steps}-*")
            load_app_state_(app_state, folder)
        sampler = ResumableDistributedSampler(
            dataset=_samples(48, 0),
            rank=0,
            num_replicas=1,
            shuffle=True,
            seed=42,
            skip_num_global_samples=4 * num_seen_steps,
        )
        validation = _samples(8, 3)
        trainer = _trainer(publisher, app_state, num_seen_steps)
        gym = Gym(trainer, Evaluator(publisher, publisher), LOSS, num_ranks=1)
        gym.run(
            app_state=app_state,
            training_log_interval_in_steps=2,
            checkpointing_interval_in_steps=2,
            evaluation_interval_in_steps=3,
            train_data_loader=_loader("train", _samples(48, 0), sampler),
            evaluation_data_loaders=[_loader("val", validation, SequentialSampler(validation))],
            checkpoint_saving=CheckpointSaving(SaveKMostRecentCheckpointsStrategy(-1), execution),
        )
        return app_state

    return run


def _assert_events(events: list, expected: list[dict]) -> None:
    expected = [event for event in expected if event["type"] != "CHECKPOINT_SAVED"]
    assert len(events) == len(expected)
    for event, wanted in zip(events, expected, strict=True):
        if wanted["type"] == "PROGRESS_UPDATE":
            assert (event.experiment_status.value, event.dataloader_tag, event.num_steps_done) == (
                wanted["status"],
                wanted["tag"],
                wanted["steps"],
            )
            continue
        assert (event.dataloader_tag, event.num_train_steps_done) == (
            wanted["dataloader_tag"],
            wanted["num_train_steps_done"],
        )
        for kind in ("losses", "metrics", "throughput_metrics"):
            items = getattr(event, kind)
            assert list(items)[: len(wanted[kind])] == list(wanted[kind])
            for name, (value, decimal_places) in wanted[kind].items():
                assert items[name].decimal_places == decimal_places
                if value != "time-dependent":
                    assert items[name].value.item() == pytest.approx(value, abs=2e-6, rel=1e-4), name


def test_a_run_is_that_of_modalities_and_a_resumed_one_is_the_same_again(process_group, train, recorder, tmp_path):
    """Losses, norms, rates, message order, checkpoint files (expected values); B031, B046: resumed = not stopped."""
    uninterrupted = train()
    expected = RUNS["fp32_acc2"]
    _assert_events(recorder.events, expected["events"])
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == expected["checkpoint_files"]
    for name, norm in expected["final_param_norms"].items():
        parameter = uninterrupted.model_parts[0].get_parameter(name)
        assert parameter.detach().double().norm().item() == pytest.approx(norm, rel=1e-5), name
    recorder.events.clear()
    for folder in tmp_path.glob("*seen_steps_6-*"):
        for file in folder.iterdir():
            file.unlink()
    resumed = train(num_seen_steps=4)
    _assert_events(recorder.events, RUNS["fp32_acc2_resumed_from_step_4"]["events"])
    for name, parameter in uninterrupted.model_parts[0].named_parameters():
        assert torch.equal(parameter, resumed.model_parts[0].get_parameter(name)), name
