"""The config of instruction-tuning data: what is refused, and how files are named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from modalities_pipeline.data.instruction.instruction_config import load_pbin_configs, load_plan
from modalities_pipeline.exceptions import ConfigError


@pytest.fixture
def write_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Function (changes of the settings, of the top level) -> path of a config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talks.v2.jsonl").touch()

    def write(settings: dict[str, Any] | None = None, **changes: Any) -> Path:
        config = {
            "settings": {
                "src_path": "talks.v2.jsonl",
                "dst_path": "out/talk.v1.jsonl",
                "messages_key": "talk",
                "split_config": {"splitting": {"train": 60, "val": 0, "test": 40}, "seed": 3},
                **(settings or {}),
            },
            "instruction_data_transformation": {"role_mapping": {"h": "a"}},
            "jinja2_chat_template": "x",
            "chat_template_data": {},
            **changes,
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        (
            {"split_config": {"splitting": {"train": 60, "val": 0, "test": 30}, "seed": 7}},
            {},
            "add up to 100, but are 90",
        ),
        ({"split_config": {"splitting": {"train": 120, "val": -20, "test": 0}, "seed": 7}}, {}, r"splitting\.val"),
        ({"split_config": {"splitting": {"train": 100, "val": 0, "test": 0}}}, {}, r"split_config\.seed: is missing"),
        ({"mesages_key": "x"}, {}, "mesages_key: unknown key; did you mean 'messages_key'"),
        ({"src_path": "none.jsonl"}, {}, r"settings\.src_path"),
        ({"dst_path": "out/x.pbin"}, {}, r"must not end with \.pbin"),
        ({}, {"jinja2_chat_template": "{{ 'a' }}\n{% if %}"}, "jinja2_chat_template: line 2 of the template"),
        ({}, {"chat_template": "x"}, "chat_template: unknown key"),
        ({}, {"chat_template_data": None}, "chat_template_data"),
    ],
)
def test_a_config_that_cannot_work_is_refused_with_file_line_and_key(settings, changes, message, write_config):
    with pytest.raises(ConfigError, match=rf"config\.yaml:[0-9]+:[0-9]+: .*{message}"):
        load_plan(write_config(settings, **changes))


@pytest.mark.parametrize(
    ("dst_path", "suffix"), [("out/talk.v1.jsonl", ".jsonl"), ("out/talk", ""), ("out/a.b.c", ".c")]
)
def test_names_of_partitions_never_coincide(dst_path, suffix, write_config):
    """Modalities gives all partitions one name where the stem of dst_path has a dot."""
    plan = load_plan(write_config({"dst_path": dst_path}))
    names = {
        plan.path(partition, ending) for partition in ("train", "val", "test") for ending in (None, ".idx", ".pbin")
    }
    assert len(names) == 9
    stem = Path(dst_path).stem
    assert plan.path("val") == Path(f"out/talks.v2_{plan.config_hash}/{stem}_val.{plan.config_hash}{suffix}")


def test_values_may_refer_to_others(write_config):
    data = {"name": "${instruction_data_transformation.role_mapping.h}"}
    plan = load_plan(write_config(jinja2_chat_template="{{ chat_template_data.name }}", chat_template_data=data))
    assert plan.template.render([]) == "a"


def test_packing_configs_are_made_for_the_partitions_that_are_written(write_config, tmp_path):
    (tmp_path / "pack.yaml").write_text("settings: {src_path: null, jq_pattern: .chat}\ntokenizer: {}\n")
    plan = load_plan(write_config({"pbin_creation_config_file_path": "pack.yaml"}))
    configs = load_pbin_configs(plan)
    assert list(configs) == ["train", "test"]
    assert configs["test"]["settings"] == {
        "src_path": str(plan.path("test")),
        "jq_pattern": ".chat",
        "index_path": str(plan.path("test", ".idx")),
        "dst_path": str(plan.path("test", ".pbin")),
    }
    assert load_pbin_configs(load_plan(write_config())) == {}
