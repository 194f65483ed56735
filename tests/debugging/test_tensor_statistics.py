"""Statistics of a model's tensors: what is written, when, and that the model does not notice."""

import gc
import weakref

import pytest
import torch
from torch import nn

from modalities_pipeline.debugging import tensor_statistics
from modalities_pipeline.exceptions import ConfigError, OutputNotWritableError

STATISTICS = ["nan_count", "inf_count", "mean", "std", "min", "max"]
KEYS = [
    *("tensor_tag", "hook_type", "global_shape", "local_shape", "dtype", "is_dtensor"),
    *STATISTICS,
    *("counter", "rank", "timestamp_ns"),
]


class TwoLayers(nn.Module):
    """Its layers are called with a keyword, and give a dict."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.second = Named()

    def forward(self, x):
        return self.second(self.first(x), scale=torch.tensor([2, 3]))["y"]


class Named(nn.Module):
    def forward(self, x, scale):
        return {"y": x * scale, "names": ["a"], "more": (x.detach(), None)}


def _run(model, x):
    model(x).sum().backward()


def test_each_tensor_is_a_line_with_the_columns_of_modalities(enrich, read):
    torch.manual_seed(0)
    model = TwoLayers()
    assert enrich(model) is model
    x = torch.tensor([[1.0, 2.0, 6.0]])
    _run(model, x)
    lines = read()
    assert all(list(line) == KEYS for line in lines)
    assert [(line["hook_type"], line["tensor_tag"]) for line in lines] == [
        ("forward_input", "first"),
        ("forward_weights", "first.weight"),
        ("forward_weights", "first.bias"),
        ("forward_output", "first"),
        ("forward_input", "second[0]"),
        ("forward_input", "second[scale]"),
        ("forward_output", "second[y]"),
        ("forward_output", "second[more][0]"),
        ("backward_output", "second[y]"),
        ("backward_output", "first"),
    ]
    first = lines[0]
    assert (first["global_shape"], first["local_shape"], first["dtype"]) == ([1, 3], [1, 3], "torch.float32")
    assert (first["mean"], first["std"], first["min"], first["max"]) == (3.0, pytest.approx(7**0.5), 1.0, 6.0)
    assert (first["is_dtensor"], first["counter"], first["rank"]) == (False, 0, 0)
    assert first["timestamp_ns"] < lines[-1]["timestamp_ns"]
    gradient = lines[-1]
    assert (gradient["min"], gradient["max"]) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([1.0, 3.0], dtype=torch.bfloat16), (0, 0, 2.0, 2**0.5, 1.0, 3.0)),
        (torch.tensor([6e4, 6e4], dtype=torch.float16), (0, 0, 6e4, 0.0, 6e4, 6e4)),
        (torch.tensor([0.0, 1e-100], dtype=torch.float64), (0, 0, 5e-101, 5e-101 * 2**0.5, 0.0, 1e-100)),
        (torch.tensor([1.0, float("nan"), float("inf")]), (1, 1, None, None, None, None)),
        (torch.tensor([1.0, float("-inf")]), (0, 1, None, None, None, 1.0)),
        (torch.tensor([2**62, -3]), (0, 0, -1, -1, -3, 2**62)),
        (torch.tensor([2, -3], dtype=torch.int32), (0, 0, -1, -1, -3, 2)),
        (torch.tensor([True]), (0, 0, -1, -1, -1, -1)),
        (torch.tensor([complex(1, float("nan"))]), (1, 0, -1, -1, -1, -1)),
        (torch.tensor(5.0), (0, 0, 5.0, 0.0, 5.0, 5.0)),
        (torch.zeros(0, 4), (0, 0, None, None, None, None)),
    ],
    ids=lambda value: str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "",
)
@pytest.mark.filterwarnings("error")
def test_statistics_of_every_kind_of_tensor(tensor, expected, enrich, read):
    """Computed in at least float32; null where there is no finite number."""
    enrich(nn.Sequential(nn.Identity()))(tensor)
    line = read()[0]
    found = tuple(line[key] for key in STATISTICS)
    assert found == tuple(
        pytest.approx(value, rel=1e-4, abs=0) if isinstance(value, float) else value for value in expected
    )


def test_lines_are_written_at_the_interval_only_and_cost_nothing_between(enrich, read, monkeypatch):
    computed = []
    original = tensor_statistics._statistics
    monkeypatch.setattr(tensor_statistics, "_statistics", lambda tensor: computed.append(1) or original(tensor))
    model = enrich(nn.Sequential(nn.Linear(1, 1)), log_interval_steps=3)
    hooks = []
    for _ in range(7):
        output = model(torch.ones(1, 1))
        hooks.append(bool(output._backward_hooks))
        output.sum().backward()
    kinds = ["forward_input", "forward_weights", "forward_weights", "forward_output", "backward_output"]
    expected = [(kind, counter) for counter in (0, 3, 6) for kind in kinds]
    assert [(line["hook_type"], line["counter"]) for line in read()] == expected
    assert len(computed) == len(expected)
    assert hooks == [True, False, False, True, False, False, True]


def test_calls_are_counted_by_hook(enrich, read):
    """An evaluation between two steps has no backward pass, so that is the second call for the one, not the other."""
    model = enrich(nn.Sequential(nn.Linear(1, 1)), log_interval_steps=None)
    _run(model, torch.ones(1, 1))
    with torch.no_grad():
        model(torch.ones(1, 1))
    _run(model, torch.ones(1, 1))
    lines = read()
    assert [line["counter"] for line in lines if line["hook_type"] == "forward_output"] == [0, 1, 2]
    assert [line["counter"] for line in lines if line["hook_type"] == "backward_output"] == [0, 1]


def test_gradients_are_those_of_the_plain_model_and_views_in_place_work(enrich):
    class InPlace(nn.Module):
        def forward(self, x):
            return x.relu_()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), InPlace(), nn.Linear(3, 1))
    x = torch.randn(4, 3)
    _run(model, x)
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    _run(enrich(model), x)
    assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(model.parameters(), expected, strict=True))


def test_no_tensor_and_no_file_outlives_its_use(enrich, tmp_path):
    model = enrich(nn.Sequential(nn.Linear(2, 2)))
    output = model(torch.ones(1, 2))
    watched, file = weakref.ref(output), _file_of(model)
    del output
    assert watched() is None
    assert not file.closed
    del model
    gc.collect()
    assert file.closed


def _file_of(model):
    watcher = next(iter(model[0]._forward_hooks.values())).__self__
    return watcher._writer._file


def test_lines_are_in_the_file_before_the_next_module_runs(read, enrich):
    """So that the last ones before a crash are there."""

    class Crash(nn.Module):
        def forward(self, x):
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        enrich(nn.Sequential(nn.Identity(), Crash()))(torch.ones(1))
    assert [line["tensor_tag"] for line in read()] == ["0", "0", "1"]


@pytest.mark.parametrize("rank", [0, 1])
def test_each_tracked_rank_makes_its_own_folder_and_the_others_nothing(rank, enrich, tmp_path, monkeypatch):
    """W27: only rank 0 made the folder, too late or not at all for the others."""
    monkeypatch.setattr(tensor_statistics, "get_rank", lambda: rank)
    monkeypatch.setattr(tensor_statistics, "get_world_size", lambda: 2)
    model = enrich(nn.Sequential(nn.Identity()), tracked_ranks={1})
    model(torch.ones(1))
    files = [path.name for path in tmp_path.rglob("*.jsonl")]
    assert files == (["tensor_stats_rank_1.jsonl"] if rank == 1 else [])
    assert (tmp_path / "logs").exists() == (rank == 1)


def test_ranks_that_there_are_not_are_refused(enrich):
    with pytest.raises(ConfigError, match=r"tracked_ranks are 3, 8, but the run has only 1"):
        enrich(nn.Sequential(nn.Identity()), tracked_ranks={8, 3})


def test_a_folder_that_cannot_be_made_is_said(enrich, tmp_path):
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(OutputNotWritableError, match=r"tensor_stats_rank_0\.jsonl cannot be written"):
        enrich(nn.Sequential(nn.Identity()))


def test_compiled_models_are_refused(enrich):
    model = nn.Sequential(torch.compile(nn.Identity()))
    with pytest.raises(ConfigError, match="debugging_enriched: 0 is compiled"):
        enrich(model)
