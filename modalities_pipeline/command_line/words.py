"""What every word of the command line has in common: the look of its help, where it logs, who is asked for it."""

import contextlib
import faulthandler
import importlib
import io
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

_MAX_WIDTH = 100


class _Formatter(click.HelpFormatter):
    """Lists stand four columns in, text stands at the left."""

    def __init__(self, indent_increment: int = 4, width: int | None = None, max_width: int | None = None) -> None:
        super().__init__(indent_increment, width, max_width)

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, "usage: " if prefix is None else prefix)


class _Context(click.Context):
    formatter_class = _Formatter


class _Look(click.Command):
    """Writes the text of the help, and what follows it, without indentation."""

    context_class = _Context

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        own = {"help_option_names": ["-h", "--help"], "max_content_width": _MAX_WIDTH}
        super().__init__(*arguments, **{**settings, "context_settings": own})

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.help:
            formatter.write_paragraph()
            formatter.write_text(self.help)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(self.epilog)


class Word(_Look):
    """A word that does something: its function is called with the options and returns an exit code or nothing.

    Attributes:
        shows_bars: whether progress is shown as bars if stderr is a terminal.
    """

    shows_bars = False

    def invoke(self, ctx: click.Context) -> Any:
        """Call the word's function, with logging to stderr set up."""
        with _reports_on_stderr(self.shows_bars):
            return super().invoke(ctx)


class WordGroup(_Look, click.Group):
    """A word that only leads to others; they are listed in the order in which they were added."""

    command_class = Word

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._write_words(formatter, {word: _first_sentence(self.commands[word]) for word in self.commands})

    def _write_words(self, formatter: click.HelpFormatter, summaries: Mapping[str, str]) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(summaries.items()))


class LazyGroup(WordGroup):
    """A group whose words are imported when they are used; until then only their summaries are known.

    Args:
        targets: word -> ("module:attribute" of its command, its summary for the help of this group).
    """

    def __init__(self, *arguments: Any, targets: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.targets = targets

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.targets:
            return None
        module, _, attribute = self.targets[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.targets, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._write_words(formatter, {word: summary for word, (_, summary) in self.targets.items()})


def _first_sentence(command: click.Command) -> str:
    """What a list of words says about one: its help up to the first full stop or colon, begun in lower case."""
    sentence = re.split(r"[.:](?:\s|$)", command.help or "", maxsplit=1)[0]
    return sentence[:1].lower() + sentence[1:]


@contextlib.contextmanager
def _reports_on_stderr(shows_bars: bool) -> Iterator[None]:
    """Log to stderr; if that is a terminal and the word wants it, show progress as bars there."""
    layout = "%(asctime)s %(levelname)s %(message)s"
    if sys.stderr is None:  # closed by whoever started this
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the rest of the process)
    with contextlib.suppress(io.UnsupportedOperation):  # stderr may be no file
        faulthandler.enable()  # a file cut off by another program while it is mapped ends this one without a word
    if not (shows_bars and sys.stderr.isatty()):
        logging.basicConfig(level=logging.INFO, format=layout, stream=sys.stderr)
        yield
        return
    from rich.console import Console
    from rich.logging import RichHandler

    from modalities_pipeline.data.progress_log import progress_bars

    console = Console(stderr=True)
    handler = RichHandler(console=console, show_path=False, log_time_format="%H:%M:%S")
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
    with progress_bars(console):
        yield
