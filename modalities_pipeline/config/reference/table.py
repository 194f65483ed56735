"""The component reference: which components there are, and what their configs take. Made from the registry."""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.reference.examples import example_of
from modalities_pipeline.config.reference.field_words import (
    FieldWords,
    NestedWords,
    as_sentence,
    fields_in_words,
    paragraphs_about,
)
from modalities_pipeline.config.reference.rows import ReferenceRow, keys_of_interface, row_of
from modalities_pipeline.config.registry import Registry

_WIDTH = 118
_PACKAGE = "modalities_pipeline."
_MAX_NAME_WIDTH = 44
_VARIANT_COLUMNS = ["variant", "what it is"]
_FIELD_COLUMNS = ["field", "value", "default", "meaning"]
_PREFACE = """# Components

What a YAML file can ask for. A component is a mapping with three keys:

```yaml
tokenizer:
  component_key: tokenizer
  variant_key: pretrained_hf_tokenizer
  config:
    pretrained_model_name_or_path: path/to/tokenizer
```

Another component gets it by `{instance_key: tokenizer, pass_type: BY_REFERENCE}`; all that refer to one key share one
object. Where an integer is wanted, a `number_conversion` may stand. Names in parentheses are those of other versions
of Modalities; they are accepted.

A training needs most of all a [model](#modelgpt2), an [optimizer](#optimizeradam_w), a
[scheduler](#schedulerlinear_warmup_cosine_annealing_lr), a [dataset](#datasetpacked_mem_map_dataset_continuous) and a
[data_loader](#data_loaderdefault); `configs/train_base.yaml` has them wired together, and [config.md](config.md) tells
how a config is written.

This page is generated from the table of components: `modalities-pipeline components --format markdown`. The same,
for one component: `modalities-pipeline config explain tokenizer/pretrained_hf_tokenizer`.
"""


def table(registry: Registry) -> list[ReferenceRow]:
    """All variants, sorted by their names."""
    rows = [row_of(entity) for entity in registry.entities()]
    return sorted(rows, key=lambda row: (row.component_key, row.variant_key))


def table_as_text(rows: Iterable[ReferenceRow]) -> str:
    """The table for a terminal: a name and what it is in each line, at most 120 columns wide."""
    rows = list(rows)
    names = [f"{row.component_key}/{row.variant_key}" for row in rows]
    width = min(max(map(len, names), default=0), _MAX_NAME_WIDTH)
    lines = []
    for name, row in zip(names, rows, strict=True):
        text = textwrap.wrap(row.description, _WIDTH - width - 2, break_on_hyphens=False) or [""]
        if len(name) > width:
            lines.append(name)
            name = ""
        lines += [f"{'' if number else name:{width}}  {part}".rstrip() for number, part in enumerate(text)]
    return "\n".join(lines)


def explain(registry: Registry, component_key: str, variant_key: str | None = None) -> str:
    """A variant's fields and an example; without a variant, and if there are several, the list of them.

    Raises:
        ConfigError: there is no such component or variant; the message names the closest.
    """
    if variant_key is None:
        entities = registry.entities(component_key)
        if len(entities) != 1:
            return _list_of_variants(registry, component_key, entities)
        variant_key = entities[0].variant_key
    return "\n".join(_explained(registry, registry.get_entity(component_key, variant_key))) + "\n"


def markdown(registry: Registry) -> str:
    """The whole reference as a page of Markdown."""
    rows = table(registry)
    keys = list(dict.fromkeys(row.component_key for row in rows))
    contents = "\n".join(f"- [{key}](#{key})" for key in keys)
    sections = ["\n".join(_section(registry, key, [row for row in rows if row.component_key == key])) for key in keys]
    return "\n".join([_PREFACE, contents, "", *sections])


def write_reference(path: Path) -> None:
    """Write the reference of this package's own components."""
    path.write_text(markdown(Registry()), encoding="utf-8")


def _list_of_variants(registry: Registry, component_key: str, entities: list[ComponentEntity]) -> str:
    if not entities:
        registry.get_entity(component_key, "")  # raises, naming the closest
    width = max(len(entity.variant_key) for entity in entities)
    lines = [f"{component_key} has {len(entities)} variants:"]
    for entity in sorted(entities, key=lambda entity: entity.variant_key):
        lines += _wrapped(f"  {entity.variant_key:{width}}  {entity.description}", " " * (width + 4))
    lines += [
        "",
        f"All about one of them: modalities-pipeline config explain {component_key}/{entities[0].variant_key}",
    ]
    return "\n".join(lines) + "\n"


