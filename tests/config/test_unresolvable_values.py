"""A `${...}` without a value says in place and in words why it has none, and spoils no other."""

import pytest
from resolution_helpers import reason_of

from modalities_pipeline.config.resolution import ResolverContext, Unresolved
from modalities_pipeline.exceptions import ConfigError


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
    assert reason_of(read(text + rest, context).data["a"]) == reason


def test_a_mapping_cannot_contain_itself(read):
    data = read("a: {b: '${a}', c: 1}\nd: {e: {f: '${oc.dict.values:d}'}}\ng: {h: '${i}'}\ni: ['${g}']").data
    assert data["a"]["c"] == 1
    assert reason_of(data["a"]["b"]) == "${a} refers to a mapping or list that contains it"
    assert reason_of(data["g"]["h"][0]) == "${g} refers to a mapping or list that contains it"
    assert reason_of(data["d"]["e"]["f"][0]) == "${d.e} refers to a mapping or list that contains it"


def test_an_incomplete_launch_names_the_missing_variable(read, monkeypatch):
    """B043: LOCAL_RANK missing is a named error."""
    monkeypatch.setenv("RANK", "1")
    data = read("a: ${cuda_env:RANK}\nb: ${cuda_env:LOCAL_RANK}").data
    assert data["a"] == 1
    assert reason_of(data["b"]) == "the environment variable LOCAL_RANK is not set; start training with torchrun"
    monkeypatch.setenv("RANK", "one")
    reason = "the environment variable RANK is 'one', not a whole number; torchrun sets it"
    assert reason_of(read("a: ${cuda_env:RANK}").data["a"]) == reason


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


def test_a_mapping_whose_keys_look_alike_is_named(read):
    resolved = read("a: {b: {1: 2, '1': 3}}\nc: ${oc.select:d}\n")
    assert resolved.data["c"].reason.startswith("in 'a.b', '1' is a key twice, as a text and as a number;")


@pytest.mark.parametrize("text", ["a: ${..a}", "a: ${.....z}"])
def test_too_many_dots_are_told(read, text):
    assert "leads above the top level; it has too many dots" in read(text).data["a"].reason


def test_a_circle_of_neighbours_is_told_with_its_way(read):
    resolved = read("j: {k: '${.l}', l: '${.k}'}")
    assert resolved.data["j"]["k"].reason == "it refers to itself in a circle: j.l -> j.k -> j.l"
