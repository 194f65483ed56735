"""What goes wrong while packing leaves an error and no output, and nothing hangs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.raw_index import build_raw_index

BPE_DIR = Path(__file__).parents[1] / "tokenization" / "vectors" / "tiny_bpe"
TIMEOUT_IN_S = 120

PROGRAM = """
import resource, sys
from pathlib import Path
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import UserError
from modalities_pipeline.tokenization import encoders
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

source, folder, backend = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
tokenizer = PreTrainedHFTokenizer(folder)
settings = TokenizedPackSettings(
    src_path=source, dst_path=source.with_suffix(".pbin"), jq_pattern=".text", eod_token="<|endoftext|>",
    num_cpus=2, tokenizer_backend=backend, processing_batch_size=20,
)
exec(sys.argv[4])
try:
    build_tokenized_pack(settings, tokenizer)
except UserError as error:
    print(type(error).__name__, error)
    sys.exit(3)
"""


@pytest.fixture
def source(write_lines: Callable[..., Path]) -> Path:
    """An indexed raw file whose pack has about half a megabyte."""
    path = write_lines(
        "a.jsonl", [json.dumps({"text": f"{number} " + "return the list " * 100}) for number in range(800)]
    )
    build_raw_index(path)
    return path


def _run(source: Path, backend: str, preparation: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, str(source), str(BPE_DIR), backend, preparation]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_IN_S)


def _left(source: Path) -> list[str]:
    """Names of what packing left in the folder, its lock aside."""
    names = sorted(path.name for path in source.parent.iterdir() if not path.name.endswith(".lock"))
    return [name for name in names if not name.startswith("a.jsonl") and not name.startswith("a.idx")]


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("size_in_bytes", [0, 5, 100_000])
def test_a_full_disk_is_an_error_and_leaves_no_output(source: Path, backend: str, size_in_bytes: int) -> None:
    preparation = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size_in_bytes}, {size_in_bytes}))"
    result = _run(source, backend, preparation)
    assert result.returncode == 3, result.stderr
    assert "OutputNotWritableError" in result.stdout
    assert "a.pbin" in result.stdout
    assert _left(source) == []


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("os.truncate(source, 400_000)", "became shorter while it was read"),
        ("open(source, 'ab').write(b'{}')", "changed while it was read"),
        ("source.unlink()", "changed while it was read"),
    ],
)
def test_a_source_that_changes_meanwhile_is_an_error_and_leaves_no_output(
    source: Path, backend: str, change: str, message: str
) -> None:
    preparation = f"""
import os
from modalities_pipeline.data.packing import encode_ahead
encode = encode_ahead._encode
def change_and_encode(encoder, batch):
    if batch.start == 40:
        {change}
    return encode(encoder, batch)
encode_ahead._encode = change_and_encode
"""
    result = _run(source, backend, preparation)
    assert result.returncode == 3, result.stderr
    assert message in result.stdout
    assert _left(source) == []


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_thread_that_dies_is_an_error_and_leaves_no_output(source: Path, backend: str) -> None:
    preparation = """
from modalities_pipeline.data.packing import encode_ahead
class PanicException(BaseException): pass
encode = encode_ahead._encode
class Dying:
    name, version, is_fast = "dying", "1", True
    def encode(self, texts): raise PanicException("index out of range")
encode_ahead._encode = lambda encoder, batch: encode(Dying() if batch.start == 400 else encoder, batch)
"""
    result = _run(source, backend, preparation)
    assert result.returncode == 3, result.stderr
    assert "dying 1 cannot tokenize documents 400 to 419" in result.stdout
    assert _left(source) == []


@pytest.mark.multi_process
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_killed_pack_leaves_no_output_and_the_next_one_is_whole(source: Path, backend: str) -> None:
    slow = """
import time
from modalities_pipeline.data.packing import encode_ahead
encode = encode_ahead._encode
encode_ahead._encode = lambda encoder, batch: (time.sleep(0.2), encode(encoder, batch))[1]
"""
    command = [sys.executable, "-c", PROGRAM, str(source), str(BPE_DIR), backend, slow]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + TIMEOUT_IN_S
        while not list(source.parent.glob(".a.pbin.*.tmp")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    assert not source.with_suffix(".pbin").exists()
    assert _run(source, backend).returncode == 0
    with PackedFile(source.with_suffix(".pbin")) as pack:
        assert pack.num_documents == 800
        pack.check_index()
    assert _left(source) == ["a.pbin", "a.pbin.manifest.json"]
