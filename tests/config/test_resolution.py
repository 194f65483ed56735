"""Every `${...}` gets its value, or says in place why it has none; one without a value spoils no other."""

import json
import os
import re
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.resolution import ResolvedConfig, ResolverContext, Unresolved, resolve
from modalities_pipeline.exceptions import ConfigError

CHECK = ResolverContext(check_only=True)


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Resolves the YAML text of a file config.yaml in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def read_text(text: str, context: ResolverContext | None = None) -> ResolvedConfig:
        Path("config.yaml").write_text(text, encoding="utf-8")
        return resolve(load_yaml(Path("config.yaml")), context)

    return read_text


def _reason(value: object) -> str:
    assert isinstance(value, Unresolved)
    assert value.is_fault
    return value.reason


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


def test_one_unresolvable_value_spoils_no_other(read):
    data = read("a: {x: '${nope}', y: 1}\nb: ${a.y}\nc: [1, '${oc.env:NOPE_VARIABLE}', 2]\nd: ${").data
    assert data["a"]["y"] == data["b"] == 1
    assert data["c"][::2] == [1, 2]
    assert [type(value) for value in (data["a"]["x"], data["c"][1], data["d"])] == [Unresolved] * 3


def test_all_that_has_no_value_is_told_at_once(read):
    resolved = read("a:\n  x: ${b.lr}\nb:\n  lrr: 1\nc: [1, '${nope:2}']\n")
    assert [key_path for key_path, _ in resolved.unresolved()] == [("a", "x"), ("c", 1)]
    with pytest.raises(ConfigError) as caught:
        resolved.raise_if_unresolved()
    assert str(caught.value).splitlines()[0] == (
        "config.yaml:2:3: a.x: ${b.lr} refers to nothing: there is no 'lr' in 'b'; did you mean 'lrr'?"
    )
    assert str(caught.value).splitlines()[1].startswith("config.yaml:5:8: c.1: there is no resolver 'nope'; known: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: ${sectoin.x}", "${sectoin.x} refers to nothing: there is no 'sectoin'; did you mean 'section'?"),
        ("a: ${section.xx}", "${section.xx} refers to nothing: there is no 'xx' in 'section'; did you mean 'x'?"),
        (
            "a: ${list.7}",
            "${list.7} refers to nothing: there is no '7' in 'list'; it has 2 elements, counted from 0",
        ),
        ("a: ${text.x}", "${text.x} refers to nothing: 'text' is neither a mapping nor a list"),
        ("a: x-${sectoin}", "${sectoin} refers to nothing: there is no 'sectoin'; did you mean 'section'?"),
        (
            "a: ${b}\nb: ${sectoin}",
            "${sectoin} refers to nothing: there is no 'sectoin'; did you mean 'section'? (through ${b})",
        ),
        (
            "a: ${c}\nb: ${sectoin}\nc: ${b}",
            "${sectoin} refers to nothing: there is no 'sectoin'; did you mean 'section'? (through ${b})",
        ),
        (
            "a: x-${b}\nb: ${sectoin}",
            "${sectoin} refers to nothing: there is no 'sectoin'; did you mean 'section'? (through ${b})",
        ),
        ("a: ${b}\nb: ${c.d}\nc: {d: '${a}'}", "it refers to itself in a circle: c.d -> a -> b -> c.d"),
        ("a: x-${b}\nb: y-${a}", "it refers to itself in a circle: b -> a -> b"),
        ("a: ${a}", "it refers to itself in a circle: a -> a"),
        ("a: ${todo}", "it refers to 'todo', whose value is ??? (to be filled in)"),
        ("a: ${cuda_en:RANK}", "there is no resolver 'cuda_en'; did you mean 'cuda_env'?"),
        ("a: ${oc.env:NOPE_VARIABLE}", "the environment variable NOPE_VARIABLE is not set"),
        ("a: ${cuda_env:NOPE_VARIABLE}", "the environment variable NOPE_VARIABLE is not set"),
        (
            "a: ${modalities_env:experimentid}",
            "unknown modalities_env variable 'experimentid'; known: config_file_path, config_folder_path",
        ),
        (
            "a: ${modalities_env:experiment_id}",
            "modalities_env:experiment_id is known only in a training run; here it was not given",
        ),
        ("a: ${node_env:num_cpu}", "unknown node_env variable 'num_cpu'; did you mean 'num_cpus'?"),
        ("a: ${warmstart_env:nope}", "unknown warmstart_env variable 'nope'; known: checkpoint_paths"),
        (
            "a: ${warmstart_env:checkpoint_paths}",
            "warmstart_env:checkpoint_paths is known only on a warm start; give the checkpoint's info file "
            "(--last_checkpoint_info_file_path)",
        ),
        ("a: ${section.x", "in '${section.x', a '${' is not closed by '}'"),
        (
            "a: ${section x}",
            "'${section x}' is no valid ${...}; write ${a.b} or ${resolver:argument}, or \\${ for the text itself",
        ),
        ("a: ${b}\nb: ${c", "in '${c', a '${' is not closed by '}' (through ${b})"),
        ("a: ${oc.select:todo,???}", "the answer is ??? (to be filled in)"),
        ("a: ${fails:1}", "the resolver 'fails' failed: ZeroDivisionError: division by zero"),
    ],
)
def test_reasons_are_told_in_words(read, text, reason):
    context = ResolverContext(additional_resolver_funs={"fails": lambda number: number / 0})
    rest = "\nsection: {x: 1}\nlist: [1, 2]\ntext: word\ntodo: ???\n"
    assert _reason(read(text + rest, context).data["a"]) == reason


