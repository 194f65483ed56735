"""Progress lines of long work."""

import logging

import pytest

from modalities_pipeline.data import progress_log
from modalities_pipeline.data.progress_log import ProgressLog


def test_long_work_tells_how_far_it_is_and_short_work_is_silent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Done of total, rate, time left, at most one line per ten seconds."""
    clock = iter((100.0, 104.0, 110.0, 111.0, 120.0))
    monkeypatch.setattr(progress_log.time, "monotonic", lambda: next(clock))
    caplog.set_level(logging.INFO)
    progress = ProgressLog(logging.getLogger("test"), "Packing a.jsonl", 400, "documents")
    for done in (40, 100, 110, 200):
        progress.update(done)
    assert caplog.messages == [
        "Packing a.jsonl: 100 of 400 documents (25 %), 10 documents/s, 30 s left",
        "Packing a.jsonl: 200 of 400 documents (50 %), 10 documents/s, 20 s left",
    ]
