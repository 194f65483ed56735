"""A config may build on others and change what it names; every value keeps the place it comes from."""

from pathlib import Path

import pytest
from overlay_helpers import BASE, merge_refusal

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.origins import Origin
from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.config.resolution import resolve


def _places(path: Path, *overrides: Override) -> dict[str, str]:
    document = load_config(path, overrides)
    return {".".join(map(str, key_path)): str(origin) for key_path, origin in document.origins.items()}


def test_an_overlay_changes_what_it_names_and_keeps_the_rest(write_files):
    path = write_files(base=BASE, top="extends: base.yaml\noptimizer:\n  config:\n    lr: 1e-4\nnew: {a: 1}\n")
    data = load_config(path).data
    assert data["optimizer"] == {
        "component_key": "optimizer",
        "variant_key": "adam_w",
        "config": {"lr": 1e-4, "betas": [0.9, 0.95]},
    }
    assert list(data) == ["optimizer", "clipper", "loss", "new"]
    assert data["new"] == {"a": 1}


def test_values_keep_the_place_they_come_from(write_files):
    path = write_files(base="a:\n  b: 1\n  c: [1, 2]\nd: 2\n", top="extends: base.yaml\na:\n  b: 5\ne: 3\n")
    assert _places(path, Override("a.c[1]", {"x": 1}), Override("f", 7, Origin("pipeline.yaml", 9, 3))) == {
        "a": "top.yaml:2:1",
        "a.b": "top.yaml:3:3",
        "a.c": "base.yaml:3:3",
        "a.c.0": "base.yaml:3:7",
        "a.c.1": "--set",
        "a.c.1.x": "--set",
        "d": "base.yaml:4:1",
        "e": "top.yaml:4:1",
        "f": "pipeline.yaml:9:3",
    }


def test_paths_of_extended_files_are_relative_to_the_file_that_names_them(write_files):
    path = write_files(
        base="a: 1\nc: 1", sub__middle="extends: ../base.yaml\nb: 2\nc: 2", sub__top="extends: middle.yaml\nc: 3"
    )
    document = load_config(path)
    assert document.data == {"a": 1, "b": 2, "c": 3}
    assert str(document.origin(("a",))) == "sub/../base.yaml:1:1"
    assert document.path == Path("sub/top.yaml")


def test_of_several_extended_files_later_ones_win(write_files):
    path = write_files(one="a: 1\nb: 1\nc: {x: 1}", two="b: 2\nc: {y: 2}", top="extends: [one.yaml, two.yaml]\nd: 4")
    assert load_config(path).data == {"a": 1, "b": 2, "c": {"x": 1, "y": 2}, "d": 4}


def test_two_files_may_extend_the_same_one(write_files):
    path = write_files(
        base="a: {x: 0, y: 0, z: 0}\nplugins: [p]",
        left="extends: base.yaml\na: {x: 1}",
        right="extends: base.yaml\na: {y: 2}",
        top="extends: [left.yaml, right.yaml]\na: {z: 3}",
    )
    assert load_config(path).data == {"a": {"x": 1, "y": 2, "z": 3}, "plugins": ["p"]}


def test_a_file_that_is_listed_behind_one_that_extends_it_is_refused(write_files):
    """It stands below that one already, so the list would not mean what it says."""
    files = {"x1": "v: 1", "x2": "extends: x1.yaml\nv: 2", "x3": "extends: x2.yaml"}
    assert merge_refusal(write_files(**files, top="extends: [x3.yaml, x1.yaml]")) == (
        "top.yaml:1:20: extends: x1.yaml has no effect here, because x3.yaml, which stands before it, extends it; "
        "put it first, or leave it out."
    )
    assert load_config(write_files(**files, top="extends: [x1.yaml, x3.yaml]")).data == {"v": 2}


@pytest.mark.parametrize(
    ("base", "overlay", "merged"),
    [
        (
            "norm: {norm_type: rms_norm, config: {ndim: 1}}",
            "norm: {norm_type: layer_norm, config: {eps: 1}}",
            {"norm_type": "layer_norm", "config": {"eps": 1}},
        ),
        (
            "norm: {type_hint: A, config: {x: 1}}",
            "norm: {type_hint: A, config: {y: 1}}",
            {"type_hint": "A", "config": {"x": 1, "y": 1}},
        ),
        (
            "norm: {ac_variant: full, ac_fun_params: {f: 1}, x: 1}",
            "norm: {ac_variant: none}",
            {"ac_variant": "none", "x": 1},
        ),
    ],
)
def test_what_depends_on_a_key_that_changes_is_not_inherited(write_files, base, overlay, merged):
    assert load_config(write_files(base=base, top=f"extends: base.yaml\n{overlay}")).data["norm"] == merged


def test_a_chain_of_diamonds_is_read_in_no_time(write_files):
    files = {"f0": "a: 0"}
    for number in range(1, 25):
        before = f"f{number - 1}.yaml"
        files |= {f"l{number}": f"extends: {before}", f"r{number}": f"extends: {before}"}
        files[f"f{number}"] = f"extends: [l{number}.yaml, r{number}.yaml]\na: {number}"
    assert load_config(write_files(**files)).data == {"a": 24}


