"""What a config says of the inside of gpt2 is compared with what is inside."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.schemas import architecture_checks
from modalities_pipeline.config.schemas.architecture_checks import check_architecture
from modalities_pipeline.config.unbuilt import Unbuilt

TESTS = Path(__file__).parents[2]


def component(key: str, variant: str, **config: Any) -> Unbuilt:
    return Unbuilt(key, variant, None, SimpleNamespace(**config))  # type: ignore[arg-type]


def sections(
    groups: tuple[str, ...] = (),
    block_names: tuple[str, ...] = (),
    variant: str = "gpt2",
    weight_decay: float = 0.0,
    **base: Any,
) -> dict[str, Any]:
    model_raw = component("model", variant, **base)
    sharded = component("model", "fsdp2_wrapped", model=model_raw, block_names=list(block_names))
    model = component("model", "model_initialized", model=sharded)
    fields = {"weight_decay_groups_excluded": list(groups), "weight_decay": weight_decay}
    optimizer = component("optimizer", "adam_w", wrapped_model=model, **fields)
    return {"model_raw": model_raw, "sharded": sharded, "model": model, "optimizer": optimizer}


def found(**kwargs: Any) -> dict[str, tuple[str, bool]]:
    findings = check_architecture(sections(**kwargs))
    return {".".join(map(str, path)): (message, is_note) for path, message, is_note in findings}


@pytest.mark.parametrize(("variant", "block"), [("gpt2", "GPT2Block"), ("coca", "VisionTransformerBlock")])
def test_groups_and_classes_of_a_model_are_accepted(variant, block):
    groups = ("embedding", "layernorm", "linear")
    assert found(groups=groups, block_names=(block, "Linear"), variant=variant) == {}
    [(key, (message, is_note))] = found(groups=groups, variant=variant, weight_decay=0.1).items()
    assert key == "optimizer.config.weight_decay_groups_excluded"
    assert message == "leaves no parameter with weight decay, but weight_decay is 0.1; set that to 0"
    assert not is_note


def test_unknown_groups_are_faults_where_they_stand():
    [(key, (message, is_note))] = found(groups=("layernorm", "embeding")).items()
    assert key == "optimizer.config.weight_decay_groups_excluded.1"
    assert message == "gpt2 has no group of parameters 'embeding'; did you mean 'embedding'?"
    assert not is_note


def test_unknown_classes_to_shard_by_are_faults_where_they_stand():
    [(key, (message, _))] = found(block_names=("GPTBlock",)).items()
    assert key == "sharded.config.block_names.0"
    assert message.endswith("'GPTBlock'; did you mean 'GPT2Block'?")
    assert len(found(block_names=("GPT2Block",), variant="coca")) == 1


def test_a_model_of_which_every_rank_would_train_a_copy_is_a_fault():
    """Nothing adds up the gradients of a model that is not wrapped; what a wrapper of the user's does is not known."""
    for dp_degree, kinds, num_faults in (
        (2, ("model_initialized", "activation_checkpointed"), 1),
        (1, ("model_initialized",), 0),
        (2, ("model_initialized", "fsdp2_wrapped"), 0),
        (2, ("my_wrapper",), 0),
    ):
        model = component("model", "gpt2")
        for kind in kinds:
            model = component("model", kind, model=model)
        optimizer = component("optimizer", "adam_w", wrapped_model=model)
        settings = SimpleNamespace(step_profile=SimpleNamespace(dp_degree=dp_degree))
        findings = list(check_architecture({"settings": settings, "model": model, "optimizer": optimizer}))
        assert [finding.key_path for finding in findings] == [("model", "config")] * num_faults


def test_nothing_is_said_of_other_models():
    assert found(groups=("mine",), block_names=("Mine",), variant="my_model") == {}


def test_what_cannot_work_here_is_noted(monkeypatch):
    monkeypatch.setattr(architecture_checks.importlib.util, "find_spec", lambda name: None)
    notes = found(attention_implementation="dao_flash")
    assert notes.keys() == {"model_raw.config.attention_implementation"}
    assert all(is_note for _, is_note in notes.values())


@pytest.mark.parametrize(
    "changes", [{"activation_type": "gelu"}, {"fused_loss": {"target_key": "target_ids"}}], ids=["gelu", "fused_loss"]
)
def test_every_class_and_group_of_gpt2_is_known(make_gpt2_config, changes):
    node = {"component_key": "model", "variant_key": "gpt2", "config": make_gpt2_config(**changes)}
    _assert_known(ComponentFactory(Registry()).build_component(node), "gpt2")


def test_every_class_and_group_of_coca_is_known():
    config = yaml.safe_load((TESTS / "components" / "configs" / "training" / "coca.yaml").read_text("utf-8"))
    _assert_known(ComponentFactory(Registry()).build_component(config["model_raw"]), "coca")


def _assert_known(model: Any, name: str) -> None:
    assert {type(module).__name__ for module in model.modules()} <= set(architecture_checks._CLASSES[name])
    assert set(model.weight_decay_groups) == set(architecture_checks._GROUPS)
