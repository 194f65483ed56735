"""A whole run with everything that watches it: profiler, debugging hooks, MFU, Weights & Biases."""

from typing import Any

import pytest
from whole_runs import STEP_PROFILES, train, write_data, write_small_config

from modalities_pipeline.reporting.to_disc import read_results

pytestmark = pytest.mark.multi_process


def test_a_run_is_profiled_debugged_and_reported_as_its_config_says(tmp_path):
    """W28, W30, W31; B092: a secret of the environment that the config reads is nowhere in what the run leaves behind.

    Two optimizer steps are too few for the profiler, which is no error; there is no MFU of a CPU.
    """
    write_data(tmp_path)
    config = write_small_config(
        tmp_path,
        tmp_path,
        **STEP_PROFILES[1],
        settings__training_target={"num_target_steps": 2, "num_target_tokens": 128},
        settings__debugging=_node("debugging", "settings", forward_hooks=[_ref("hooks")], enable_determinism=True),
        settings__paths__secret="${oc.env:THE_SECRET}",
        lr_scheduler__config__warmup_steps=1,
        hooks=_node("model_debugging_hook", "print_forward_hook", model=_ref("model_raw"), print_shape_only=True),
        mfu_calculator=_node(
            "mfu_calculator",
            "gpt2",
            n_layer=1,
            n_embd=128,
            sequence_length=16,
            world_size=1,
            wrapped_model=_ref("model_raw"),
        ),
        profiler=_node(
            "steppable_profiler",
            "kernel_tracing",
            **dict.fromkeys(("profile_memory", "record_shapes", "with_flops", "with_stack", "with_modules"), False),
            num_wait_steps=0,
            num_warmup_steps=1,
            num_active_steps=5,
            profiler_activities=["CPU"],
            output_folder_path=str(tmp_path / "profile"),
        ),
        evaluation_subscriber=_node(
            "results_subscriber",
            "wandb",
            global_rank=0,
            project="p",
            experiment_id="a/b",
            mode="OFFLINE",
            directory=str(tmp_path / "out"),
            config_file_path=str(tmp_path / "config.yaml"),
        ),
    )
    completed = train(config, tmp_path / "root", 1, THE_SECRET="correct-horse-battery")
    assert completed.returncode == 0, completed.stderr
    assert "GPT2LLM (the model)" in completed.stdout
    assert "needs 6 steps, there were only 2" in completed.stderr
    trace = (tmp_path / "profile" / "profiler_trace_ranks_1_rank_0.json").read_text("utf-8")
    assert "ProfilerStep#1" in trace
    results = read_results(tmp_path / "root" / "x" / "metrics.jsonl")
    assert results[0]["throughput_metrics"]["train mfu (16-bit)"] == -1.0
    (run,) = (tmp_path / "out" / "wandb").glob("offline-run-*-a-b-*/run-a-b-*.wandb")
    stored = run.read_bytes()
    for text in (b"train train loss avg", b"val CLMCrossEntropyLoss", b"No. parameters", b"${oc.env:THE_SECRET}"):
        assert text in stored
    left = [path for folder in ("root", "out", "profile") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert not [path for path in left if b"correct-horse-battery" in path.read_bytes()]


def _node(component_key: str, variant_key: str, **config: Any) -> dict[str, Any]:
    return {"component_key": component_key, "variant_key": variant_key, "config": config}


def _ref(name: str) -> dict[str, str]:
    return {"instance_key": name, "pass_type": "BY_REFERENCE"}