def _explained(registry: Registry, entity: ComponentEntity) -> Iterator[str]:
    row, keys_of = row_of(entity), keys_of_interface(registry)
    config_type = registry.get_config(entity.component_key, entity.variant_key)
    yield f"{row.component_key}/{row.variant_key}"
    yield from _wrapped(f"  {row.description}", "  ")
    facts = {
        "built by": row.builder,
        "is a": row.interface,
        "config": row.config,
        "also called": ", ".join(row.other_names),
    }
    for name, value in facts.items():
        if value:
            yield f"  {name + ':':13}{value}"
    yield ""
    yield from (line for part in paragraphs_about(config_type, row.description) for line in (*_wrapped(part, ""), ""))
    fields = fields_in_words(config_type, keys_of)
    yield "config:" if fields else "config: {}  (nothing to set)"
    yield from _field_lines(fields, "  ", set())
    yield from ("", "example, of what is required:", "")
    yield textwrap.indent(example_of(entity, config_type, keys_of), "  ").rstrip("\n")


def _field_lines(fields: Iterable[FieldWords], indent: str, explained: set[str]) -> Iterator[str]:
    """Lines of the fields and of the mappings in them, each kind of which is explained where it comes first."""
    for field in fields:
        need = "required" if field.default is None else f"default: {field.default}"
        names = f" (also: {', '.join(field.other_names)})" if field.other_names else ""
        yield from _wrapped(f"{indent}{field.name}{names}: {field.type_words}; {need}", indent + "    ")
        if field.description:
            yield from _wrapped(f"{indent}    {field.description}", indent + "    ")
        for nested in field.nested:
            if nested.name not in explained:
                explained.add(nested.name)
                head = f"{indent}    {nested.name}: {nested.description if nested.fields else '{}'}".rstrip()
                yield from _wrapped(head, indent + "      ")
                yield from _field_lines(nested.fields, indent + "      ", explained)


def _wrapped(text: str, following_indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=following_indent, break_on_hyphens=False)


def _section(registry: Registry, component_key: str, rows: list[ReferenceRow]) -> Iterator[str]:
    keys_of = keys_of_interface(registry)
    yield from (f"## {component_key}", "", *_markdown_table(_VARIANT_COLUMNS, map(_variant_cells, rows)), "")
    for row in rows:
        config_type = registry.get_config(component_key, row.variant_key)
        yield from (f"### {component_key}/{row.variant_key}", "", f"{as_sentence(row.description)}.", "")
        yield from (line for part in paragraphs_about(config_type, row.description) for line in (part, ""))
        yield from _facts(row)
        fields = fields_in_words(config_type, keys_of)
        if not fields:
            yield from ("Nothing to set: `config: {}`.", "")
            continue
        yield from (*_markdown_table(_FIELD_COLUMNS, list(_field_cells(fields, "", {}))), "")


def _variant_cells(row: ReferenceRow) -> list[str]:
    name = f"[`{row.variant_key}`](#{row.component_key}{row.variant_key})"
    others = f" ({', '.join(f'`{name}`' for name in row.other_names)})" if row.other_names else ""
    return [name + others, row.description]


def _facts(row: ReferenceRow) -> Iterator[str]:
    """What only those want to know who write Python."""
    kind = f" (`{row.interface}`)" if row.interface else ""
    yield from (f"Built by `{row.builder.removeprefix(_PACKAGE)}`{kind}.", "")


def _field_cells(fields: Iterable[FieldWords], prefix: str, explained: dict[str, str]) -> Iterator[list[str]]:
    """A row for each field; `explained`: class of a mapping -> the field at which its fields are listed."""
    for field in fields:
        others = f" ({', '.join(f'`{name}`' for name in field.other_names)})" if field.other_names else ""
        default = "required" if field.default is None else f"`{field.default}`"
        full_name = f"{prefix}{field.name}"
        new = [nested for nested in field.nested if nested.name not in explained]
        old = dict.fromkeys(explained[nested.name] for nested in field.nested if nested not in new)
        notes = [f"Fields as of `{place}`" for place in old]
        meaning = ". ".join(filter(None, (field.description, *notes, *_notes_on_mappings(field, new))))
        yield [f"`{full_name}`{others}", field.type_words, default, meaning]
        for nested in new:
            explained[nested.name] = full_name
            note = f"of {nested.name}" if len(field.nested) > 1 else ""
            for *cells, meaning in _field_cells(nested.fields, f"{full_name}.", explained):
                yield [*cells, "; ".join(filter(None, (note, meaning)))]


def _notes_on_mappings(field: FieldWords, new: list[NestedWords]) -> Iterator[str]:
    """What is said of each mapping that may stand in a field; with its name, if there are several."""
    for nested in new:
        words = nested.description.removesuffix(".")
        yield f"{nested.name}: {words}" if words and len(field.nested) > 1 else words


def _markdown_table(columns: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    """The lines of a table, without a last column that is empty."""
    rows = list(rows)
    if rows and not any(cells[-1] for cells in rows):
        columns, rows = columns[:-1], [cells[:-1] for cells in rows]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for cells in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
