"""A resolved config is written so that it can be read again, and without what comes from the environment."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.origins import ConfigDocument, Origin
from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.config.resolution import ResolverContext, resolve
from modalities_pipeline.config.yaml_files.resolved_file import render_with_origins, to_plain, write_resolved
from modalities_pipeline.exceptions import ConfigError

CHECK = ResolverContext(check_only=True)
SECRET = "hush-hush"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", SECRET)

    def write_text(text: str, name: str = "config.yaml") -> Path:
        Path(name).write_text(text, encoding="utf-8")
        return Path(name)

    return write_text


SECRETIVE = r"""
plain: ${oc.env:SECRET}
indirect: ${plain}
twice: ${indirect}
text: token-${plain}
section: {key: "${plain}", other: 1}
copy: ${section}
relative: {a: "${oc.env:SECRET}", b: "${.a}"}
outer: {inner: "${section}"}
listed: ["${plain}", "${section.key}", 2]
selected: ${oc.select:plain}
created: '${oc.create:{x: ${plain}}}'
values: ${oc.dict.values:section}
mine: ${upper:${plain}}
cuda: ${cuda_env:SECRET}
default: ${oc.env:SECRET,other}
fails: ${number:${plain}}
mapping_in_text: x-${section}
harmless: ${section.other}
"""


def test_no_secret_is_written_on_any_way(write):
    """Directly, through references, copied mappings, given resolvers, and messages of failures."""
    context = ResolverContext(additional_resolver_funs={"upper": lambda text: text + "!", "number": int})
    resolved = resolve(load_yaml(write(SECRETIVE)), context)
    assert resolved.data["copy"] == {"key": SECRET, "other": 1}
    assert resolved.data["mine"] == f"{SECRET}!"
    write_resolved(resolved, Path("config.yaml.resolved"))
    written = Path("config.yaml.resolved").read_text(encoding="utf-8")
    for text in (written, render_with_origins(resolved), str(to_plain(resolved))):
        assert SECRET not in text
    plain = to_plain(resolved)
    assert plain["copy"] == "${section}"
    assert plain["section"] == {"key": "${plain}", "other": 1}
    assert plain["harmless"] == 1
    assert resolve(load_yaml(Path("config.yaml.resolved")), context).data == resolved.data


def test_ranks_are_no_secret(write, monkeypatch):
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    resolved = resolve(load_yaml(write("a: ${cuda_env:RANK}\nb: ${cuda_env:WORLD_SIZE}")))
    assert to_plain(resolved) == {"a": 1, "b": 2}


def test_paths_are_written_as_text_that_any_reader_takes(write):
    resolved = resolve(
        load_yaml(write("a: ${modalities_env:config_file_path}\nb: ['${modalities_env:experiment_id}']")), CHECK
    )
    write_resolved(resolved, Path("out.yaml"))
    assert yaml.safe_load(Path("out.yaml").read_text("utf-8")) == {"a": "config.yaml", "b": ["check"]}


def test_what_has_no_value_is_written_as_it_stands(write):
    resolved = resolve(
        load_yaml(write("a: ${nope}\nb: {c: '${warmstart_env:checkpoint_paths}'}\nd: ${b}\ne: ${")), CHECK
    )
    assert to_plain(resolved) == {
        "a": "${nope}",
        "b": {"c": "${warmstart_env:checkpoint_paths}"},
        "d": "${b}",
        "e": "${",
    }


def test_what_is_no_data_is_written_as_it_stands(write):
    context = ResolverContext(additional_resolver_funs={"thing": lambda: object()})
    assert to_plain(resolve(load_yaml(write("a: ${thing:}\nb: 1")), context)) == {"a": "${thing:}", "b": 1}


_TEXTS = st.text(alphabet="$\\{}ab.:'\" \n-", max_size=10) | st.sampled_from(["010", "1e3", "yes", "1e-05", "~"])
_TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abcde"), _TREES, max_size=4))
def test_reading_and_resolving_again_gives_the_same(tmp_path_factory, values):
    r"""Also where a value holds the text `${`, behind any number of backslashes."""
    path = tmp_path_factory.getbasetemp() / "again.yaml"
    resolvers = {"value": lambda key: values[key]}
    document = ConfigDocument(path, {key: f"${{value:{key}}}" for key in values}, {})
    resolved = resolve(document, ResolverContext(additional_resolver_funs=resolvers))
    assert resolved.data == values
    write_resolved(resolved, path)
    assert resolve(load_yaml(path)).data == values


def test_each_value_is_shown_with_the_place_it_comes_from(write):
    write("settings: {lr: 0.1}\nname: base\nlist: [1, 2]\nnothing: {}\n", "base.yaml")
    path = write("extends: base.yaml\nsettings:\n  lr: 6e-3\nmodel:\n  lr: ${settings.lr}\n  copy: ${settings}\n")
    overrides = [
        Override("list[1]", "a\nb", Origin("pipeline.yaml", 7, 3)),
        Override("extra", "${modalities_env:nope}"),
    ]
    resolved = resolve(load_config(path, overrides))
    assert render_with_origins(resolved) == (
        "settings:\n"
        "  lr: 0.006                    # config.yaml:3\n"
        "name: base                     # base.yaml:2\n"
        "list:\n"
        "  - 1                          # base.yaml:3\n"
        "  - |-                         # pipeline.yaml:7\n"
        "    a\n"
        "    b\n"
        "nothing: {}                    # base.yaml:4\n"
        "model:\n"
        "  lr: 0.006                    # config.yaml:5 <- ${settings.lr}\n"
        "  copy:\n"
        "    lr: 0.006                  # config.yaml:6 <- ${settings}\n"
        "extra: ${modalities_env:nope}  # --set: cannot be resolved: unknown modalities_env variable 'nope'; "
        "known: config_file_path, config_folder_path\n"
    )
    assert render_with_origins(resolved, ("model", "copy")) == "lr: 0.006  # config.yaml:6 <- ${settings}\n"
    assert render_with_origins(resolved, ("name",)) == "base  # base.yaml:2\n"


def test_a_part_that_is_not_there_is_named(write):
    resolved = resolve(load_yaml(write("optimizer: {config: {}}")))
    with pytest.raises(ConfigError) as caught:
        render_with_origins(resolved, ("optimizer", "confg"))
    assert str(caught.value) == "config.yaml: there is no 'optimizer.confg'; did you mean 'config'?"


@given(st.dictionaries(st.sampled_from("abcde"), _TREES, max_size=4))
def test_the_shown_text_is_the_written_data(values):
    resolvers = {"value": lambda key: values[key]}
    document = ConfigDocument(
        Path("c.yaml"), {key: f"${{value:{key}}}" for key in values}, {("a",): Origin("#: \x07", 1)}
    )
    resolved = resolve(document, ResolverContext(additional_resolver_funs=resolvers))
    assert yaml.safe_load(render_with_origins(resolved)) == to_plain(resolved)


def test_a_large_config_is_shown_in_no_time(write):
    lines = [f"s{number}: {{a: '${{s0.c}}', b: '${{oc.env:SECRET}}', c: 1}}" for number in range(1500)]
    text = render_with_origins(resolve(load_yaml(write("\n".join(lines)))))
    assert text.count("\n") == 6000
