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


@pytest.mark.parametrize(("loading", "num_faults"), [("fsdp1", 0), ("torch", 1)])
def test_a_model_that_is_loaded_by_fsdp1_is_sharded_by_it(loading, num_faults):
    """A warm start from files of FSDP1 runs on several ranks."""
    model = component(
        "model",
        "fsdp1_checkpointed",
        model=component("model", "gpt2"),
        checkpoint_loading=component("checkpoint_loading", loading),
    )
    optimizer = component("optimizer", "adam_w", wrapped_model=model)
    settings = SimpleNamespace(step_profile=SimpleNamespace(dp_degree=2))
    findings = list(check_architecture({"settings": settings, "model": model, "optimizer": optimizer}))
    assert len(findings) == num_faults


def test_a_model_of_hugging_face_has_no_groups():
    [(key, (message, is_note))] = found(groups=("layernorm",), variant="huggingface_pretrained_model").items()
    assert key == "optimizer.config.weight_decay_groups_excluded"
    assert message == "huggingface_pretrained_model has no groups of parameters; set it to []"
    assert not is_note
    assert found(variant="huggingface_pretrained_model", weight_decay=0.1) == {}


def test_a_model_of_hugging_face_has_to_be_sharded_like_others():
    model = component("model", "huggingface_pretrained_model")
    optimizer = component("optimizer", "adam_w", wrapped_model=model)
    settings = SimpleNamespace(step_profile=SimpleNamespace(dp_degree=2))
    (finding,) = check_architecture({"settings": settings, "model": model, "optimizer": optimizer})
    assert "wrap the model with fsdp2_wrapped" in finding.message


def _checkpointed(inner: Unbuilt, layers_fqn: str) -> dict[str, str]:
    model = component("model", "activation_checkpointed", model=inner, layers_fqn=layers_fqn)
    optimizer = component("optimizer", "adam_w", wrapped_model=model)
    findings = check_architecture({"model": model, "optimizer": optimizer})
    return {".".join(map(str, finding.key_path)): finding.message for finding in findings}


def test_layers_that_a_model_lacks_are_a_fault():
    gpt2, coca = component("model", "gpt2"), component("model", "coca")
    assert _checkpointed(gpt2, "transformer.h") == {}
    assert _checkpointed(coca, "multimodal_decoder.transformer.h") == {}
    message = "gpt2 has no layers 'transformer.layers'; it has transformer.h"
    assert _checkpointed(gpt2, "transformer.layers") == {"model.config.layers_fqn": message}
    assert list(_checkpointed(coca, "transformer.h")) == ["model.config.layers_fqn"]
    assert _checkpointed(component("model", "mine"), "anything") == {}


def test_activation_checkpointing_around_layers_that_are_compiled_is_a_fault():
    gpt2 = component("model", "gpt2")
    compiled = component("model", "compiled", model=gpt2, block_names=["GPT2Block"])
    assert _checkpointed(compiled, "transformer.h") == {
        "model.config.model": "its layers are compiled already; apply activation_checkpointed first, then compiled"
    }
    parts_only = component("model", "compiled", model=gpt2, block_names=["TransformerMLP"])
    assert _checkpointed(parts_only, "transformer.h") == {}


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
    for layers_fqn, class_name in architecture_checks._LAYERS[name].items():
        assert {type(layer).__name__ for layer in _layers(model.get_submodule(layers_fqn))} == {class_name}


def _layers(holder: Any) -> list[Any]:
    return list(holder.values() if hasattr(holder, "values") else holder)
