"""The component reference, as text and as the page in docs/."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import DATASET, NUMBER, TOKENIZER
from modalities_pipeline.config.pydantic_if_types import PydanticTokenizerIFType
from modalities_pipeline.config.reference.field_words import FieldWords, fields_in_words
from modalities_pipeline.config.reference.table import explain, markdown, table, table_as_text, write_reference
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.exceptions import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "components.md"
REGISTRY = Registry()
NAMES = [(row.component_key, row.variant_key) for row in table(REGISTRY)]


class _Words(ComponentConfig):
    """Fields of `thing/words`; they are few."""

    tokenizer: PydanticTokenizerIFType
    num_words: Annotated[int, Field(strict=True, ge=1, description="how many")] = 4


class _Nothing(ComponentConfig):
    """Nothing to set."""


class _Bare(ComponentConfig):
    """Fields of `thing/bare`."""

    always: Literal[True] = True


class _Twice(ComponentConfig):
    """The only thing that there is."""


@pytest.fixture
def things() -> Registry:
    """Two variants of a thing, and a tokenizer."""
    return Registry(
        [
            ComponentEntity("thing", "words", "a.b:c", _Words, DATASET, "some words", ("old_words",)),
            ComponentEntity("thing", "later", "a.b:later", _Nothing, NUMBER, "comes later"),
            ComponentEntity("tokenizer", "one", dict, _Nothing, TOKENIZER, "the only one"),
        ]
    )


def test_the_page_in_docs_is_current():
    assert PAGE.read_text(encoding="utf-8") == markdown(REGISTRY), "Write it anew: reference.write_reference(path)."


def test_the_page_is_written_where_one_wants_it(tmp_path):
    write_reference(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def _all_names(fields: tuple[FieldWords, ...]) -> set[str]:
    nested = [_all_names(inner.fields) for field in fields for inner in field.nested]
    return {name for field in fields for name in (field.name, *field.other_names)}.union(*nested)


@pytest.mark.parametrize(("component_key", "variant_key"), NAMES)
def test_every_component_can_be_explained(component_key, variant_key):
    text = explain(REGISTRY, component_key, variant_key)
    config_type = REGISTRY.get_config(component_key, variant_key)
    for name in _all_names(fields_in_words(config_type, lambda interface: [])):
        assert name in text
    assert max(map(len, text.splitlines())) <= 120
    assert f"  {component_key}:\n    component_key: {component_key}\n    variant_key: {variant_key}\n" in text


def test_an_explanation_tells_all_about_a_component(things):
    assert explain(things, "thing", "words") == (
        "thing/words\n"
        "  some words\n"
        "  built by:    a.b:c\n"
        "  is a:        Dataset\n"
        f"  config:      {__name__}:_Words\n"
        "  also called: old_words\n"
        "\n"
        "They are few.\n"
        "\n"
        "config:\n"
        "  tokenizer: component tokenizer (TokenizerWrapper); required\n"
        "  num_words: integer >= 1; default: 4\n"
        "      how many\n"
        "\n"
        "example, of what is required:\n"
        "\n"
        "  thing:\n"
        "    component_key: thing\n"
        "    variant_key: words\n"
        "    config:\n"
        "      tokenizer: {instance_key: tokenizer, pass_type: BY_REFERENCE}\n"
    )


def test_a_component_by_its_old_name_is_explained_under_the_new_one(things):
    assert explain(things, "thing", "old_words") == explain(things, "thing", "words")


def test_without_a_variant_all_are_listed_and_a_single_one_is_explained(things):
    assert explain(things, "thing") == (
        "thing has 2 variants:\n"
        "  later  comes later\n"
        "  words  some words\n"
        "\n"
        "All about one of them: modalities-pipeline config explain thing/words\n"
    )
    assert explain(things, "tokenizer") == explain(things, "tokenizer", "one")


@pytest.mark.parametrize(
    ("component_key", "variant_key", "message"),
    [
        ("thnig", None, "unknown component_key 'thnig'; did you mean 'thing'?"),
        ("thing", "wrods", "unknown variant_key 'wrods' of component 'thing'; did you mean 'words'?"),
    ],
)
def test_what_does_not_exist_is_answered_with_the_closest(things, component_key, variant_key, message):
    """B077"""
    with pytest.raises(ConfigError) as error:
        explain(things, component_key, variant_key)
    assert str(error.value) == message


def test_the_table_tells_what_builds_each_component(things):
    later, words, tokenizer = table(things)
    assert (later.builder, later.interface) == ("a.b:later", "integer")
    assert (words.builder, words.interface, words.other_names) == ("a.b:c", "Dataset", ("old_words",))
    assert tokenizer.builder == "builtins:dict"


def test_the_table_fits_a_terminal():
    lines = table_as_text(table(REGISTRY)).splitlines()
    assert max(map(len, lines)) <= 120
    assert sorted(line.split()[0] for line in lines if not line.startswith(" ")) == sorted("/".join(n) for n in NAMES)


def test_a_long_name_in_the_table_stands_in_a_line_of_its_own():
    entity = ComponentEntity("thing", "x" * 60, "a.b:c", _Nothing, None, "word " * 20)
    lines = table_as_text(table(Registry([entity]))).splitlines()
    assert lines[0] == "thing/" + "x" * 60
    assert lines[1].startswith(" " * 46 + "word word")
    assert " ".join(lines[1:]).split() == ["word"] * 20


def test_the_page_has_a_section_for_each_component_and_variant(things):
    page = markdown(things)
    for heading in ("## thing", "### thing/later", "### thing/words", "## tokenizer", "### tokenizer/one"):
        assert f"\n{heading}\n" in page
    assert "| [`later`](#thinglater) | comes later |" in page
    assert "| [`words`](#thingwords) (`old_words`) | some words |" in page
    assert "\nSome words.\n\nThey are few.\n\nBuilt by `a.b:c` (`Dataset`).\n" in page
    assert "| `num_words` | integer >= 1 | `4` | how many |" in page


def test_a_table_has_no_column_of_meanings_if_no_field_has_one():
    entity = ComponentEntity("thing", "bare", "a.b:c", _Bare, None, "torch.nn.Thing")
    page = markdown(Registry([entity]))
    assert "| field | value | default |\n|---|---|---|\n| `always` | true only | `true` |\n" in page


def test_no_sentence_is_said_twice_and_names_keep_their_letters():
    entity = ComponentEntity("thing", "bare", "a.b:c", _Bare, None, "torch.nn.Thing")
    twice = ComponentEntity("thing", "twice", "a.b:c", _Twice, None, "the only thing that there is")
    page = markdown(Registry([entity, twice]))
    assert "\ntorch.nn.Thing.\n" in page
    assert page.count("he only thing that there is.") == 1


def test_no_variant_of_the_page_repeats_itself():
    for section in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        sentences = [line for line in section.split("\n\n") if not line.startswith(("|", "#"))]
        assert len(sentences) == len(set(sentences)), section
