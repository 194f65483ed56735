"""Training configs as people have them for Modalities, from its first releases to its newest."""

from typing import Any

from modalities_models import fsdp1, fsdp2, gpt2, initialized, mesh
from modalities_nodes import (
    COLLATE_FN,
    ENV,
    LOSS_FN,
    Node,
    adam_w,
    app_state,
    clipper,
    distributed,
    loader,
    multi_dim,
    node,
    number,
    onecycle,
    packed,
    ref,
    resumable,
    rich_progress,
    saving,
    wandb,
)
from modalities_settings import DP_DEGREE, settings, target_from_data

STEP_PROFILE = settings()["step_profile"]
TOKENIZER = node("tokenizer/pretrained_hf_tokenizer", pretrained_model_name_or_path="data/tokenizer", padding=False)
CHECKPOINT = "${settings.warmstart_checkpoint_paths.checkpoint_folder_path}"
FSDP1_CHECKPOINT = "${settings.warmstart_checkpoint_paths.model_checkpoint_path}"
SEEN = "eid_2026-11-30-seen_steps_10-seen_tokens_2560-target_steps_20-target_tokens_5120"


def fsdp2_training(**changes: Any) -> Node:
    """One process, FSDP2, with every usual section."""
    return {
        "settings": settings(),
        "collate_fn": COLLATE_FN,
        "train_dataset": packed(),
        "train_dataloader": loader("train", "train_dataset", resumable("train_dataset")),
        "test_dataset": packed("${settings.paths.test_dataset_path}"),
        "val_dataloader": loader("val", "test_dataset", distributed("test_dataset")),
        "eval_dataloaders": [ref("val_dataloader")],
        "checkpoint_saving": saving(),
        "loss_fn": LOSS_FN,
        "device_mesh": mesh(),
        "dp_degree": DP_DEGREE,
        "app_state": app_state(),
        "model_raw": gpt2(),
        "fsdp_model": fsdp2("model_raw"),
        "app_model": initialized("fsdp_model"),
        "lr_scheduler": onecycle(),
        "optimizer": adam_w(),
        "gradient_clipper": clipper(),
        "progress_subscriber": rich_progress(),
        "evaluation_subscriber": wandb(),
        "mfu_calculator": node(
            "mfu_calculator/gpt2",
            n_layer=2,
            sequence_length=256,
            n_embd=128,
            world_size=ENV + "world_size}",
            wrapped_model=ref("fsdp_model"),
            device_mesh=ref("device_mesh"),
        ),
        **changes,
    }


def fsdp1_training(**changes: Any) -> Node:
    """FSDP1: initialised before it is wrapped, checkpoints as .bin files."""
    content = fsdp2_training(
        model_raw=gpt2(use_meta_device=False),
        initialized_model=initialized("model_raw"),
        app_model=fsdp1("initialized_model"),
        gradient_clipper=clipper("fsdp1"),
        checkpoint_saving=saving("fsdp1"),
        mfu_calculator=node(
            "mfu_calculator/gpt2",
            n_layer=2,
            sequence_length=256,
            n_embd=128,
            world_size=ENV + "world_size}",
            wrapped_model=ref("app_model"),
        ),
    )
    for unused in ("device_mesh", "dp_degree", "fsdp_model"):
        del content[unused]
    return {**content, **changes}


def seen_settings(checkpoint: str, **changes: Any) -> Node:
    """Settings of a warm start."""
    progress = {
        "global_num_seen_tokens": number("global_num_seen_tokens_from_checkpoint_path", checkpoint_path=checkpoint),
        "num_seen_steps": number("num_seen_steps_from_checkpoint_path", checkpoint_path=checkpoint),
        "num_seen_samples": number(
            "num_samples_from_num_tokens",
            num_tokens="${settings.training_progress.global_num_seen_tokens}",
            sequence_length="${settings.step_profile.sequence_length}",
        ),
        "last_step": number("last_step_from_checkpoint_path", checkpoint_path=checkpoint),
    }
    target = {
        "num_target_tokens": number("global_num_target_tokens_from_checkpoint_path", checkpoint_path=checkpoint),
        "num_target_steps": number("num_target_steps_from_checkpoint_path", checkpoint_path=checkpoint),
    }
    return settings(
        **{
            "training_progress": progress,
            "training_target": target,
            "warmstart_checkpoint_paths": "${warmstart_env:checkpoint_paths}",
            **changes,
        }
    )


