"""A value that is copied by `${...}` and wrong is one fault, told where it has to be changed."""

from modalities_pipeline.config.checking.copied_faults import fold_copies
from modalities_pipeline.config.checking.faults import Fault
from modalities_pipeline.config.overlays import load_config


def _faults(document, *keys: str) -> list[str]:
    faults = [
        Fault(key_path, "is wrong", document.origin(key_path)) for key_path in (tuple(key.split(".")) for key in keys)
    ]
    return [str(fault) for fault in fold_copies(faults, document)]


def test_copies_say_nothing_beside_the_original(document):
    assert _faults(document, "a.size", "settings.size", "b.config.size") == ["x.yaml:2:3: settings.size: is wrong"]


def test_several_copies_are_told_once_at_the_original(document):
    assert _faults(document, "a.size", "settings.same", "b.config.size") == [
        "x.yaml:2:3: settings.size: is wrong; used by a.size (x.yaml:8:5) and 2 more"
    ]


def test_a_single_copy_is_told_where_it_stands_with_its_original(document):
    """The value may be right and only be taken from the wrong place."""
    assert _faults(document, "a.size", "b.first") == [
        "x.yaml:8:5: a.size: is wrong; the value comes from settings.size (x.yaml:2:3)",
        "x.yaml:9:21: b.first: is wrong; the value comes from settings.sizes.0 (x.yaml:3:11)",
    ]


def test_notes_and_faults_are_kept_apart(document):
    fault = Fault(("settings", "size"), "is wrong", document.origin(("settings", "size")))
    note = Fault(("a", "size"), "is odd", document.origin(("a", "size")), is_note=True)
    assert len(fold_copies([fault, note], document)) == 2


def test_what_is_wrong_only_with_a_copy_is_told_beside_the_faulty_original(document):
    """Once the original is mended, the copy would still be wrong."""
    original, copy = ("settings", "size"), ("a", "size")
    faults = [
        Fault(original, "is negative", document.origin(original)),
        Fault(copy, "has to be an integer", document.origin(copy)),
    ]
    assert [str(fault) for fault in fold_copies(faults, document)] == [
        "x.yaml:2:3: settings.size: is negative",
        "x.yaml:8:5: a.size: has to be an integer; the value comes from settings.size (x.yaml:2:3)",
    ]


def test_data_that_are_referred_to_are_told_where_they_stand(document):
    messages = {
        ("settings", "there"): "has to be a component (A), ...",
        ("settings", "sizes", 1): "has to be a component (B), ...",
    }
    faults = [Fault(key_path, message, document.origin(key_path)) for key_path, message in messages.items()]
    references = {("settings", "there"): "a", ("settings", "sizes", 1): "a"}
    assert [str(fault) for fault in fold_copies(faults, document, references)] == [
        "x.yaml:8:1: a: has to be a component (A), ...; used by settings.there (x.yaml:6:3) and 1 more"
    ]


ALIASES = """o: &a {config: {oops: 1, deep: &d {x: 1}}}
p: *a
q: {<<: *a}
r: {config: {oops: 1}}
s: {config: {deep: *d}}
"""


def test_what_aliases_repeat_is_told_once(tmp_path):
    (tmp_path / "x.yaml").write_text(ALIASES, encoding="utf-8")
    document = load_config(tmp_path / "x.yaml")
    keys = ["o.config.oops", "p.config.oops", "q.config.oops", "r.config.oops", "o.config.deep.x", "s.config.deep.x"]
    assert [fault.partition(": ")[2] for fault in _faults(document, *keys)] == [
        "o.config.oops: is wrong",
        "r.config.oops: is wrong",
        "o.config.deep.x: is wrong",
    ]


def test_a_fault_of_a_reference_itself_stays_at_the_reference(tmp_path):
    (tmp_path / "x.yaml").write_text("list: [1]\nuse: {instance_key: list, pass_type: BY_VALUE}\n", encoding="utf-8")
    document = load_config(tmp_path / "x.yaml")
    fault = Fault(("use", "pass_type"), "is wrong", document.origin(("use", "pass_type")))
    assert fold_copies([fault], document, {("use",): "list"}) == [fault]
    element = Fault(("use", 0), "is wrong", document.origin(("use", 0)))
    assert [told.key_path for told in fold_copies([element], document, {("use",): "list"})] == [("list", 0)]