def test_a_mapping_cannot_contain_itself(read):
    data = read("a: {b: '${a}', c: 1}\nd: {e: {f: '${oc.dict.values:d}'}}\ng: {h: '${i}'}\ni: ['${g}']").data
    assert data["a"]["c"] == 1
    assert _reason(data["a"]["b"]) == "${a} refers to a mapping or list that contains it"
    assert _reason(data["g"]["h"][0]) == "${g} refers to a mapping or list that contains it"
    assert _reason(data["d"]["e"]["f"][0]) == "${d.e} refers to a mapping or list that contains it"


def test_copies_of_copies_are_refused_in_no_time(read):
    start = time.process_time()
    text = "a0: [1]\n" + "\n".join(f"a{n}: ['" + "', '".join([f"${{a{n - 1}}}"] * 9) + "']" for n in range(1, 12))
    resolved = read(text)
    assert time.process_time() - start < 10
    assert {failure.reason for _, failure in resolved.unresolved()} == {
        "references to references, or copies of mappings, make the config far too large; write it flatter"
    }


@pytest.mark.parametrize("reference", ["${a%d}", "x${a%d}"])
def test_long_chains_of_references_end_in_a_reason(read, reference):
    resolved = read("\n".join(f"a{n}: {reference % (n + 1)}" for n in range(2000)) + "\na2000: y")
    assert resolved.data["a1990"].endswith("y")
    assert re.search(r"^references to references.*; write it flatter", _reason(resolved.data["a0"]))


def test_an_incomplete_launch_names_the_missing_variable(read, monkeypatch):
    """B043: LOCAL_RANK missing is a named error."""
    monkeypatch.setenv("RANK", "1")
    data = read("a: ${cuda_env:RANK}\nb: ${cuda_env:LOCAL_RANK}").data
    assert data["a"] == 1
    assert _reason(data["b"]) == "the environment variable LOCAL_RANK is not set; start training with torchrun"
    monkeypatch.setenv("RANK", "one")
    reason = "the environment variable RANK is 'one', not a whole number; torchrun sets it"
    assert _reason(read("a: ${cuda_env:RANK}").data["a"]) == reason


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
    assert "${a.paths.nope} refers to nothing: there is no 'nope'" in _reason(data["c"])
    for content, words in (("[1]", "has to hold a JSON object"), ("{", "cannot be read"), (None, "does not exist")):
        info.write_text(content, encoding="utf-8") if content else info.unlink()
        assert words in _reason(read(text, context).data["b"])


