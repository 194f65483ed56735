"""Losses, optimizers, schedulers and gradient clippers, as rows of the table of components."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import GRADIENT_CLIPPER, LOSS, LR_SCHEDULER, OPTIMIZER

_OPTIM = "modalities_pipeline.optim"
_CONFIGS = f"{_OPTIM}.configs"


def _loss(variant_key: str, name: str, description: str) -> ComponentEntity:
    builder, config = f"modalities_pipeline.loss_functions:{name}", f"{_OPTIM}.loss_configs:{name}Config"
    return ComponentEntity("loss", variant_key, builder, config, LOSS, description)


def _optimizer(variant_key: str, config: str, description: str) -> ComponentEntity:
    builder = f"{_OPTIM}.optimizers:get_{variant_key}"
    return ComponentEntity("optimizer", variant_key, builder, f"{_CONFIGS}:{config}", OPTIMIZER, description)


def _scheduler(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    types = f"{_OPTIM}.schedulers:{builder}", f"{_OPTIM}.scheduler_configs:{config}"
    return ComponentEntity("scheduler", variant_key, *types, LR_SCHEDULER, description)


def _clipper(variant_key: str, builder: str, config: str, description: str, *old_names: str) -> ComponentEntity:
    types = f"{_OPTIM}.gradient_clipping:{builder}", f"{_CONFIGS}:{config}"
    return ComponentEntity("gradient_clipper", variant_key, *types, GRADIENT_CLIPPER, description, old_names)


_CLIPPER, _LOGGING_ONLY = "FSDPGradientClipper", "FSDPLoggingOnlyGradientClipper"
_CLIPS = "scales gradients down whose total norm is larger than max_norm"
_MEASURES = "measures the total norm of the gradients for the reports, without changing them"

COMPONENTS: list[ComponentEntity] = [
    _loss("clm_cross_entropy_loss", "CLMCrossEntropyLoss", "cross entropy of the next token, in nats per token"),
    _loss(
        "nce_loss",
        "NCELoss",
        "noise contrastive estimation between two sets of embeddings (https://arxiv.org/abs/1807.03748)",
    ),
    _loss("weighted_sum", "WeightedSumLoss", "sum of the means of several losses, each times a weight"),
    _optimizer("adam", "AdamOptimizerConfig", "torch.optim.Adam, with weight decay as part of the gradient"),
    _optimizer("adam_w", "AdamWOptimizerConfig", "torch.optim.AdamW (https://arxiv.org/abs/1711.05101)"),
    _scheduler("dummy_lr", "get_dummy_lr", "DummyLRSchedulerConfig", "leaves the learning rate as it is"),
    _scheduler(
        "step_lr",
        "get_step_lr",
        "StepLRSchedulerConfig",
        "torch's StepLR: multiplies the learning rate by gamma every step_size steps",
    ),
    _scheduler(
        "constant_lr",
        "get_constant_lr",
        "ConstantLRSchedulerConfig",
        "torch's ConstantLR: a fraction of the learning rate for the first steps, then all of it",
    ),
    _scheduler(
        "linear_lr",
        "get_linear_lr",
        "LinearLRSchedulerConfig",
        "torch's LinearLR: from one fraction of the learning rate to another along a line",
    ),
    _scheduler(
        "onecycle_lr",
        "get_onecycle_lr",
        "OneCycleLRSchedulerConfig",
        "torch's OneCycleLR: up to max_lr and down again (https://arxiv.org/abs/1708.07120)",
    ),
    _scheduler(
        "cosine_annealing_lr",
        "get_cosine_annealing_lr",
        "CosineAnnealingLRSchedulerConfig",
        "torch's CosineAnnealingLR: down to eta_min along a cosine (https://arxiv.org/abs/1608.03983)",
    ),
    _scheduler(
        "linear_warmup_cosine_annealing_lr",
        "get_linear_warmup_cosine_annealing_lr",
        "LinearWarmupCosineAnnealingLRSchedulerConfig",
        "linear warm-up to max_lr, then along a cosine to final_lr, where it stays",
    ),
    _clipper("fsdp2", _CLIPPER, "FSDP2GradientClipperConfig", f"{_CLIPS}; for plain and FSDP2 models"),
    _clipper(
        "fsdp2_logging_only",
        _LOGGING_ONLY,
        "FSDP2LoggingOnlyGradientClipperConfig",
        f"{_MEASURES}; for plain and FSDP2 models",
    ),
    _clipper("fsdp1", _CLIPPER, "FSDP1GradientClipperConfig", f"{_CLIPS}; for FSDP1 models", "fsdp"),
    _clipper(
        "fsdp1_logging_only",
        _LOGGING_ONLY,
        "FSDP1LoggingOnlyGradientClipperConfig",
        f"{_MEASURES}; for FSDP1 models",
        "fsdp_logging_only",
    ),
    _clipper("dummy", "DummyGradientClipper", "DummyGradientClipperConfig", "does nothing, and reports the norm -1"),
]
