"""Configs of a sweep: where they are, and that they say what their author wrote."""

import re
from pathlib import Path

import pytest

from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.exceptions import ConfigError, OutputExistsError, UserError
from modalities_pipeline.sweeps import sweep_configs
from modalities_pipeline.sweeps.sweep_configs import prepare_sweep_configs

TIME = r"\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d"
CONFIG = """\
# what is swept
sweep:
  learning_rate: [1e-3, 1.0E-4]  # two
  model:
    depth:
      - 2
      - 4

# the rest
anchored: &shared {a: "1e-4", b: 010x}
settings: {lr: "${sweep.learning_rate}", other: *shared}
"""


@pytest.fixture
def prepare(tmp_path):
    """Function (text, world sizes) -> the configs that are written for it, in order of their paths."""

    def prepare_text(text: str, world_sizes: tuple[int, ...] = (2,)) -> list[Path]:
        path = tmp_path / "in" / "config.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        folder, num_configs = prepare_sweep_configs(path, tmp_path / "out", world_sizes)
        configs = sorted(folder.rglob("*.yaml"))
        assert len(configs) == num_configs
        return configs

    return prepare_text


def _sweeps(configs: list[Path]) -> list[dict]:
    return [load_config(config).data["sweep"] for config in configs]


def test_folders_are_named_as_in_modalities(prepare, tmp_path):
    configs = prepare(CONFIG, (2, 16))
    assert len(configs) == 8
    pattern = rf"{TIME}_[0-9a-f]{{16}}/(2|16)/[0-9a-f]{{16}}_{TIME}/config\.yaml"
    names = [config.relative_to(tmp_path / "out").as_posix() for config in configs]
    assert all(re.fullmatch(pattern, name) for name in names), names


def test_each_combination_is_written_once(prepare):
    expected = [{"learning_rate": lr, "model": {"depth": depth}} for lr in (0.001, 0.0001) for depth in (2, 4)]
    assert sorted(map(str, _sweeps(prepare(CONFIG)))) == sorted(map(str, expected))


def test_all_but_the_sweep_stays_as_it_was_written(prepare):
    text = prepare(CONFIG)[0].read_text("utf-8")
    assert text.startswith("# what is swept\nsweep:\n  learning_rate: ")
    assert text.endswith(CONFIG[CONFIG.index("\n# the rest") :])


def test_values_of_every_kind_are_read_back_as_they_were(prepare):
    """B076: what looks like a number and was text stays text."""
    values = [
        *('"1e-4"', "'010'", '"no"', '""', "'a: b # c'", '"ä \\U0001F600 \\n\\ttab\\u2028"', "0x10", "1_000"),
        *("null", "true", ".inf", "-1.5e-7", "1e300", "{k: [1, '2'], n: {m: ~}}", "[[1], ['1']]", "2024-01-01"),
        *("'${a.b}'", '"# x"', '"- x"', "'~'", '".5"', "'5.'", "'.nan'"),
    ]
    configs = prepare("sweep:\n  a:\n" + "".join(f"    - {value}\n" for value in values))
    assert len(configs) == len(values)
    expected = load_config(configs[0].parents[4] / "in" / "config.yaml").data["sweep"]["a"]
    assert sorted(repr(sweep["a"]) for sweep in _sweeps(configs)) == sorted(map(repr, expected))


def test_a_config_that_extends_another_finds_it_from_its_new_folder(prepare, tmp_path):
    (tmp_path / "base.yaml").write_text("kept: 1\nsweep: {a: [1, 2], b: 7}\nremoved: 3\n")
    text = "extends: ../base.yaml\nremoved: !remove\nsweep: {a: [3, 4]}\n"
    configs = prepare(text)
    for config in configs:
        data = load_config(config).data
        assert data["kept"] == 1
        assert "removed" not in data
    assert sorted(sweep["a"] for sweep in _sweeps(configs)) == [3, 4]
    assert all(sweep["b"] == 7 for sweep in _sweeps(configs))


def test_a_sweep_that_only_the_extended_config_has_is_written_out(prepare, tmp_path):
    (tmp_path / "base.yaml").write_text("sweep: {a: [1, 2]}\n")
    configs = prepare("extends: [../base.yaml]\nb: 1")
    assert sorted(sweep["a"] for sweep in _sweeps(configs)) == [1, 2]
    assert load_config(configs[0]).data["b"] == 1


def test_plugins_in_files_are_found_from_the_new_folder(prepare, tmp_path):
    text = "plugins:\n  - {component_key: a, variant_key: b, component_path: my/code.py:Name, config_path: pkg.m:C}\n"
    [config] = prepare(f"sweep: {{a: [1]}}\n{text}")
    [plugin] = load_config(config).data["plugins"]
    assert plugin["component_path"] == f"{tmp_path.resolve()}/in/my/code.py:Name"
    assert plugin["config_path"] == "pkg.m:C"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("swep: {a: [1]}\n", r"config\.yaml: there is no section 'sweep'; did you mean 'swep'\?"),
        ("", "there is no section 'sweep'"),
        ("sweep: [1, 2]\n", "sweep: has to be a mapping"),
        ("sweep: {a: []}\n", r"config\.yaml: sweep\.a: the list is empty"),
        ("sweep: {a: &x [1, 2]}\nb: *x\n", "the section 'sweep' cannot be replaced"),
        ('{sweep: {a: [1, "2"]}, b: {c: "${sweep.a}"}}', r"config\.yaml: .* without braces"),
        ("sweep: {a: [1\n", r"config\.yaml:"),
    ],
)
def test_a_sweep_that_cannot_be_made_leaves_nothing_behind(prepare, tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        prepare(text)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_a_second_sweep_in_the_same_second_does_not_touch_the_first(prepare, monkeypatch):
    monkeypatch.setattr(sweep_configs, "time_of_folders", lambda: "2030-01-01__00-00-00")
    [config, *_] = prepare(CONFIG)
    with pytest.raises(OutputExistsError, match="exists already"):
        prepare(CONFIG)
    assert config.exists()


@pytest.mark.parametrize("world_sizes", [(), (0,), (2, -1)])
def test_world_sizes_that_are_none_are_refused(prepare, world_sizes):
    with pytest.raises(UserError, match="World sizes"):
        prepare(CONFIG, world_sizes)
