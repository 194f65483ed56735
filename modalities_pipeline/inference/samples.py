"""Generated samples on disk: JSON for programs, Markdown for people."""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path

JSON_FILE_NAME = "generated_text.json"
MARKDOWN_FILE_NAME = "generated_text.md"


@dataclasses.dataclass(frozen=True)
class GeneratedSample:
    """A prompt and how the model went on; the end-of-document token is neither in the text nor counted."""

    prompt: str
    continuation: str
    num_new_tokens: int
    stopped_at_eod: bool


def write_samples(samples: Sequence[GeneratedSample], output_dir: Path) -> None:
    """Write `generated_text.json` and `generated_text.md` into a new folder."""
    output_dir.mkdir()
    content = [dataclasses.asdict(sample) for sample in samples]
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (output_dir / JSON_FILE_NAME).write_text(text, encoding="utf-8")
    (output_dir / MARKDOWN_FILE_NAME).write_text(samples_as_markdown(samples), encoding="utf-8")


def read_generated_text(output_dir: Path) -> list[GeneratedSample]:
    """The samples in the folder of a finished `generated_text` stage."""
    content = json.loads((output_dir / JSON_FILE_NAME).read_text(encoding="utf-8"))
    return [GeneratedSample(**item) for item in content]


def samples_as_markdown(samples: Sequence[GeneratedSample]) -> str:
    """A section for each sample: what was given, what came, why it ended."""
    sections = []
    for number, sample in enumerate(samples, start=1):
        reason = "end of document" if sample.stopped_at_eod else "limit reached"
        sections.append(
            f"## Sample {number}\n\nPrompt:\n\n{_fenced(sample.prompt)}\n\n"
            f"Continuation ({sample.num_new_tokens} tokens, {reason}):\n\n{_fenced(sample.continuation)}\n"
        )
    return "\n".join(["# Generated text\n", *sections])


def _fenced(text: str) -> str:
    """A code block that the text, whatever backticks it has, cannot end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