def fsdp2_warmstart(**changes: Any) -> Node:
    """FSDP2 from a checkpoint folder."""
    return fsdp2_training(
        settings=seen_settings(CHECKPOINT),
        app_state_raw=app_state(),
        app_state=node("app_state/dcp", raw_app_state=ref("app_state_raw"), checkpoint_dir_path=CHECKPOINT),
        checkpoint_loading=node("checkpoint_loading/dcp", global_rank=ENV + "global_rank}"),
        **changes,
    )


def fsdp1_warmstart(prefix: str = "fsdp1_", loading: str = "fsdp1") -> Node:
    """FSDP1 from .bin files."""
    optimizer_path = "${settings.warmstart_checkpoint_paths.optimizer_checkpoint_path}"
    return fsdp1_training(
        settings=seen_settings(FSDP1_CHECKPOINT),
        checkpoint_loading=node(
            f"checkpoint_loading/{loading}",
            global_rank=ENV + "global_rank}",
            block_names=["GPT2Block"],
            mixed_precision_settings="FP_32",
            sharding_strategy="FULL_SHARD",
        ),
        app_model=node(
            f"model/{prefix}checkpointed",
            checkpoint_loading=ref("checkpoint_loading"),
            checkpoint_path=FSDP1_CHECKPOINT,
            model=ref("model_raw"),
        ),
        original_optimizer=adam_w(),
        optimizer=node(
            f"optimizer/{prefix}checkpointed",
            checkpoint_loading=ref("checkpoint_loading"),
            checkpoint_path=optimizer_path,
            wrapped_model=ref("app_model"),
            optimizer=ref("original_optimizer"),
        ),
    )


def pipeline_training(tensor_parallel: bool, hooks: bool = False) -> Node:
    """Pipeline parallelism over two processes, with tensor parallelism over two each if asked for."""
    degrees = {"pipeline": 2, "tensor": 2} if tensor_parallel else {"pipeline": 2}
    profile = STEP_PROFILE | {"dp_degree": ref("dp_degree"), "local_train_micro_batch_size": 2}
    content = fsdp2_training(
        settings=settings(step_profile=profile, training_target=target_from_data(ref("dp_degree"))),
        device_mesh=mesh(**degrees),
        train_dataloader=loader("train", "train_dataset", multi_dim("train_dataset")),
        val_dataloader=loader("val", "test_dataset", multi_dim("test_dataset", shuffle=False)),
        stages_generator=node(
            "stages_generator/gpt2_stages_generator",
            num_model_layers=2,
            input_layer_equivalence=1,
            output_layer_equivalence=1,
        ),
        staged_pipeline=node(
            "pipeline/staged",
            whole_model=ref("model_raw"),
            stages_generator=ref("stages_generator"),
            device_mesh=ref("device_mesh"),
            local_rank=ENV + "local_rank}",
            pp_schedule_name="1F1B",
            num_layers_per_stage=2,
        ),
        model_part=node("pipeline/selector", pipeline=ref("staged_pipeline"), selection_type="MODEL_PART"),
        fsdp_model=fsdp2("tp_model" if tensor_parallel else "model_part"),
        built_pipeline=node(
            "pipeline/builder",
            pp_stage=node("pipeline/selector", pipeline=ref("staged_pipeline"), selection_type="PP_STAGE"),
            model_part=ref("fsdp_model"),
        ),
        scheduled_pipeline=node(
            "pipeline/scheduled",
            loss_fn=ref("loss_fn"),
            pp_schedule_name="1F1B",
            batch_size="${settings.step_profile.local_train_micro_batch_size}",
            microbatch_size=1,
            pp_degree=number("parallel_degree", device_mesh=ref("device_mesh"), parallelism_methods=["pp"]),
            pipeline=ref("built_pipeline"),
        ),
        parts=node("pipeline/selector", pipeline=ref("scheduled_pipeline"), selection_type="MODEL_PART"),
        app_model=initialized("parts"),
        model_raw=gpt2(n_layer=2),
    )
    if tensor_parallel:
        content["tp_model"] = node("model/gpt2_tp", model=ref("model_part"), device_mesh=ref("device_mesh"))
    if hooks:
        content["nan_hooks"] = node("model_debugging_hook/nan_hook", model=ref("parts"), raise_exception=True)
        content["print_hooks"] = node(
            "model_debugging_hook/print_forward_hook", model=ref("parts"), print_shape_only=True
        )
        content["debugging"] = node(
            "debugging/settings", enable_determinism=True, forward_hooks=[ref("nan_hooks"), ref("print_hooks")]
        )
    return content
