"""No message about a config repeats what it read from the environment."""

from pathlib import Path

import pytest

from modalities_pipeline.config.check import check_config
from modalities_pipeline.config.checking.faults import fault_at
from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.resolution import ResolverContext, resolve
from modalities_pipeline.config.secrets import EnvironmentValues
from modalities_pipeline.config.yaml_files.resolved_file import render_with_origins
from modalities_pipeline.exceptions import ConfigError, UserError

CONFIGS = Path(__file__).parents[2] / "configs"
OPTIMIZER = """p:
  component_key: optimizer
  variant_key: adam_w
  config:
    wrapped_model: {instance_key: q, pass_type: BY_REFERENCE}
    lr: %s
"""
SOURCE = 's: {a: "${oc.env:SECRET}"}\n'
REFERENCES = {
    "direct": ('"${oc.env:SECRET}"', ""),
    "by reference": ('"${s.a}"', SOURCE),
    "selected": ('"${oc.select:s.a}"', SOURCE),
    "by a computed name": ('"${s.${w}}"', f"w: a\n{SOURCE}"),
    "deprecated": ('"${oc.deprecated:s.a}"', SOURCE),
    "values of a mapping": ('"${oc.dict.values:s}"', SOURCE),
    "through references": (
        '"${a}"',
        'a: "${b}"\nb: "${c}"\nc: "${d.e}"\nd: "${f}"\nf: {e: "${oc.env:SECRET}"}\n',
    ),
    "inside a text": ('"x-${s.a}-y"', SOURCE),
    "decoded": ("\"${oc.decode:'{k: ${oc.env:SECRET}}'}\"", ""),
    "a referred-to value": ("{instance_key: t, pass_type: BY_REFERENCE}", 't: "${oc.env:SECRET}"\n'),
}
NODES = {
    "variant_key": 'p: {component_key: optimizer, variant_key: "%s", config: {}}\n',
    "component_key": 'p: {component_key: "%s", variant_key: adam_w, config: {}}\n',
    "instance_key": 'p: {instance_key: "%s", pass_type: BY_REFERENCE}\n',
    "pass_type": 'q: {}\np: {instance_key: q, pass_type: "%s"}\n',
    "plugin": 'plugins: [{component_key: a, variant_key: b, component_path: "%s/m.py:X"}]\n',
    "path": "p: {component_key: number_conversion, variant_key: last_step_from_checkpoint_path, "
    'config: {checkpoint_path: "%s/x"}}\n',
    "key": "p: {component_key: optimizer, variant_key: adam_w, config: \"${oc.decode:'{%s: 3}'}\"}\n",
}


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Function yaml text -> all that is told about it: the check's report, and the resolved config with comments."""
    monkeypatch.setenv("SECRET", "s3cr3t")
    monkeypatch.setenv("OWN_TEXT", "${s3cr3t}")
    monkeypatch.setenv("PEM", "s3cr3t\nq9q9q9 ${x}")

    def texts_of(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        resolved = resolve(load_config(path), ResolverContext(check_only=True))
        return f"{check_config(path).text()}\n{render_with_origins(resolved)}"

    return texts_of


def _assert_hidden(text: str) -> None:
    assert "s3cr3t" not in text
    assert "q9q9q9" not in text


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")  # what oc.deprecated is for
@pytest.mark.parametrize("value", REFERENCES.values(), ids=REFERENCES)
def test_a_wrong_value_is_not_repeated_however_it_is_reached(texts, value):
    text = texts(OPTIMIZER % value[0] + value[1])
    assert "has to be a number" in text
    _assert_hidden(text)


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_no_part_of_a_node_is_repeated(texts, node):
    text = texts(node % "${oc.env:SECRET}")
    assert "<value of SECRET>" in text or "a value from the environment" in text
    _assert_hidden(text)


@pytest.mark.parametrize(
    "value",
    [
        "${modalities_env:${oc.env:SECRET}}",
        "${node_env:${oc.env:SECRET}}",
        "${warmstart_env:${oc.env:SECRET}}",
        "${oc.env:${oc.env:SECRET}}",
        "${cuda_env:${oc.env:SECRET}}",
        "${oc.decode:${oc.env:OWN_TEXT}}",
        "${oc.decode:${oc.env:PEM}}",
        "${nope.${oc.env:PEM}}",
        "${oc.dict.keys:${oc.env:PEM}}",
        "${oc.dict.values:${oc.env:SECRET}}",
        "${oc.select:${oc.env:SECRET},${nope}}",
    ],
)
def test_resolvers_do_not_repeat_their_arguments(texts, value):
    text = texts(f'a: "{value}"\n')
    assert ": a: " in text
    _assert_hidden(text)


@pytest.mark.parametrize(
    "text",
    [
        'loss_fn: {config: {prediction_key: "${oc.env:SECRET}"}}',
        'collate_fn: {config: {sample_key: "${oc.env:SECRET}"}}',
        'settings: {paths: {train_dataset_path: "/${oc.env:SECRET}/x.pbin"}}',
        'model_raw: {config: {n_embd: "${oc.decode:${oc.env:NUMBER}}", vocab_size: 128}}',
    ],
)
def test_cross_checks_and_notes_do_not_repeat_values(texts, monkeypatch, text):
    monkeypatch.setenv("NUMBER", "31337")
    told = texts(f"extends: {CONFIGS / 'train_base.yaml'}\n{text}\n").replace("s3cr3t", "LEAK").replace("31337", "LEAK")
    assert "<value of " in told
    assert "LEAK" not in told


def test_short_values_are_hidden_where_they_are_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("PIN", "123")
    path = tmp_path / "config.yaml"
    path.write_text(OPTIMIZER % '"${oc.env:PIN}x"', encoding="utf-8")
    (fault,) = [fault for fault in check_config(path).faults if fault.key_path[-1] == "lr"]
    assert fault.message == "has to be a number (given: a value from the environment)"


def test_what_a_component_says_when_it_is_built_does_not_repeat_values(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDER", str(tmp_path / "s3cr3t"))
    path = tmp_path / "config.yaml"
    path.write_text(
        "component:\n  component_key: tokenizer\n  variant_key: pretrained_sp_tokenizer\n"
        '  config: {tokenizer_model_file: "${oc.env:FOLDER}/x.model"}\n',
        encoding="utf-8",
    )
    document = load_config(path)
    node = resolve(document).data["component"]
    with pytest.raises(UserError) as error:
        ComponentFactory(Registry(), document).build_component(node)
    assert "<value of FOLDER>/x.model" in str(error.value)
    assert "s3cr3t" not in str(error.value)


def test_resolution_errors_do_not_repeat_values(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cr3t")
    path = tmp_path / "config.yaml"
    path.write_text('a: "${node_env:${oc.env:SECRET}}"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        resolve(load_config(path)).raise_if_unresolved()
    assert "unknown node_env variable '<value of SECRET>'" in str(error.value)


def test_the_ranks_are_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "12345")
    path = tmp_path / "config.yaml"
    path.write_text('a: "${oc.env:WORLD_SIZE}"\n', encoding="utf-8")
    document = load_config(path)
    resolve(document)
    assert fault_at(("a",), "is wrong (given: '12345')", document).message == "is wrong (given: '12345')"


def test_values_that_a_config_did_not_read_are_shown(tmp_path):
    document = ConfigDocument(tmp_path / "config.yaml", {"a": 1}, {})
    document.environment.add("TOKEN", "s3cr3t")
    assert fault_at(("a",), "is wrong (given: 1), not s3cr3t", document).message == (
        "is wrong (given: 1), not <value of TOKEN>"
    )


@pytest.mark.parametrize("value", [None, "true", "abc", "", True, {"a": "word"}])
def test_values_that_are_no_secrets_are_not_searched_for(value):
    values = EnvironmentValues()
    values.add("NAME", value)
    assert values.masked("true abc word") == "true abc word"


def test_the_longest_value_is_replaced_first():
    values = EnvironmentValues()
    values.add("A", "/data")
    values.add("B", "/data/x")
    assert values.masked("/data/x.pbin") == "<value of B>.pbin"