def test_lists_are_replaced_but_plugins_added(write_files):
    base = "plugins: [{component_key: a}]\nlist: [1, 2]\nsection: {plugins: [1]}"
    path = write_files(
        base=base, top="extends: base.yaml\nplugins: [{component_key: b}]\nlist: [3]\nsection: {plugins: [2]}"
    )
    document = load_config(path)
    assert document.data == {
        "plugins": [{"component_key": "a"}, {"component_key": "b"}],
        "list": [3],
        "section": {"plugins": [2]},
    }
    assert document.origin(("plugins", 0)).source == "base.yaml"
    assert document.origin(("plugins", 1)).source == "top.yaml"


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        ("{variant_key: sgd}", {"component_key": "optimizer", "variant_key": "sgd"}),
        (
            "{variant_key: sgd, config: {lr: 2}}",
            {"component_key": "optimizer", "variant_key": "sgd", "config": {"lr": 2}},
        ),
        (
            "{variant_key: adam_w, config: {lr: 2}}",
            {"component_key": "optimizer", "variant_key": "adam_w", "config": {"lr": 2, "betas": [0.9, 0.95]}},
        ),
        ("{instance_key: o, pass_type: BY_REFERENCE}", {"instance_key": "o", "pass_type": "BY_REFERENCE"}),
        ("", None),
    ],
)
def test_the_config_of_another_component_is_not_inherited(write_files, overlay, expected):
    path = write_files(base=BASE, top=f"extends: base.yaml\noptimizer: {overlay}\n")
    assert load_config(path).data["optimizer"] == expected


def test_a_component_replaces_an_inherited_reference(write_files):
    path = write_files(base=BASE, top="extends: base.yaml\nclipper: {component_key: c, variant_key: v, config: {}}\n")
    assert load_config(path).data["clipper"] == {"component_key": "c", "variant_key": "v", "config": {}}


def test_inherited_keys_can_be_removed(write_files):
    path = write_files(base=BASE, top="extends: base.yaml\nclipper: !remove\noptimizer:\n  config: {betas: !remove }\n")
    data = load_config(path).data
    assert "clipper" not in data
    assert data["optimizer"]["config"] == {"lr": 1.0}


def test_references_are_resolved_in_the_merged_config(write_files):
    path = write_files(
        base="settings: {x: 1}\na: ${settings.x}\nb: ${only.above}",
        top="extends: base.yaml\nsettings: {x: 2}\nonly: {above: 3}",
    )
    assert resolve(load_config(path)).data == {"settings": {"x": 2}, "a": 2, "b": 3, "only": {"above": 3}}


def test_load_yaml_leaves_extends_alone(write_files):
    assert load_yaml(write_files(top="extends: nope.yaml\na: 1\n")).data == {"extends": "nope.yaml", "a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nextends: bas.yaml", "top.yaml:2:1: extends: there is no file bas.yaml; did you mean 'base.yaml'?"),
        ("extends: [base.yaml, x/y.yaml]", "top.yaml:1:22: extends: there is no file x/y.yaml"),
        ("extends: top.yaml", "top.yaml:1:1: extends: the files extend each other in a circle: top.yaml -> top.yaml."),
        ("extends: {a: 1}", "top.yaml:1:1: extends: has to be the path of a YAML file, or a list of such."),
        ("extends: [1]", "top.yaml:1:11: extends: has to be the path of a YAML file, or a list of such."),
        ("extends:", "top.yaml:1:1: extends: has to be the path of a YAML file, or a list of such."),
        ("extends: []", "top.yaml:1:1: extends: is an empty list; name a YAML file, or leave the key out."),
        ("extends: .", "top.yaml:1:1: extends: . is a folder; name a YAML file in it."),
        ("extends: ${a}.yaml", "top.yaml:1:1: extends: cannot hold ${...}; write the path itself."),
        (
            "extends: base.yaml\noptimizer:\n  confg: !remove",
            "top.yaml:3:3: optimizer.confg: !remove finds no inherited key 'confg'; did you mean 'config'?",
        ),
        (
            "extends: base.yaml\nnew: {x: !remove }",
            "top.yaml:2:7: new.x: !remove removes an inherited key, but nothing is inherited here.",
        ),
        (
            "extends: base.yaml\nloss: !remove {a: 1}",
            "top.yaml:2:7: !remove takes no value; write 'key: !remove' alone.",
        ),
        (
            "extends: base.yaml\nloss: {tag: !remove}",
            "top.yaml:2:20: a blank is missing behind the tag; write '!remove }' or '!remove ,'.",
        ),
        ("extends: base.yaml\nloss: !remove x", "top.yaml:2:7: !remove takes no value (given: 'x')."),
    ],
)
def test_faults_of_overlays_name_their_line(write_files, text, message):
    assert merge_refusal(write_files(base=BASE, top=text)) == message


def test_a_circle_of_files_is_named(write_files):
    path = write_files(b="extends: c.yaml", c="extends: a.yaml", a="extends: b.yaml")
    assert merge_refusal(path) == (
        "c.yaml:1:1: extends: the files extend each other in a circle: a.yaml -> b.yaml -> c.yaml -> a.yaml."
    )


def test_a_fault_in_an_extended_file_is_told_with_its_name(write_files):
    path = write_files(base="a: 1\na: 2", top="extends: base.yaml")
    assert merge_refusal(path) == "base.yaml:2:1: the key 'a' is there twice; it first stands in line 1; remove one."
