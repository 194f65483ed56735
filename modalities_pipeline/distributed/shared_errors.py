"""Errors that every rank runs into alike, such as a wrong config: reported once."""

import contextlib
from collections.abc import Iterator

import torch.distributed as dist

from modalities_pipeline.exceptions import ConfigError


class ReportedElsewhereError(ConfigError):
    """Another rank raises, and so reports, the error that ends the run; this one just has to end, too."""


@contextlib.contextmanager
def config_errors_raised_once() -> Iterator[None]:
    """Wrap what all ranks do alike and what raises `ConfigError` if a config is wrong; a collective operation.

    Raises:
        ConfigError: what was raised inside, on the first rank where it was.
        ReportedElsewhereError: on all other ranks, also on those where nothing was raised: none is left waiting.
    """
    error: ConfigError | None = None
    try:
        yield
    except ConfigError as raised:
        error = raised
    if not dist.is_available() or not dist.is_initialized():
        if error is not None:
            raise error
        return
    messages: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(messages, str(error) if error is not None else None)
    own_rank = dist.get_rank()
    is_news = error is not None and str(error) not in messages[:own_rank]
    if error is not None and is_news:
        raise error
    failed = [rank for rank, message in enumerate(messages) if message is not None]
    if failed:
        raise ReportedElsewhereError(f"Rank {failed[0]} reports what is wrong with the config.") from error
