"""Helpers keep their promises."""

import enum
import re

import pytest
import torch
from torch import nn

from modalities_pipeline.exceptions import ConfigError, TimeRecorderStateError
from modalities_pipeline.util import (
    Aggregator,
    TimeRecorder,
    format_metrics_to_gb,
    get_experiment_id_from_config,
    get_local_number_of_trainable_parameters,
    get_module_class_from_name,
    get_synced_experiment_id_of_run,
    get_synced_string,
    get_total_number_of_trainable_parameters,
    parse_enum_by_name,
    print_rank_0,
    warn_rank_0,
)


class _Colour(enum.Enum):
    RED = 1
    BLUE = 2


def test_enum_members_are_found_by_name_and_a_wrong_name_lists_them():
    """W25: with Modalities a wrong name is a TypeError about something else."""
    assert parse_enum_by_name("RED", _Colour) is _Colour.RED
    with pytest.raises(ConfigError, match=r"'red' is unknown. Use one of: RED, BLUE."):
        parse_enum_by_name("red", _Colour)


def test_experiment_id_tells_time_and_content_of_the_config(tmp_path):
    """Two configs at one path do not share their hash; one config at two paths does."""
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("x: 1")
    second.write_text("x: 1")
    hashes = [get_experiment_id_from_config(path, hash_length=8).rsplit("_", 1)[1] for path in (first, second)]
    first.write_text("x: 2")
    assert hashes[0] == hashes[1] != get_experiment_id_from_config(first, hash_length=8).rsplit("_", 1)[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d_[0-9a-f]{16}", get_experiment_id_from_config(first))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d", get_experiment_id_from_config(None))


def test_strings_are_synchronised_with_and_without_a_process_group(process_group, tmp_path):
    config = tmp_path / "a.yaml"
    config.touch()
    assert get_synced_string("äb") == "äb"
    assert len(get_synced_experiment_id_of_run(config)) == 20 + 1 + 16
    with pytest.raises(ValueError, match="longer than 2 bytes"):
        get_synced_string("äb", max_string_byte_length=2)


def test_bytes_are_shown_in_gib():
    assert format_metrics_to_gb(3 * 1024**3 / 2) == 1.5


def test_trainable_parameters_are_counted_once():
    tied = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    tied[1].bias.requires_grad_(False)
    assert get_total_number_of_trainable_parameters(tied, None) == 9
    assert get_total_number_of_trainable_parameters([tied, nn.Linear(1, 1)], None) == 11
    assert get_local_number_of_trainable_parameters(tied) == 9


def test_module_classes_are_found_by_name():
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))
    assert get_module_class_from_name(model, "ReLU") is nn.ReLU
    assert get_module_class_from_name(model, "Conv2d") is None


def test_stop_watch_adds_up_and_refuses_wrong_order(monkeypatch):
    times = iter([10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr("modalities_pipeline.util.time.perf_counter", lambda: next(times))
    watch = TimeRecorder()
    with pytest.raises(TimeRecorderStateError, match="cannot be stopped while it is STOPPED"):
        watch.stop()
    with watch, pytest.raises(TimeRecorderStateError, match="cannot be reset while it is RUNNING"):
        watch.reset()
    watch.start()
    with pytest.raises(TimeRecorderStateError, match="cannot be started while it is RUNNING"):
        watch.start()
    watch.stop()
    assert repr(watch) == "5.0s"
    watch.reset()
    assert watch.delta_t == 0.0


def test_sums_are_reduced_without_changing_this_ranks_sum(process_group):
    sums: Aggregator[str] = Aggregator()
    first = torch.tensor(1.0)
    sums.add_value("a", first)
    sums.add_value("a", torch.tensor(2.0))
    assert first.item() == 1.0
    assert sums.get_all_reduced_value("a", postprocessing_fun=lambda total: total * 10).item() == 30.0
    assert sums.get_all_reduced_value("a").item() == 3.0
    sums.add_value("b", first)
    sums.remove_key("a")
    assert list(sums.key_to_value) == ["b"]
    sums.remove_keys()
    assert not sums.key_to_value


def test_only_rank_0_speaks(capsys, monkeypatch, recwarn):
    print_rank_0("hello")
    warn_rank_0("careful")
    monkeypatch.setattr("modalities_pipeline.util.get_rank", lambda: 1)
    print_rank_0("not me")
    warn_rank_0("not me")
    assert capsys.readouterr().out == "hello\n"
    assert [str(warning.message) for warning in recwarn.list] == ["careful"]
