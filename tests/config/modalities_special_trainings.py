"""Training configs for Modalities that do something special: images, chats, models of the user's own, old names."""

from modalities_models import coca, composed, fsdp1, fsdp2, gpt2, initialized
from modalities_nodes import (
    COLLATE_FN,
    ENV,
    Node,
    adam_w,
    clipper,
    node,
    number,
    onecycle,
    packed,
    ref,
    saving,
)
from modalities_settings import FROM_STEPS, settings
from modalities_trainings import STEP_PROFILE, TOKENIZER, fsdp1_training, fsdp2_training


def coca_training() -> Node:
    """CoCa on random images and texts."""
    steps = number(
        "num_steps_from_num_samples",
        num_ranks=ENV + "world_size}",
        local_micro_batch_size="${settings.step_profile.local_train_micro_batch_size}",
        global_num_samples=64,
        gradient_accumulation_steps="${settings.step_profile.gradient_accumulation_steps}",
    )
    target = {**FROM_STEPS, "num_target_steps": steps}
    target["num_target_tokens"]["config"]["dp_degree"] = ENV + "world_size}"
    samples = [
        {"sample_key": "images", "sample_shape": [3, 224, 224], "sample_type": "float"},
        {"sample_key": "input_ids", "sample_shape": [257], "sample_type": "int"},
    ]
    return fsdp1_training(
        settings=settings(
            training_target=target, referencing_keys={"sample_key": "images", "target_key": "target_ids"}
        ),
        collate_fn=node(
            "collate_fn/coca_collator",
            sample_keys=["images", "input_ids"],
            target_keys=[],
            text_sample_key="input_ids",
            text_target_key="target_ids",
        ),
        train_dataset=node("dataset/dummy_dataset", num_samples=64, sample_definition=samples),
        test_dataset=node("dataset/dummy_dataset", num_samples=8, sample_definition=samples),
        model_raw=coca(),
        initialized_model=initialized("model_raw", composed("coca", weight_init_type="plain", num_layers=None)),
        app_model=fsdp1("initialized_model", block_names=("TransformerBlock", "VisionTransformerBlock")),
        gradient_clipper=clipper("fsdp1_logging_only"),
        optimizer=adam_w(weight_decay_groups_excluded=[]),
        mfu_calculator=None,
    )


def instruction_tuning() -> Node:
    """A Hugging Face model on chats, the loss of the assistant's words only."""
    return fsdp2_training(
        tokenizer=node(
            "tokenizer/pretrained_hf_tokenizer",
            pretrained_model_name_or_path="data/tokenizer",
            special_tokens={"additional_special_tokens": ["b_include", "e_include"]},
        ),
        collate_fn=node(
            "collate_fn/mask_loss_collator_wrapper",
            wrapped_collate_fn=COLLATE_FN,
            target_keys_to_mask=["target_ids"],
            loss_ignore_index=-100,
            mask_tokens={"b_include_to_loss_token": "b_include", "e_include_to_loss_token": "e_include"},
            tokenizer=ref("tokenizer"),
        ),
        train_dataset=packed(reuse_last_target=False),
        model_raw=node(
            "model/huggingface_pretrained_model",
            model_type="AutoModelForCausalLM",
            model_name="data/Qwen2.5-0.5B",
            prediction_key="logits",
            huggingface_prediction_subscription_key="logits",
            sample_key="input_ids",
        ),
        app_model=fsdp2("model_raw", block_names=["Qwen2DecoderLayer"]),
        optimizer=adam_w(weight_decay_groups_excluded=[]),
        mfu_calculator=None,
        fsdp_model=None,
    )


def getting_started() -> Node:
    """FSDP1 with a step scheduler."""
    step = node("scheduler/step_lr", optimizer=ref("optimizer"), step_size=1, gamma=0.1)
    return fsdp1_training(lr_scheduler=step, mfu_calculator=None)


def einsum_transformer() -> Node:
    """A model of the user's own, compiled, with reports on disc and profilers."""
    waits = {"num_wait_steps": 1, "num_warmup_steps": 1, "num_active_steps": 1, "tracked_ranks": [0]}
    kernel = node(
        "steppable_profiler/kernel_tracing",
        profiler_activities=["CPU", "CUDA"],
        profile_memory=True,
        record_shapes=True,
        with_flops=True,
        with_stack=True,
        with_modules=True,
        output_folder_path="profiles",
        **waits,
    )
    return fsdp2_training(
        plugins=[
            {
                "component_key": "model",
                "variant_key": "einsum_transformer",
                "component_path": "einsum_transformer.py:EinsumTransformer",
            }
        ],
        settings=settings(step_profile=STEP_PROFILE | {"dp_degree": ref("dp_degree")}, training_target=FROM_STEPS),
        model_raw=node(
            "model/einsum_transformer", n_layer=2, n_embd=128, sample_key="input_ids", prediction_key="logits"
        ),
        compiled_model=node(
            "model/compiled", model=ref("model_raw"), block_names=["Block"], fullgraph=True, debug=False
        ),
        fsdp_model=fsdp2("compiled_model", block_names=["Block"]),
        evaluation_subscriber=node("results_subscriber/to_disc", output_file_path="results/evaluation_results.jsonl"),
        profiler=node(
            "steppable_profiler/combined",
            profilers=[
                kernel,
                node("steppable_profiler/memory_tracing", memory_snapshot_folder_path="profiles", **waits),
            ],
        ),
        mfu_calculator=None,
    )


def before_the_app_state() -> Node:
    """As in the first releases: no app_state, variants that have other names now, no use_weight_tying."""
    content = fsdp1_training(
        model_raw=gpt2(use_meta_device=False),
        model=initialized("model_raw"),
        wrapped_model=fsdp1("model", "fsdp_wrapped"),
        optimizer=adam_w("wrapped_model"),
        scheduler=onecycle(),
        gradient_clipper=clipper("fsdp", "wrapped_model"),
        checkpoint_saving=saving("fsdp"),
        progress_subscriber=node("progress_subscriber/dummy"),
    )
    del content["model_raw"]["config"]["use_weight_tying"]
    for later in ("app_state", "app_model", "initialized_model", "lr_scheduler", "mfu_calculator"):
        del content[later]
    del content["settings"]["paths"]["experiments_root_path"]
    return content


def library_usage() -> Node:
    """Samples straight from JSON lines, and a collator of the user's own."""
    steps = number(
        "num_steps_from_raw_dataset_index",
        raw_index_path="data/raw.idx",
        dp_degree=ref("dp_degree"),
        local_micro_batch_size="${settings.step_profile.local_train_micro_batch_size}",
        gradient_accumulation_steps="${settings.step_profile.gradient_accumulation_steps}",
    )
    plugin = {
        "component_key": "collate_fn",
        "variant_key": "custom_gpt_2_llm_collator",
        "component_path": "custom_collator.py:CustomCollator",
    }
    clip = clipper()
    del clip["config"]["device_mesh"]
    return fsdp2_training(
        plugins=[plugin],
        settings=settings(training_target={**FROM_STEPS, "num_target_steps": steps}),
        tokenizer=TOKENIZER,
        collate_fn=node("collate_fn/custom_gpt_2_llm_collator", sample_key="input_ids", target_key="target_ids"),
        train_dataset=node(
            "dataset/mem_map_dataset",
            raw_data_path="raw.jsonl",
            index_path="raw.idx",
            tokenizer=ref("tokenizer"),
            jq_pattern=".text",
            sample_key="input_ids",
        ),
        gradient_clipper=clip,
    )
