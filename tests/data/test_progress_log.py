"""Progress of long work, as lines and as bars."""

import io
import logging
from collections.abc import Iterator

import pytest
from rich.console import Console

from modalities_pipeline.data import progress_log
from modalities_pipeline.data.progress_log import ProgressLog, progress_bars


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    times = iter((100.0, 104.0, 110.0, 111.0, 120.0, 121.0))
    monkeypatch.setattr(progress_log.time, "monotonic", lambda: next(times))
    yield
    monkeypatch.undo()


@pytest.mark.usefixtures("clock")
def test_long_work_tells_how_far_it_is_and_short_work_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """Done of total, rate, time left, at most one line per ten seconds."""
    caplog.set_level(logging.INFO)
    progress = ProgressLog(logging.getLogger("test"), "Packing a.jsonl", 400, "documents")
    for done in (40, 100, 110, 200):
        progress.update(done)
    assert caplog.messages == [
        "Packing a.jsonl: 100 of 400 documents (25 %), 10 documents/s, 30 s left",
        "Packing a.jsonl: 200 of 400 documents (50 %), 10 documents/s, 20 s left",
    ]


@pytest.mark.usefixtures("clock")
def test_bytes_are_told_in_a_unit_that_people_can_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = ProgressLog(logging.getLogger("test"), "Indexing a.jsonl", 400 << 20, "bytes")
    for done in (40, 100 << 20):
        progress.update(done)
    assert caplog.messages == ["Indexing a.jsonl: 100.0 of 400.0 MiB (25 %), 10.0 MiB/s, 30 s left"]


def test_on_a_terminal_there_is_a_bar_that_goes_away_and_the_log_stays_silent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_log, "_BAR_INTERVAL_IN_S", 0.0)
    caplog.set_level(logging.INFO)
    terminal = io.StringIO()
    with progress_bars(Console(file=terminal, force_terminal=True, width=80)) as bars:
        with ProgressLog(
            logging.getLogger("test"), "Packing a_file_with_a_long_name.jsonl", 400, "documents"
        ) as progress:
            progress.update(100)
            bars.refresh()
        assert "25 %, " in terminal.getvalue()
        assert "left" in terminal.getvalue()
        assert bars.tasks == []
    assert caplog.messages == []


def test_work_that_failed_leaves_no_bar() -> None:
    with progress_bars(Console(file=io.StringIO(), force_terminal=True)) as bars:
        with pytest.raises(KeyError), ProgressLog(logging.getLogger("test"), "Packing", 400, "documents"):
            raise KeyError
        assert bars.tasks == []


def test_nothing_to_do_is_no_division_by_zero(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with ProgressLog(logging.getLogger("test"), "Packing a.jsonl", 0, "documents") as progress:
        progress.update(0)
    assert caplog.messages == []
