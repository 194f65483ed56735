"""Fixtures that several parts of the test suite share."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from torch import nn

os.environ["HF_HUB_OFFLINE"] = "1"  # no test may reach for the network; set before transformers is imported

_REPOSITORY = Path(__file__).parents[1]
_TOKENIZER_VECTORS = Path(__file__).parent / "tokenization" / "vectors"


@pytest.fixture(scope="session")
def tiny_wordlevel_dir() -> Path:
    """A Hugging Face tokenizer folder with 20 tokens; its end-of-document token is `<eod>` with id 1."""
    return _TOKENIZER_VECTORS / "tiny_wordlevel"


@pytest.fixture(scope="session")
def tiny_sp_file() -> Path:
    """A SentencePiece model with 300 pieces; its end-of-document token is `</s>` with id 2."""
    return _TOKENIZER_VECTORS / "tiny_sp.model"


@pytest.fixture(scope="session")
def make_gpt2_config() -> Callable[..., dict[str, Any]]:
    """Function changes -> fields of a tiny gpt2 model in the style of Llama: 2 layers, width 128, vocabulary 128."""

    def make(**changes: Any) -> dict[str, Any]:
        norm = {"norm_type": "pytorch_rms_norm", "config": {"normalized_shape": 128, "eps": 1e-5}}
        rotary = {"n_embd": 128, "n_head": 4, "seq_length_dim": -2, "base_freq": 10000}
        return {
            "sample_key": "input_ids",
            "prediction_key": "logits",
            "poe_type": "NOPE",
            "sequence_length": 32,
            "vocab_size": 128,
            "n_layer": 2,
            "n_head_q": 4,
            "n_head_kv": 2,
            "n_embd": 128,
            "ffn_hidden": 256,
            "dropout": 0.0,
            "bias": False,
            "attention_config": {"qkv_transforms": [{"type_hint": "RotaryTransform", "config": rotary}]},
            "attention_implementation": "pytorch_flash",
            "activation_type": "swiglu",
            "attention_norm_config": norm,
            "ffn_norm_config": norm,
            "lm_head_norm_config": norm,
            "use_weight_tying": False,
            "seed": 7,
            **changes,
        }

    return make


@pytest.fixture
def process_group() -> Iterator[None]:
    """A process group of this process alone."""
    from modalities_pipeline.distributed.env import DistributedEnv

    with DistributedEnv():
        yield


@pytest.fixture(scope="session")
def run_distributed() -> Callable[..., None]:
    """Function (script, number of processes, arguments): runs a script under torchrun and fails with its output."""

    def run(script: Path, num_processes: int, *arguments: str) -> None:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
        result = subprocess.run(
            [*launcher, str(script), *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert result.returncode == 0, result.stdout + result.stderr

    return run


def _hashed(index: int, count: int) -> np.ndarray:
    """Numbers in [-0.5, 0.5) from an integer hash of (index, position), independent of any generator."""
    mask, multiplier, shift = np.uint64(0xFFFFFFFF), np.uint64(0x45D9F3B), np.uint64(16)
    x = np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(index) * np.uint64(40503 * 65537)
    x &= mask
    for _ in range(2):
        x = ((x ^ (x >> shift)) * multiplier) & mask
    return (x ^ (x >> shift)).astype(np.float64) / 2**32 - 0.5


@pytest.fixture(scope="session")
def fill() -> "Callable[[nn.Module], None]":
    """Function that fills a module's parameters by their place among the names: gains about 1, all else about 0."""
    import torch

    @torch.no_grad()
    def fill_parameters(module: "nn.Module") -> None:
        for index, (name, parameter) in enumerate(sorted(module.named_parameters()), start=1):
            values = _hashed(index, parameter.numel()).reshape(parameter.shape)
            if parameter.dim() > 1:
                values = 0.3 * values
            else:
                values = 1 + 0.4 * values if name.endswith("weight") else 0.2 * values
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))

    return fill_parameters


class _Recorder:
    """A subscriber that keeps the payload of every message."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def consume_message(self, message: Any) -> None:
        self.events.append(message.payload)


@pytest.fixture
def recorder() -> _Recorder:
    """What `publisher` has published is in `events`."""
    return _Recorder()


@pytest.fixture
def publisher(recorder: _Recorder) -> Any:
    """A publisher of progress and results whose messages reach `recorder`."""
    from modalities_pipeline.reporting.broker import MessageBroker, MessagePublisher, MessageTypes

    broker = MessageBroker()
    for message_type in (MessageTypes.BATCH_PROGRESS_UPDATE, MessageTypes.EVALUATION_RESULT):
        broker.add_subscriber(message_type, recorder)
    return MessagePublisher(broker, global_rank=0, local_rank=0)
