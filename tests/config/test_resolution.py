"""Every `${...}` gets the value of what it names, as OmegaConf gives it, from the run or check it belongs to."""

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from resolution_helpers import CHECK, reason_of

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.resolution import ResolvedConfig, ResolverContext, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${s.i}", 3),
        ("${s.f}", 1e-4),
        ("${s.t}", "word"),
        ("${s.n}", None),
        ("${s.l}", [1, 3]),
        ("${s.l[1]}", 3),
        ("${s.l.1}", 3),
        ("${s.m}", {"x": "word", "y": {"z": 3}}),
        ("${s.m.y.z}", 3),
        ("${.near}", 9),
        ("${..s.i}", 3),
        ("a-${s.i}-${s.t}", "a-3-word"),
        ("${s.${s.key}}", 3),
        (r"\${s.i}", "${s.i}"),
        ("${oc.select:s.nope,7}", 7),
        ("${oc.decode:'1e-4'}", 1e-4),
        ("${oc.dict.keys:s.m}", ["x", "y"]),
        ("${oc.dict.values:s.m}", ["word", {"z": 3}]),
        ("${twice:${s.i}}", 6),
        ("${node_env:num_cpus}", os.cpu_count()),
        ("${modalities_env:config_file_path}", Path("config.yaml")),
        ("x/${modalities_env:config_file_path}", "x/config.yaml"),
        ("${modalities_env:config_folder_path}", Path(".")),
        ("${modalities_env:experiments_root_path}", Path("root")),
        ("${modalities_env:experiment_id}", "run"),
        ("${cuda_env:RANK}", 0),
        ("${cuda_env:WORLD_SIZE}", 1),
    ],
)
def test_interpolations_have_the_value_and_type_of_what_they_name(read, text, value):
    context = ResolverContext(Path("root"), "run", additional_resolver_funs={"twice": lambda number: 2 * number})
    document = (
        "s: {i: 3, f: 1e-4, t: word, n: null, l: [1, '${s.i}'], m: {x: '${s.t}', y: {z: '${s.i}'}}, key: i}\n"
        f"here:\n  near: 9\n  value: {text}\n"
    )
    resolved = read(document, context).data["here"]["value"]
    assert resolved == value
    assert type(resolved) is type(value)


def test_a_copied_mapping_is_a_mapping_of_its_own(read):
    data = read("a: {b: [1]}\nc: ${a}\nd: ${a}").data
    data["c"]["b"].append(2)
    assert data["a"] == data["d"] == {"b": [1]}


def test_resolving_leaves_the_document_as_it_was(read):
    resolved = read("a: [1]\nb: ${a}")
    resolved.data["a"].append(2)
    assert resolved.document.data == {"a": [1], "b": "${a}"}


