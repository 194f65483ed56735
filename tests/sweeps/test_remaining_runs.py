"""Which runs of a sweep remain, whatever else lies in their folders."""

import json
from pathlib import Path

import pytest

from modalities_pipeline.exceptions import DatasetNotFoundError, OutputExistsError
from modalities_pipeline.sweeps import remaining_runs
from modalities_pipeline.sweeps.remaining_runs import list_remaining_runs

STEPS = 3
LINE = '{"num_train_steps_done": 1}\n'
OLD, NEW = "2030-01-01__00-00-00", "2030-01-02__00-00-00"


@pytest.fixture
def sweep(tmp_path) -> Path:
    return tmp_path / "2030-01-01__00-00-00_0123456789abcdef"


@pytest.fixture
def make_run(sweep):
    """Function (hash, time, world size, files) -> the config of a run that has left these files."""

    def make(digit: str, time: str = OLD, world_size: int = 2, **files: str) -> Path:
        folder = sweep / str(world_size) / f"{digit * 16}_{time}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("sweep: {a: 1}\n")
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(content)
        return folder / "config.yaml"

    return make


def _list(sweep: Path, **options) -> list[Path]:
    target = sweep.parent / "list.txt"
    remaining, _ = list_remaining_runs(sweep, target, STEPS, **options)
    assert target.read_text().splitlines() == list(map(str, remaining))
    return remaining


def test_a_run_is_done_when_it_has_all_results(sweep, make_run):
    make_run("a", evaluation_results__jsonl=LINE * STEPS)
    make_run("b", result__json=json.dumps({"num_steps": STEPS}))
    remaining = [
        make_run("c"),
        make_run("d", evaluation_results__jsonl=LINE * (STEPS - 1)),
        make_run("e", evaluation_results__jsonl=LINE * (STEPS - 1) + '{"cut off"'),
        make_run("f", result__json=json.dumps({"num_steps": STEPS - 1})),
    ]
    assert _list(sweep) == remaining


def test_results_in_an_experiment_folder_count(sweep, make_run):
    config = make_run("a")
    experiment = config.parent / "2030-01-01__00-00-00_experiment"
    experiment.mkdir()
    (experiment / "evaluation_results.jsonl").write_text(LINE * STEPS)
    assert _list(sweep) == []


def test_more_results_than_expected_are_told(sweep, make_run, caplog):
    make_run("a", evaluation_results__jsonl=LINE * (STEPS + 1))
    assert _list(sweep) == []
    assert "4 results, more than the 3 steps expected" in caplog.text


def test_other_yaml_files_do_not_matter(sweep, make_run):
    """Modalities gives up at a second YAML file."""
    config = make_run("a", notes__yaml="a: 1\nsweeps: 2\n", broken__yaml="sweep: [\n\t")
    make_run("b", other__yml="x: {y: 1}\n")
    nested = config.parent / "wandb" / "files"
    nested.mkdir(parents=True)
    (nested / "config.yaml").write_text("sweep: {a: 1}\n")
    (sweep / "2" / "config.yaml").write_text("sweep: {a: [1]}\n")
    (sweep / "2" / f"{'c' * 16}_{OLD}").mkdir()  # without a config
    assert [path.name for path in _list(sweep)] == ["config.yaml", "config.yaml"]


def test_the_newest_folder_of_a_combination_counts(sweep, make_run):
    make_run("a", OLD)
    make_run("a", NEW, evaluation_results__jsonl=LINE * STEPS)
    make_run("b", OLD, evaluation_results__jsonl=LINE * STEPS)
    newest = make_run("b", NEW)
    assert _list(sweep) == [newest]


def test_runs_of_another_size_are_other_runs(sweep, make_run):
    make_run("a", world_size=2, evaluation_results__jsonl=LINE * STEPS)
    of_four = make_run("a", world_size=4)
    assert _list(sweep) == [of_four]
    assert _list(sweep, world_size=2) == []
    assert _list(sweep / "4") == [of_four]


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "torch.OutOfMemoryError", "<class 'torch.OutOfMemoryError'>"])
def test_an_error_that_would_come_again_may_count_as_done(sweep, make_run, kind):
    config = make_run("a")
    log = {"environment": {"rank": 0}, "error": {"error": "no memory", "type": kind, "stacktrace": []}}
    (config.parent / "error_logs_host_0.log").write_text(json.dumps(log))
    assert _list(sweep) == [config]
    assert _list(sweep, skip_exception_types=["ValueError", "OutOfMemoryError"]) == []


def test_a_run_that_was_started_can_be_given_a_new_folder(sweep, make_run):
    fresh = make_run("a")
    started = make_run("b", evaluation_results__jsonl=LINE)
    first, second = _list(sweep, create_new_folders_if_partially_done=True)
    assert first == fresh
    assert second.parent.name.startswith("b" * 16)
    assert second.parent != started.parent
    assert second.read_bytes() == started.read_bytes()
    assert (started.parent / "evaluation_results.jsonl").read_text() == LINE


def test_a_new_folder_never_replaces_one(sweep, make_run, monkeypatch):
    started = make_run("b", OLD, evaluation_results__jsonl=LINE)
    monkeypatch.setattr(remaining_runs, "time_of_folders", lambda: OLD)
    with pytest.raises(OutputExistsError, match="Wait a second"):
        _list(sweep, create_new_folders_if_partially_done=True)
    assert (started.parent / "evaluation_results.jsonl").read_text() == LINE


def test_a_folder_without_a_sweep_is_told(sweep, make_run):
    make_run("a")
    with pytest.raises(DatasetNotFoundError, match="no config of a sweep for 8 processes"):
        _list(sweep, world_size=8)
    with pytest.raises(DatasetNotFoundError, match=r"no config of a sweep in .*nowhere"):
        _list(sweep.parent / "nowhere")


@pytest.mark.parametrize("name", ["abc", "XYZ0123456789abcdef", "0123456789ABCDEF"])
def test_any_hash_of_letters_and_digits_names_a_run(sweep, name):
    config = sweep / "2" / f"{name}_{OLD}" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("sweep: {a: 1}\n")
    assert _list(sweep) == [config]


def test_folders_that_are_passed_over_are_named(sweep, make_run, caplog):
    run = make_run("a")
    (run.parent.with_name("mine")).mkdir()
    (run.parent.with_name("mine") / "config.yaml").write_text("sweep: {a: 2}\n")
    make_run("b").unlink()
    assert _list(sweep) == [run]
    messages = sorted(record.getMessage() for record in caplog.records)
    assert len(messages) == 2
    assert f"{'b' * 16}_{OLD} is passed over: there is no config" in messages[0]
    assert "mine is passed over: its name is not HASH_TIME" in messages[1]
