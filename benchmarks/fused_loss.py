"""Peak memory and time of training steps with and without `fused_loss`, each variant in a process of its own.

Run: python benchmarks/fused_loss.py [rounds]

The goal, at the largest batch: at most 0.6 times the peak memory, in at most 1.1 times the CPU time.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

_BATCH_SIZES = (2, 4, 8)
_SEQUENCE_LENGTH, _VOCAB_SIZE, _N_EMBD, _N_HEAD = 256, 50_304, 256, 4
_NUM_STEPS = 3
_MEMORY_GOAL, _TIME_GOAL = 0.6, 1.1


def measure(batch_size: int, is_fused: bool) -> dict[str, float]:
    """Peak resident memory (GiB) of this process, CPU seconds per step, and the loss of the last step."""
    import torch

    from modalities_pipeline.batch import DatasetBatch
    from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
    from modalities_pipeline.models.gpt2 import build_gpt2
    from modalities_pipeline.models.model import model_predict_batch

    torch.set_num_threads(1)
    norm = {"norm_type": "pytorch_rms_norm", "config": {"normalized_shape": _N_EMBD}}
    rotary = {"n_embd": _N_EMBD, "n_head": _N_HEAD, "seq_length_dim": -2, "base_freq": 10_000}
    model = build_gpt2(
        sample_key="input_ids",
        prediction_key="logits",
        poe_type="NOPE",
        sequence_length=_SEQUENCE_LENGTH,
        vocab_size=_VOCAB_SIZE,
        n_layer=2,
        n_head_q=_N_HEAD,
        n_head_kv=_N_HEAD,
        n_embd=_N_EMBD,
        ffn_hidden=4 * _N_EMBD,
        dropout=0.0,
        bias=False,
        attention_config={"qkv_transforms": [{"type_hint": "RotaryTransform", "config": rotary}]},
        attention_implementation="pytorch_flash",
        activation_type="swiglu",
        attention_norm_config=norm,
        ffn_norm_config=norm,
        lm_head_norm_config=norm,
        use_weight_tying=True,
        seed=0,
        fused_loss={"target_key": "target_ids"} if is_fused else None,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_function = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")
    ids = torch.randint(_VOCAB_SIZE, (batch_size, _SEQUENCE_LENGTH + 1), generator=torch.Generator().manual_seed(0))
    started = time.process_time()
    for _ in range(_NUM_STEPS):
        batch = DatasetBatch(samples={"input_ids": ids[:, :-1]}, targets={"target_ids": ids[:, 1:]})
        loss = loss_function(model_predict_batch(model, batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    seconds = (time.process_time() - started) / _NUM_STEPS
    peak_in_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"memory": peak_in_kib / 2**20, "seconds": seconds, "loss": loss.item()}


def _measure_apart(batch_size: int, is_fused: bool) -> dict[str, float]:
    arguments = [sys.executable, str(Path(__file__).resolve()), "--measure", str(batch_size), str(int(is_fused))]
    return json.loads(subprocess.run(arguments, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    """Print, for each batch size, medians over interleaved rounds and their ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print("| batch | peak GiB plain | fused | ratio | CPU s/step plain | fused | ratio | loss plain | fused |")
    print("|---|---|---|---|---|---|---|---|---|")
    for batch_size in _BATCH_SIZES:
        measured = [[_measure_apart(batch_size, is_fused) for is_fused in (False, True)] for _ in range(rounds)]
        cells: list[str] = [str(batch_size)]
        for name, goal in (("memory", _MEMORY_GOAL), ("seconds", _TIME_GOAL)):
            plain, fused = (statistics.median(round_[index][name] for round_ in measured) for index in (0, 1))
            ratio = statistics.median(round_[1][name] / round_[0][name] for round_ in measured)
            verdict = " (missed)" if batch_size == _BATCH_SIZES[-1] and ratio > goal else ""
            cells += [f"{plain:.2f}", f"{fused:.2f}", f"{ratio:.2f}{verdict}"]
        cells += [f"{result['loss']:.6f}" for result in measured[0]]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(int(sys.argv[2]), bool(int(sys.argv[3])))))
    else:
        main()
