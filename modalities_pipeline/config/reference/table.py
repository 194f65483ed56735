"""The component reference: which components there are, and what their configs take. Made from the registry."""

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import NUMBER, can_be
from modalities_pipeline.config.reference.examples import example_of
from modalities_pipeline.config.reference.field_words import (
    FieldWords,
    KeysOfInterface,
    fields_in_words,
    paragraphs_about,
)
from modalities_pipeline.config.registry import Registry

_WIDTH = 118
_MAX_NAME_WIDTH = 44
_CONFIG_ONLY = "config only"  # instead of what builds it
_VARIANT_COLUMNS = ["variant", "what it is", "built by", "config", "is a"]
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
of Modalities; they are accepted. "Config only" marks what this version checks but cannot build yet.

This page is generated from the table of components: `modalities-pipeline components --format markdown`. The same,
for one component: `modalities-pipeline config explain tokenizer/pretrained_hf_tokenizer`.
"""


@dataclasses.dataclass(frozen=True)
class ReferenceRow:
    """One variant, as text.

    Attributes:
        component_key, variant_key: its names.
        builder: "module:Name" of what builds it, or "config only".
        config: "module:Name" of its config class.
        interface: name of the class that the built object has, "integer" for numbers, or "" if that is not known.
        description: one line.
        other_names: variant keys of other versions of Modalities.
    """

    component_key: str
    variant_key: str
    builder: str
    config: str
    interface: str
    description: str
    other_names: tuple[str, ...]


def table(registry: Registry) -> list[ReferenceRow]:
    """All variants, sorted by their names."""
    rows = [_row(entity) for entity in registry.entities()]
    return sorted(rows, key=lambda row: (row.component_key, row.variant_key))


def table_as_text(rows: Iterable[ReferenceRow]) -> str:
    """The table for a terminal: a name and what it is in each line, at most 120 columns wide."""
    rows = list(rows)
    names = [f"{row.component_key}/{row.variant_key}" for row in rows]
    width = min(max(map(len, names), default=0), _MAX_NAME_WIDTH)
    lines = []
    for name, row in zip(names, rows, strict=True):
        note = f" ({_CONFIG_ONLY})" if row.builder == _CONFIG_ONLY else ""
        text = textwrap.wrap(f"{row.description}{note}", _WIDTH - width - 2, break_on_hyphens=False) or [""]
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


def _row(entity: ComponentEntity) -> ReferenceRow:
    return ReferenceRow(
        component_key=entity.component_key,
        variant_key=entity.variant_key,
        builder=_CONFIG_ONLY if entity.component_type is None else _target(entity.component_type),
        config=_target(entity.component_config_type),
        interface="integer" if entity.interface == NUMBER else (entity.interface or "").rpartition(":")[2],
        description=entity.description,
        other_names=entity.old_variant_keys,
    )


def _target(target: object) -> str:
    if isinstance(target, str):
        return target
    return f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', type(target).__name__)}"


def _keys_of(registry: Registry) -> KeysOfInterface:
    """Which components may be what a field wants; those of which nothing is known are left out."""
    declared = [(entity.component_key, entity.interface) for entity in registry.entities() if entity.interface]

    def keys_of(interface: str) -> list[str]:
        return list(dict.fromkeys(key for key, given in declared if can_be(given, interface)))

    return keys_of


def _list_of_variants(registry: Registry, component_key: str, entities: list[ComponentEntity]) -> str:
    if not entities:
        registry.get_entity(component_key, "")  # raises, naming the closest
    width = max(len(entity.variant_key) for entity in entities)
    lines = [f"{component_key} has {len(entities)} variants:"]
    for entity in sorted(entities, key=lambda entity: entity.variant_key):
        note = f" ({_CONFIG_ONLY})" if entity.component_type is None else ""
        lines += _wrapped(f"  {entity.variant_key:{width}}  {entity.description}{note}", " " * (width + 4))
    lines += [
        "",
        f"All about one of them: modalities-pipeline config explain {component_key}/{entities[0].variant_key}",
    ]
    return "\n".join(lines) + "\n"


def _explained(registry: Registry, entity: ComponentEntity) -> Iterator[str]:
    row, keys_of = _row(entity), _keys_of(registry)
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
    yield from (line for part in paragraphs_about(config_type) for line in (*_wrapped(part, ""), ""))
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
    keys_of = _keys_of(registry)
    yield from (f"## {component_key}", "", *_markdown_table(_VARIANT_COLUMNS, map(_variant_cells, rows)), "")
    for row in rows:
        config_type = registry.get_config(component_key, row.variant_key)
        fields = fields_in_words(config_type, keys_of)
        yield from (
            f"### {component_key}/{row.variant_key}",
            "",
            f"{row.description[:1].upper()}{row.description[1:]}.",
        )
        yield from ("", *(line for part in paragraphs_about(config_type) for line in (part, "")))
        if not fields:
            yield from ("Nothing to set: `config: {}`.", "")
            continue
        yield from (*_markdown_table(_FIELD_COLUMNS, _field_cells(fields, "", {})), "")


def _variant_cells(row: ReferenceRow) -> list[str]:
    name = f"[`{row.variant_key}`](#{row.component_key}{row.variant_key})"
    others = f" ({', '.join(f'`{name}`' for name in row.other_names)})" if row.other_names else ""
    built_by = row.builder if row.builder == _CONFIG_ONLY else f"`{_short(row.builder)}`"
    return [name + others, row.description, built_by, f"`{_short(row.config)}`", row.interface and f"`{row.interface}`"]


def _short(target: str) -> str:
    return target.removeprefix("modalities_pipeline.")


def _field_cells(fields: Iterable[FieldWords], prefix: str, explained: dict[str, str]) -> Iterator[list[str]]:
    """A row for each field; `explained`: class of a mapping -> the field at which its fields are listed."""
    for field in fields:
        others = f" ({', '.join(f'`{name}`' for name in field.other_names)})" if field.other_names else ""
        default = "required" if field.default is None else f"`{field.default}`"
        full_name = f"{prefix}{field.name}"
        new = [nested for nested in field.nested if nested.name not in explained]
        old = dict.fromkeys(explained[nested.name] for nested in field.nested if nested not in new)
        notes = [*(f"fields as of `{place}`" for place in old), *(nested.description for nested in new)]
        yield [
            f"`{full_name}`{others}",
            field.type_words,
            default,
            "; ".join(filter(None, (field.description, *notes))),
        ]
        for nested in new:
            explained[nested.name] = full_name
            note = f"of {nested.name}" if len(field.nested) > 1 else ""
            for *cells, meaning in _field_cells(nested.fields, f"{full_name}.", explained):
                yield [*cells, "; ".join(filter(None, (note, meaning)))]


def _markdown_table(columns: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for cells in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
