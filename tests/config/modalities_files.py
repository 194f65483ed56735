"""Configs for Modalities that train nothing: profiling, generation, packing, and parts of configs."""

from modalities_models import fsdp1, fsdp2, gpt2, initialized, mesh
from modalities_nodes import LOSS_FN, Node, adam_w, clipper, node, number, packed, ref, saving
from modalities_settings import settings


def profiling() -> Node:
    """Forward and backward passes of a model on random tokens."""
    return {
        "settings": {"experiment_id": "${modalities_env:experiment_id}", "cuda_env": settings()["cuda_env"]},
        "device_mesh": mesh(),
        "model_raw": gpt2(),
        "fsdp_model": fsdp2("model_raw"),
        "initialized_model": initialized("fsdp_model"),
        "loss_fn": LOSS_FN,
        "batches": node(
            "dataset_batch_generator/random",
            dims={"batch_size": 2, "sequence_length": 256},
            data_type="int64",
            min_val=0,
            max_val=50303,
        ),
        "steppable_component": node(
            "steppable_component/forward_pass",
            model=ref("initialized_model"),
            dataset_batch_generator=ref("batches"),
            loss_fn=ref("loss_fn"),
        ),
        "profiler": node("steppable_profiler/no_profiler"),
    }


def generation(norms_as_components: bool) -> Node:
    """Text generation from a .bin checkpoint; the first releases gave the norms as components."""
    model = gpt2(use_meta_device=False)
    if norms_as_components:
        for name in ("attention_norm", "ffn_norm", "lm_head_norm"):
            del model["config"][f"{name}_config"]
            model["config"][name] = node("layer_norm/layer_norm", normalized_shape=128)
    return {
        "settings": {
            "referencing_keys": {"sample_key": "input_ids", "prediction_key": "logits"},
            "model_path": "model.bin",
            "device": "cpu",
            "sequence_length": 256,
        },
        "text_inference_component": node(
            "inference_component/text",
            device="${settings.device}",
            model=ref("checkpointed_model"),
            tokenizer=ref("tokenizer"),
            sequence_length="${settings.sequence_length}",
            eod_token="<|endoftext|>",
            prompt_template="{prompt_input}",
            temperature=1.0,
        ),
        "model_raw": model,
        "checkpointed_model": node(
            "model/fsdp1_checkpointed",
            checkpoint_loading=node("checkpoint_loading/torch", device="${settings.device}", precision="BF16"),
            model=ref("model_raw"),
            checkpoint_path="${settings.model_path}",
        ),
        "tokenizer": node("tokenizer/pretrained_hf_tokenizer", pretrained_model_name_or_path="data/tokenizer"),
    }


def packing(tokenizer: Node) -> Node:
    """A packing config."""
    return {
        "settings": {
            "src_path": "raw.jsonl",
            "dst_path": "raw.pbin",
            "index_path": "raw.idx",
            "jq_pattern": ".text",
            "num_cpus": "${node_env:num_cpus}",
            "eod_token": "<|endoftext|>",
            "processing_batch_size": 10,
            "raw_samples_queue_size": 300,
            "processed_samples_queue_size": 300,
        },
        "tokenizer": tokenizer,
    }


def parts() -> Node:
    """What no complete file of Modalities has, but its tests or its table."""
    checkpointing = {"layers_fqn": "transformer.h", "model": ref("model")}
    schedule = {"optimizer": ref("plain_optimizer")}
    return {
        "settings": settings(training_target={"num_target_tokens": 5120, "num_target_steps": 20}),
        "model": gpt2(seed=1, use_weight_tying=False),
        "llama_model": initialized("model", node("model_initialization/gpt2_llama3_like", num_layers=2, n_embd=128)),
        "full": node(
            "model/activation_checkpointed",
            ac_variant="full_activation_checkpointing",
            ac_fun_params={},
            **checkpointing,
        ),
        "layers": node(
            "model/activation_checkpointed",
            ac_variant="selective_layer_activation_checkpointing",
            ac_fun_params={"ac_freq": 2},
            **checkpointing,
        ),
        "operations": node(
            "model/activation_checkpointed",
            ac_variant="selective_op_activation_checkpointing",
            ac_fun_params={"save_ops_keys": ["ops.aten.mm.default"]},
            **checkpointing,
        ),
        "fsdp1_model": fsdp1("model"),
        "legacy": node(
            "model/activation_checkpointed_fsdp1",
            model=ref("fsdp1_model"),
            activation_checkpointing_modules=["GPT2Block"],
        ),
        "debugged": node("model/debugging_enriched", model=ref("model"), logging_dir_path="logs", tracked_ranks=[0]),
        "norms": [
            node("layer_norm/layer_norm", normalized_shape=128),
            node("layer_norm/rms_norm", ndim=128),
            node("layer_norm/pytorch_rms_norm", normalized_shape=128),
        ],
        "device_mesh": mesh(),
        "logging_clipper": clipper("fsdp2_logging_only", "model"),
        "plain_optimizer": node("optimizer/adam", **adam_w("llama_model")["config"]),
        "schedulers": [
            node("scheduler/dummy_lr", **schedule),
            node("scheduler/constant_lr", factor=0.5, total_iters=5, **schedule),
            node("scheduler/linear_lr", start_factor=0.1, end_factor=1.0, total_iters=5, **schedule),
            node("scheduler/cosine_annealing_lr", t_max=10, eta_min=0.0, **schedule),
            node(
                "scheduler/linear_warmup_cosine_annealing_lr",
                warmup_steps=2,
                total_steps=10,
                initial_lr=0.0,
                final_lr=1e-5,
                max_lr=1e-4,
                **schedule,
            ),
        ],
        "saving": saving(strategy=node("checkpoint_saving_strategy/save_every_k_steps_checkpointing_strategy", k=5)),
        "combined": node("dataset/combined", datasets=[packed(), packed(sequence_length=256)]),
        "megatron": node(
            "dataset/packed_mem_map_dataset_megatron",
            raw_data_path="data/a.pbin",
            block_size=128,
            sample_key="input_ids",
        ),
        "in_order": node("sampler/sequential_sampler", data_source=ref("combined")),
        "batches": [
            number("local_num_batches_from_num_samples", num_ranks=2, global_num_samples=64, local_micro_batch_size=4),
            number(
                "local_num_batches_from_num_tokens",
                num_ranks=2,
                global_num_tokens=6400,
                sequence_length=10,
                local_micro_batch_size=4,
            ),
        ],
        "subscribers": [
            node("results_subscriber/dummy"),
            node("results_subscriber/rich", num_ranks=1, global_rank=0),
        ],
    }