def test_given_resolvers_replace_ours_and_leave_no_trace(read):
    context = ResolverContext(additional_resolver_funs={"cuda_env": lambda name: 8, "mine": lambda: "x"})
    assert read("a: ${cuda_env:WORLD_SIZE}\nb: ${mine:}", context).data == {"a": 8, "b": "x"}
    assert read("a: ${cuda_env:WORLD_SIZE}").data == {"a": 1}
    assert "there is no resolver 'mine'" in _reason(read("b: ${mine:}").data["b"])
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


def test_reasons_quote_no_secret(read, monkeypatch):
    monkeypatch.setenv("SECRET", "hush")
    text = "a: ${number:${oc.env:SECRET}}\nb: ${section.${oc.env:SECRET}}\nc: ${oc.decode:'${oc.env:SECRET}['}"
    resolved = read(text, ResolverContext(additional_resolver_funs={"number": int}))
    reasons = [failure.reason for _, failure in resolved.unresolved()]
    assert len(reasons) == 3
    assert reasons[0] == (
        "the resolver 'number' failed: ValueError: invalid literal for int() with base 10: '<value of SECRET>'"
    )
    assert not any("hush" in reason for reason in reasons)


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


@pytest.mark.parametrize("other", ["${.size}", "${oc.select:settings.lr}"])
def test_a_config_of_400_lines_is_resolved_in_40_ms(read, other):
    """With and without OmegaConf."""
    lines = ["component_key: c", "variant_key: v", "config:", "  lr: ${settings.lr}", "  path: ${settings.root}/x"]
    lines += ["  size: 1", "  flag: true", "  near: ${.size}", f"  other: {other}"]
    section = "\n  ".join(["", *lines])
    text = "settings: {lr: 1e-4, root: '${modalities_env:experiment_id}'}"
    read(text + "".join(f"\ns{number}:{section}" for number in range(40)), CHECK)
    document = load_yaml(Path("config.yaml"))
    durations = []
    for _ in range(5):
        start = time.process_time()
        assert not list(resolve(document, CHECK).unresolved())
        durations.append(time.process_time() - start)
    assert min(durations) < 0.04


def test_texts_that_grow_by_references_are_limited(read):
    """Ten times ten times ...: eight short lines would make a gigabyte."""
    lines = ["a0: xxxxxxxxxx", *(f"a{n}: '{f'${{a{n - 1}}}' * 10}'" for n in range(1, 12))]
    resolved = read("\n".join(reversed(lines)))
    reasons = {key_path[0]: failure.reason for key_path, failure in resolved.unresolved()}
    assert "a11" in reasons
    assert all("make the config far too large" in reason for reason in reasons.values())
    assert len(resolved.data["a4"]) == 10**5


@pytest.mark.parametrize("reference", ["a.b.c", "a[b].c"])
def test_a_very_long_reference_is_answered_at_once(read, reference):
    start = time.process_time()
    resolved = read(f"a: '${{{reference}{'.d' * 50_000}}}'\nother: ${{oc.select:b}}\nb: 1\n")
    assert time.process_time() - start < 2
    assert resolved.data["other"] == 1
    assert resolved.data["a"].reason.startswith("${a")
    assert resolved.data["a"].reason.endswith("...} refers to nothing: there is no 'b' in 'a'")


def test_a_mapping_whose_keys_look_alike_is_named(read):
    resolved = read("a: {b: {1: 2, '1': 3}}\nc: ${oc.select:d}\n")
    assert resolved.data["c"].reason.startswith("in 'a.b', '1' is a key twice, as a text and as a number;")


@pytest.mark.parametrize("text", ["a: ${..a}", "a: ${.....z}"])
def test_too_many_dots_are_told(read, text):
    assert "leads above the top level; it has too many dots" in read(text).data["a"].reason


def test_a_circle_of_neighbours_is_told_with_its_way(read):
    resolved = read("j: {k: '${.l}', l: '${.k}'}")
    assert resolved.data["j"]["k"].reason == "it refers to itself in a circle: j.l -> j.k -> j.l"
