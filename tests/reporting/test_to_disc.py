"""Results on disk: one whole JSON object a line, unrounded, and never of steps that were taken back."""

import errno
import json
import os
import time

from modalities_pipeline.reporting.to_disc import ToDiscResultSubscriber, drop_results_after, read_results


def test_each_result_is_a_line_that_is_there_at_once(tmp_path, make_result_message):
    path = tmp_path / "new" / "metrics.jsonl"
    subscriber = ToDiscResultSubscriber(path)
    subscriber.consume_message(make_result_message(1))
    (line,) = path.read_text("utf-8").splitlines()
    result = json.loads(line)
    assert abs(result.pop("time") - time.time()) < 60
    assert result == {
        "dataloader_tag": "train",
        "num_train_steps_done": 1,
        "losses": {"train loss avg": 1.23456},
        "metrics": {"grad norm last": 2.0},
        "throughput_metrics": {"train tokens/s": 10.0},
    }
    subscriber.consume_message(make_result_message(2))
    assert [item["num_train_steps_done"] for item in read_results(path)] == [1, 2]


def test_a_number_that_is_not_finite_is_null(tmp_path, make_result_message):
    """NaN is no JSON; other programs could not read the line."""
    path = tmp_path / "metrics.jsonl"
    ToDiscResultSubscriber(path).consume_message(make_result_message(1, loss=float("nan")))
    assert read_results(path)[0]["losses"] == {"train loss avg": None}


def _fill_disk(monkeypatch, num_bytes: int) -> None:
    """Let the next write stop after so many bytes, and then none succeed."""

    def write(descriptor: int, content: bytes, write=os.write) -> int:
        monkeypatch.setattr(os, "write", refuse)
        return write(descriptor, content[:num_bytes])

    def refuse(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)


def test_a_full_disk_ends_nothing_is_reported_once_and_loses_no_line(
    tmp_path, make_result_message, monkeypatch, caplog
):
    path = tmp_path / "metrics.jsonl"
    subscriber = ToDiscResultSubscriber(path)
    subscriber.consume_message(make_result_message(1))
    with monkeypatch.context() as patch:
        _fill_disk(patch, num_bytes=20)
        for step in (2, 3):
            subscriber.consume_message(make_result_message(step))
    assert [item["num_train_steps_done"] for item in read_results(path)] == [1]
    assert path.read_text("utf-8").endswith("}\n")
    assert caplog.text.count("cannot be written (the disk is full); the training goes on") == 1
    subscriber.consume_message(make_result_message(4))
    assert [item["num_train_steps_done"] for item in read_results(path)] == [1, 2, 3, 4]
    assert "can be written again" in caplog.text


def test_what_could_never_be_written_is_counted_at_the_end(tmp_path, make_result_message, monkeypatch, caplog):
    subscriber = ToDiscResultSubscriber(tmp_path / "metrics.jsonl")
    _fill_disk(monkeypatch, num_bytes=0)
    for step in (1, 2):
        subscriber.consume_message(make_result_message(step))
    subscriber.close(is_completed=True)
    assert "metrics.jsonl lacks 2 results" in caplog.text
    assert read_results(tmp_path / "metrics.jsonl") == []


def test_other_ranks_write_nothing(tmp_path, make_result_message, monkeypatch):
    """B092"""
    monkeypatch.setattr("modalities_pipeline.reporting.to_disc.get_rank", lambda: 1)
    path = tmp_path / "metrics.jsonl"
    ToDiscResultSubscriber(path).consume_message(make_result_message(1))
    assert not path.exists()


def test_lines_after_the_step_that_is_resumed_from_are_dropped(tmp_path, make_result_message):
    """A resumed run writes these steps again; a line that a kill cut off is dropped, too."""
    path = tmp_path / "metrics.jsonl"
    subscriber = ToDiscResultSubscriber(path)
    for step in (2, 4, 6):
        subscriber.consume_message(make_result_message(step))
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"dataloader_tag": "tra')
    drop_results_after(path, 4)
    subscriber.consume_message(make_result_message(5))
    assert [item["num_train_steps_done"] for item in read_results(path)] == [2, 4, 5]


def test_nothing_to_read_is_no_result(tmp_path):
    drop_results_after(tmp_path / "metrics.jsonl", 0)
    assert read_results(tmp_path / "metrics.jsonl") == []
