"""Nodes as people write them in configs for Modalities: the settings of a training."""

from typing import Any

from modalities_nodes import ENV, PROFILE, Node, number, ref

_STEP = {
    "local_micro_batch_size": PROFILE + "local_train_micro_batch_size}",
    "sequence_length": PROFILE + "sequence_length}",
    "gradient_accumulation_steps": PROFILE + "gradient_accumulation_steps}",
}
DP_DEGREE = number("parallel_degree", device_mesh=ref("device_mesh"), parallelism_methods=["dp_shard", "dp_replicate"])
FROM_STEPS = {
    "num_target_tokens": number(
        "num_tokens_from_num_steps",
        num_steps="${settings.training_target.num_target_steps}",
        dp_degree=ref("dp_degree"),
        **_STEP,
    ),
    "num_target_steps": 20,
}


def target_from_data(dp_degree: Any = "${settings.step_profile.dp_degree}") -> Node:
    """settings.training_target, one pass over the data."""
    return {
        "num_target_tokens": number(
            "num_tokens_from_packed_mem_map_dataset_continuous",
            dataset_path="${settings.paths.train_dataset_path}",
            dp_degree=dp_degree,
            **_STEP,
        ),
        "num_target_steps": number(
            "num_steps_from_num_tokens",
            dp_degree=dp_degree,
            global_num_tokens="${settings.training_target.num_target_tokens}",
            **_STEP,
        ),
    }


def settings(**changes: Any) -> Node:
    """The section of a training, for one data parallel rank on each process unless changed."""
    values = {
        "experiment_id": "${modalities_env:experiment_id}",
        "config_file_path": "${modalities_env:config_file_path}",
        "referencing_keys": {"sample_key": "input_ids", "target_key": "target_ids", "prediction_key": "logits"},
        "cuda_env": {
            "local_rank": "${cuda_env:LOCAL_RANK}",
            "global_rank": "${cuda_env:RANK}",
            "world_size": "${cuda_env:WORLD_SIZE}",
        },
        "paths": {
            "experiments_root_path": "${modalities_env:experiments_root_path}",
            "checkpoint_saving_path": "data/checkpoints",
            "train_dataset_path": "data/train.pbin",
            "test_dataset_path": "data/test.pbin",
        },
        "intervals": {
            "training_log_interval_in_steps": 2,
            "checkpointing_interval_in_steps": 2,
            "evaluation_interval_in_steps": 2,
        },
        "consistency_enforcement": {
            "enforce_tokens_per_step_consistency": True,
            "enforce_last_step_logged": False,
            "enforce_last_step_evaluated": False,
            "enforce_last_step_checkpointed": False,
        },
        "step_profile": {
            "gradient_accumulation_steps": 1,
            "local_train_micro_batch_size": 1,
            "sequence_length": 256,
            "dp_degree": ENV + "world_size}",
        },
        "training_target": target_from_data(),
        "training_progress": {"global_num_seen_tokens": 0, "num_seen_steps": 0, "num_seen_samples": 0, "last_step": -1},
    }
    return {**values, **changes}
