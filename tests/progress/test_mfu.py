"""Model FLOPs utilisation: the vectors' numbers, the peak of device and dtype, and none rather than a wrong one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard

from modalities_pipeline.progress.configs import GPT2MFUCalculatorConfig
from modalities_pipeline.progress.mfu import GPT2MFUCalculator, flops_per_token
from modalities_pipeline.progress.peak_flops import PEAK_FLOPS, peak_flops_of
from modalities_pipeline.util import get_total_number_of_trainable_parameters

VECTORS = json.loads((Path(__file__).parent / "vectors" / "mfu.json").read_text("utf-8"))


def _calculator(model: nn.Module | list[nn.Module], **changes: Any) -> GPT2MFUCalculator:
    return GPT2MFUCalculator(
        **{"n_layer": 2, "sequence_length": 16, "n_embd": 128, "world_size": 2, **changes}, model_parts=model
    )


@pytest.fixture
def gpu(monkeypatch) -> None:
    """The models' device is one with a name, an A100."""

    class Device:
        @staticmethod
        def get_device_name(device: torch.device) -> str:
            return "NVIDIA A100-SXM4-80GB"

    monkeypatch.setattr(torch, "get_device_module", lambda device: Device)


def test_flops_of_a_token_are_those_of_the_vectors():
    for num_params, n_layer, sequence_length, n_embd, expected in VECTORS["formula_rows"]["rows"]:
        assert flops_per_token(num_params, n_layer, sequence_length, n_embd) == expected


def test_peaks_are_those_of_the_vectors_for_the_devices_that_these_know():
    for name, peak in VECTORS["peak"].items():
        assert peak_flops_of(f"NVIDIA {name}").half == peak


def test_mfu_is_that_of_the_vectors(gpu):
    """With the number of parameters that gives the example's floating point operations per token."""
    example = VECTORS["example"]
    attention = 12 * 12 * 1024 * 768
    num_parameters, rest = divmod(example["flops_per_token"] - attention, 6)
    assert rest == 0
    model = nn.ParameterList([torch.empty(num_parameters, dtype=torch.bfloat16, device="meta")])
    shape = {"n_layer": 12, "sequence_length": example["sequence_length"], "n_embd": 768}
    calculator = _calculator(model, **shape, world_size=round(example["peak_total"] / 312e12))
    mfu = calculator.compute(torch.tensor(example["samples_per_second"], dtype=torch.float64))
    assert mfu.item() == pytest.approx(example["mfu"], rel=1e-7)  # the vectors' number has single precision
    assert calculator.compute(10.0).item() == pytest.approx(example["mfu"], rel=1e-6)


@pytest.mark.parametrize(
    ("device_name", "row"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIE"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GB200", "GB200"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_each_variant_of_a_device_has_its_own_peak(device_name, row):
    """W28: an H100 PCIe is not as fast as an H100 SXM, an H200 is known, and an A100 is no A10."""
    assert peak_flops_of(device_name) is PEAK_FLOPS[row]


@pytest.mark.parametrize("device_name", ["NVIDIA GeForce RTX 4090", "NVIDIA A10G", "NVIDIA H1000", "", "cpu"])
def test_an_unknown_device_has_no_peak(device_name):
    assert peak_flops_of(device_name) is None


def test_the_peak_is_that_of_the_dtype():
    """FP8 is twice as fast as 16 bit on an H100; a V100 knows no bfloat16, an A100 no FP8, nobody int32."""
    h100, v100, a100 = PEAK_FLOPS["H100"], PEAK_FLOPS["V100 SXM2"], PEAK_FLOPS["A100"]
    assert h100.of(torch.float8_e4m3fn) == pytest.approx(2 * h100.of(torch.bfloat16), rel=1e-3)
    assert (a100.of(torch.float16), a100.of(torch.bfloat16), a100.of(torch.float32)) == (312e12, 312e12, 156e12)
    assert (v100.of(torch.float16), v100.of(torch.bfloat16)) == (125e12, None)
    assert a100.of(torch.float8_e4m3fn) is a100.of(torch.int32) is None


def test_on_a_cpu_none_is_reported_and_the_log_says_why(caplog):
    """W28: Modalities raises at the construction."""
    caplog.set_level("INFO")
    calculator = _calculator(nn.Linear(4, 4))
    assert [calculator.compute(10.0).item() for _ in range(2)] == [VECTORS["unknown"]] * 2
    assert caplog.text.count("the peak FLOP/s of a CPU are not known") == 1


def test_of_an_unknown_dtype_none_is_reported(gpu, caplog):
    assert _calculator(nn.Linear(4, 4, dtype=torch.float64)).compute(10.0).item() == -1.0
    assert "'NVIDIA A100-SXM4-80GB' for torch.float64 are not known" in caplog.text


def _mfu_factor(calculator: GPT2MFUCalculator) -> float:
    """FLOP/s of one sample a second over those of the half precision peak of two A100."""
    return calculator.compute(torch.tensor(1.0, dtype=torch.float64)).item() * 2 * 312e12


def test_plain_models_and_lists_of_parts_count_alike(gpu):
    """W28: Modalities refuses plain models. Frozen parameters do not count."""
    layers = [nn.Linear(8, 8, dtype=torch.bfloat16) for _ in range(2)]
    expected = 16 * flops_per_token(144, 2, 16, 128)
    assert _mfu_factor(_calculator(nn.Sequential(*layers))) == pytest.approx(expected)
    assert _mfu_factor(_calculator(list(layers))) == pytest.approx(expected)
    layers[0].requires_grad_(False)
    assert _mfu_factor(_calculator(layers)) == pytest.approx(16 * flops_per_token(72, 2, 16, 128))


@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`")
def test_the_dtype_is_that_in_which_fsdp_computes(process_group, gpu):
    """Its parameters are float32; a model that computes in float32 is measured against TF32, half as fast."""
    expected = 16 * flops_per_token(72, 2, 16, 128)
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("dp_shard",))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    fsdp2 = fully_shard(nn.Linear(8, 8), mesh=mesh, mp_policy=policy)
    assert _mfu_factor(_calculator(fsdp2, device_mesh=mesh)) == pytest.approx(expected)
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    fsdp1 = FullyShardedDataParallel(nn.Linear(8, 8), mixed_precision=precision, device_id=torch.device("cpu"))
    assert _mfu_factor(_calculator(fsdp1)) == pytest.approx(expected)
    assert _mfu_factor(_calculator(nn.Linear(8, 8))) == pytest.approx(2 * expected)


def test_parts_of_a_pipeline_are_added_up_over_its_ranks(process_group):
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("pp", "dp_shard"))
    assert get_total_number_of_trainable_parameters([nn.Linear(2, 2), nn.Linear(2, 2)], mesh) == 12


@pytest.mark.parametrize("name", ["model_parts", "wrapped_model"])
def test_the_model_is_taken_under_both_names(name):
    """W23: with Modalities only the old name works."""
    fields = {"n_layer": 2, "sequence_length": 16, "n_embd": 128, "world_size": 2, name: nn.Linear(4, 4)}
    assert isinstance(GPT2MFUCalculatorConfig.model_validate(fields).model_parts, nn.Linear)


@pytest.mark.multi_process
def test_a_sharded_parameter_counts_once(run_distributed):
    """With FSDP2 and FSDP1, also where padding makes the shards of all ranks alike."""
    run_distributed(Path(__file__).parent / "sharded_parameter_counts.py", 2)
