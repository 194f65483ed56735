"""Nodes as people write them in configs for Modalities: data, optimisation, checkpoints, reports."""

from typing import Any

Node = dict[str, Any]

PROFILE = "${settings.step_profile."
ENV = "${settings.cuda_env."


def ref(name: str) -> Node:
    """A reference to a top-level key."""
    return {"instance_key": name, "pass_type": "BY_REFERENCE"}


def node(name: str, **config: Any) -> Node:
    """A component, `name` being component_key/variant_key."""
    component_key, variant_key = name.split("/")
    return {"component_key": component_key, "variant_key": variant_key, "config": config}


def number(variant: str, **config: Any) -> Node:
    """A number conversion."""
    return node(f"number_conversion/{variant}", **config)


def packed(path: str = "${settings.paths.train_dataset_path}", **changes: Any) -> Node:
    """dataset/packed_mem_map_dataset_continuous."""
    config = {"raw_data_path": path, "sequence_length": PROFILE + "sequence_length}", "sample_key": "input_ids"}
    return node("dataset/packed_mem_map_dataset_continuous", **{**config, **changes})


def resumable(dataset: str, **changes: Any) -> Node:
    """sampler/resumable_distributed_sampler."""
    config = {
        "dataset": ref(dataset),
        "rank": ENV + "global_rank}",
        "num_replicas": ENV + "world_size}",
        "shuffle": True,
        "seed": 42,
        "drop_last": True,
        "skip_num_global_samples": "${settings.training_progress.num_seen_samples}",
    }
    return node("sampler/resumable_distributed_sampler", **{**config, **changes})


def multi_dim(dataset: str, **changes: Any) -> Node:
    """sampler/resumable_distributed_multi_dim_sampler."""
    config = {
        "dataset": ref(dataset),
        "device_mesh": ref("device_mesh"),
        "data_parallel_key": "dp_shard",
        "shuffle": True,
        "seed": 42,
        "drop_last": True,
        "skip_num_global_samples": "${settings.training_progress.num_seen_samples}",
    }
    return node("sampler/resumable_distributed_multi_dim_sampler", **{**config, **changes})


def distributed(dataset: str) -> Node:
    """sampler/distributed_sampler."""
    return node(
        "sampler/distributed_sampler",
        rank=ENV + "global_rank}",
        num_replicas=ENV + "world_size}",
        shuffle=False,
        dataset=ref(dataset),
        drop_last=True,
    )


def loader(tag: str, dataset: str, sampler: Node, collate_fn: str = "collate_fn") -> Node:
    """data_loader/default with its batch sampler."""
    batch_sampler = node(
        "batch_sampler/default",
        batch_size=PROFILE + "local_train_micro_batch_size}",
        drop_last=True,
        sampler=sampler,
    )
    return node(
        "data_loader/default",
        num_workers=2,
        pin_memory=True,
        dataloader_tag=tag,
        dataset=ref(dataset),
        batch_sampler=batch_sampler,
        collate_fn=ref(collate_fn),
    )


COLLATE_FN = node("collate_fn/gpt_2_llm_collator", sample_key="input_ids", target_key="target_ids")
LOSS_FN = node("loss/clm_cross_entropy_loss", target_key="target_ids", prediction_key="logits")


def adam_w(model: str = "app_model", **changes: Any) -> Node:
    """optimizer/adam_w."""
    config = {
        "lr": 0.0001,
        "betas": [0.9, 0.95],
        "eps": 1e-8,
        "weight_decay": 1e-1,
        "weight_decay_groups_excluded": ["embedding", "layernorm"],
        "wrapped_model": ref(model),
    }
    return node("optimizer/adam_w", **{**config, **changes})


def onecycle(**changes: Any) -> Node:
    """scheduler/onecycle_lr."""
    config = {
        "optimizer": ref("optimizer"),
        "max_lr": 6e-4,
        "div_factor": 10,
        "final_div_factor": 1,
        "total_steps": "${settings.training_target.num_target_steps}",
        "pct_start": 0.01,
        "anneal_strategy": "cos",
        "last_epoch": "${settings.training_progress.last_step}",
    }
    return node("scheduler/onecycle_lr", **{**config, **changes})


def clipper(variant: str = "fsdp2", model: str = "app_model", **changes: Any) -> Node:
    """gradient_clipper/..., with the names of the version that has FSDP2."""
    config = {"wrapped_model": ref(model), "norm_type": "P2_NORM"}
    if "logging_only" not in variant:
        config["max_norm"] = 1.0
    if "fsdp2" in variant:
        config["device_mesh"] = ref("device_mesh")
    return node(f"gradient_clipper/{variant}", **{**config, **changes})


def app_state(model: str = "app_model") -> Node:
    """app_state/raw."""
    return node("app_state/raw", model=ref(model), optimizer=ref("optimizer"), lr_scheduler=ref("lr_scheduler"))


def saving(execution: str = "dcp", strategy: Node | None = None) -> Node:
    """checkpoint_saving/default."""
    most_recent = node("checkpoint_saving_strategy/save_k_most_recent_checkpoints_strategy", k=-1)
    return node(
        "checkpoint_saving/default",
        checkpoint_saving_strategy=strategy or most_recent,
        checkpoint_saving_execution=node(
            f"checkpoint_saving_execution/{execution}",
            checkpoint_path="${settings.paths.checkpoint_saving_path}",
            global_rank=ENV + "global_rank}",
            experiment_id="${settings.experiment_id}",
        ),
    )


def rich_progress() -> Node:
    """progress_subscriber/rich."""
    return node(
        "progress_subscriber/rich",
        global_rank=ENV + "global_rank}",
        num_seen_steps="${settings.training_progress.num_seen_steps}",
        num_target_steps="${settings.training_target.num_target_steps}",
        train_dataloader_tag="train",
        eval_dataloaders=ref("eval_dataloaders"),
    )


def wandb() -> Node:
    """results_subscriber/wandb."""
    return node(
        "results_subscriber/wandb",
        global_rank=ENV + "global_rank}",
        project="pre_training",
        mode="OFFLINE",
        experiment_id="${settings.experiment_id}",
        directory="wandb_storage",
        config_file_path="${settings.config_file_path}",
    )
