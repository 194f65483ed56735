"""What a config says of the inside of gpt2 is compared with what is inside."""

from types import SimpleNamespace
from typing import Any

import pytest

from modalities_pipeline.config.schemas import architecture_checks
from modalities_pipeline.config.schemas.architecture_checks import check_architecture
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.models.gpt2 import build_gpt2


def component(key: str, variant: str, **config: Any) -> Unbuilt:
    return Unbuilt(key, variant, None, SimpleNamespace(**config))  # type: ignore[arg-type]


def sections(
    groups: tuple[str, ...] = (), block_names: tuple[str, ...] = (), variant: str = "gpt2", **base: Any
) -> dict[str, Any]:
    model_raw = component("model", variant, **base)
    sharded = component("model", "fsdp2_wrapped", model=model_raw, block_names=list(block_names))
    initializer = component("model_initialization", "composed", model_type=base.get("model_type", "gpt2"))
    model = component("model", "model_initialized", model=sharded, model_initializer=initializer)
    optimizer = component("optimizer", "adam_w", wrapped_model=model, weight_decay_groups_excluded=list(groups))
    return {"model_raw": model_raw, "sharded": sharded, "model": model, "optimizer": optimizer}


def found(**kwargs: Any) -> dict[str, tuple[str, bool]]:
    findings = check_architecture(sections(**kwargs))
    return {".".join(map(str, path)): (message, is_note) for path, message, is_note in findings}


def test_groups_and_classes_of_gpt2_are_accepted():
    assert found(groups=("embedding", "layernorm", "linear"), block_names=("GPT2Block", "Linear")) == {}


def test_unknown_groups_are_faults_where_they_stand():
    [(key, (message, is_note))] = found(groups=("layernorm", "embeding")).items()
    assert key == "optimizer.config.weight_decay_groups_excluded.1"
    assert message == "gpt2 has no group of parameters 'embeding'; did you mean 'embedding'?"
    assert not is_note


def test_unknown_classes_to_shard_by_are_faults_where_they_stand():
    [(key, (message, _))] = found(block_names=("GPTBlock",)).items()
    assert key == "sharded.config.block_names.0"
    assert message.endswith("'GPTBlock'; did you mean 'GPT2Block'?")


def test_nothing_is_said_of_other_models():
    assert found(groups=("mine",), block_names=("Mine",), variant="my_model") == {}


def test_what_cannot_work_here_is_noted(monkeypatch):
    monkeypatch.setattr(architecture_checks.importlib.util, "find_spec", lambda name: None)
    notes = found(attention_implementation="dao_flash", model_type="coca")
    assert notes.keys() == {"model_raw.config.attention_implementation", "model.config.model_initializer"}
    assert all(is_note for _, is_note in notes.values())


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_every_class_and_group_of_gpt2_is_known(make_gpt2_config, activation):
    model = build_gpt2(**make_gpt2_config(activation_type=activation))
    assert {type(module).__name__ for module in model.modules()} <= set(architecture_checks._CLASSES_OF_GPT2)
    assert set(model.weight_decay_groups) == set(architecture_checks._GROUPS_OF_GPT2)