def test_a_check_may_name_another_number_of_ranks(read, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    text = "a: ['${cuda_env:RANK}', '${cuda_env:LOCAL_RANK}', '${cuda_env:WORLD_SIZE}']"
    assert read(text, ResolverContext(world_size=8, check_only=True)).data["a"] == [0, 0, 8]


def test_a_check_needs_no_run(read):
    resolved = read(
        "a: ${modalities_env:experiments_root_path}/${modalities_env:experiment_id}\n"
        "b: ${warmstart_env:checkpoint_paths}\nc: ${b.checkpoint_folder_path}\nd: x/${b.checkpoint_folder_path}",
        CHECK,
    )
    assert resolved.data["a"] == "experiments/check"
    assert [failure.is_fault for _, failure in resolved.unresolved()] == [False, False, False]


def test_a_warm_start_gives_the_checkpoints_paths(read, tmp_path):
    info = tmp_path / "last_checkpoint_info.json"
    info.write_text(json.dumps({"checkpoint_folder_path": "/a/b"}), encoding="utf-8")
    text = "a: {paths: '${warmstart_env:checkpoint_paths}'}\nb: ${a.paths.checkpoint_folder_path}\nc: ${a.paths.nope}"
    context = ResolverContext(last_checkpoint_info_file_path=info)
    data = read(text, context).data
    assert (data["a"], data["b"]) == ({"paths": {"checkpoint_folder_path": "/a/b"}}, "/a/b")
    assert "${a.paths.nope} refers to nothing: there is no 'nope'" in reason_of(data["c"])
    for content, words in (("[1]", "has to hold a JSON object"), ("{", "cannot be read"), (None, "does not exist")):
        info.write_text(content, encoding="utf-8") if content else info.unlink()
        assert words in reason_of(read(text, context).data["b"])


def test_given_resolvers_replace_ours_and_leave_no_trace(read):
    context = ResolverContext(additional_resolver_funs={"cuda_env": lambda name: 8, "mine": lambda: "x"})
    assert read("a: ${cuda_env:WORLD_SIZE}\nb: ${mine:}", context).data == {"a": 8, "b": "x"}
    assert read("a: ${cuda_env:WORLD_SIZE}").data == {"a": 1}
    assert "there is no resolver 'mine'" in reason_of(read("b: ${mine:}").data["b"])
    assert not OmegaConf.has_resolver("cuda_env")


def test_resolvers_registered_by_others_stay(read):
    OmegaConf.register_resolver("of_others", lambda: 5, annotation_validation="off")
    try:
        assert read("a: ${of_others:}").data == {"a": 5}
        context = ResolverContext(additional_resolver_funs={"of_others": lambda: 6})
        assert read("a: ${of_others:}", context).data == {"a": 6}
        assert OmegaConf.create({"a": "${of_others:}"}).a == 5
    finally:
        OmegaConf.clear_resolver("of_others")


def test_configs_are_resolved_in_several_threads(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("a: ${who:}-${modalities_env:experiment_id}", encoding="utf-8")
    document, results = load_yaml(path), {}

    def work(number: int) -> None:
        context = ResolverContext(experiment_id=str(number), additional_resolver_funs={"who": lambda: number})
        results[number] = {resolve(document, context).data["a"] for _ in range(20)}

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert results == {number: {f"{number}-{number}"} for number in range(4)}


def test_environment_variables_that_were_read_are_named(read, monkeypatch):
    monkeypatch.setenv("SECRET", "hush")
    text = (
        "a: ${oc.env:SECRET}\nb: ${a}\nc: {d: 'x${b}', e: 1}\nf: ${c}\ng: ${cuda_env:SECRET}\nh: ${twice:${a}}\n"
        "i: ${cuda_env:RANK}\nj: ${oc.env:NOPE_VARIABLE,5}\nk: ${oc.select:a}\nl: '${oc.create:{m: ${a}}}'"
    )
    resolved = read(text, ResolverContext(additional_resolver_funs={"twice": lambda text: 2 * text}))
    secret = frozenset({"SECRET"})
    assert resolved.data["f"] == {"d": "xhush", "e": 1}
    assert resolved.env_reads == {
        ("a",): secret,
        ("b",): secret,
        ("c", "d"): secret,
        ("f", "d"): secret,
        ("g",): secret,
        ("h",): secret,
        ("j",): frozenset({"NOPE_VARIABLE"}),
        ("k",): secret,
        ("l", "m"): secret,
    }


def test_resolving_gives_no_warning(read, recwarn):
    for _ in range(2):
        read("a: ${modalities_env:config_file_path}\nb: ${oc.env:HOME,x}")
    assert not recwarn.list


_NAMES = st.sampled_from(["a", "b", "c", "d"])


_TEXTS = st.one_of(
    st.integers(),
    st.sampled_from(
        [
            "word",
            "${a}",
            "${b}",
            "${c.a}",
            "${d.b}",
            "${c}",
            "${d.a.b}",
            "${nope}",
            "${a.0}",
            "${.a}",
            "${..b}",
            "${...d}",
        ]
    ),
    st.sampled_from(["x${a}", "x${.a}/${..c.a}", "${oc.select:b}", r"\${a}", "$${b}", "${d}${c}", "${ a }"]),
)


_TREES = st.recursive(_TEXTS, lambda inner: st.dictionaries(_NAMES, inner, max_size=3) | st.lists(inner, max_size=2))


@given(st.dictionaries(_NAMES, _TREES, min_size=1, max_size=4))
def test_what_omegaconf_resolves_is_resolved_alike(data):
    """Simple references take a short way past OmegaConf, with the same outcome."""
    config = OmegaConf.create(data)
    resolved = resolve(ConfigDocument(Path("config.yaml"), data, {}))
    for key in data:
        try:
            value = config[key]
            expected = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except Exception:  # of many kinds; what has no value is told otherwise here
            assert list(ResolvedConfig(resolved.document, {key: resolved.data[key]}, {}).unresolved())
        else:
            assert resolved.data[key] == expected
