"""Errors that end the run of all ranks, such as a wrong config: reported by one of them."""

import contextlib
from collections.abc import Iterator

import torch.distributed as dist

from modalities_pipeline.exceptions import ConfigError, UserError

_MARK = "is_raised_on_all_ranks"


class ReportedElsewhereError(ConfigError):
    """Another rank raises, and so reports, the error that ends the run; this one just has to end, too."""


def is_raised_on_all_ranks(error: BaseException) -> bool:
    """Whether the error ends all ranks, so that none waits for another one."""
    return getattr(error, _MARK, False) is True


@contextlib.contextmanager
def errors_raised_once() -> Iterator[None]:
    """Wrap what may raise a `UserError` or an `OSError` on some or all ranks; a collective operation.

    Raises:
        UserError, OSError: what was raised inside, on the first rank where it was.
        ReportedElsewhereError: on all other ranks, also on those where nothing was raised: none is left waiting.
    """
    error: UserError | OSError | None = None
    try:
        yield
    except (UserError, OSError) as raised:
        error = raised
    if not dist.is_available() or not dist.is_initialized():
        if error is not None:
            raise error
        return
    messages: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(messages, str(error) if error is not None else None)
    failed = [rank for rank, message in enumerate(messages) if message is not None]
    if not failed:
        return
    if error is None or str(error) in messages[: dist.get_rank()]:
        elsewhere = ReportedElsewhereError(f"Rank {failed[0]} reports what is wrong.")
        setattr(elsewhere, _MARK, True)
        raise elsewhere from error
    setattr(error, _MARK, True)
    raise error
