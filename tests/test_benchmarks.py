"""The benchmark of the data stages runs, compares and writes its page; the figures themselves are not tested."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.multi_process
def test_the_benchmark_measures_our_stages_and_writes_its_page(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "data_stages.py"), "--sizes-in-mb", "1", "--rounds", "1"]
    stages = ["--stages", "raw_index", "pack", "shuffle", "merge", "iterate"]
    tokenizer = ["--tokenizer-dir", str(ROOT / "tests" / "tokenization" / "vectors" / "tiny_bpe")]
    page = tmp_path / "page.md"
    result = subprocess.run(
        [*command, *stages, *tokenizer, "--work-dir", str(tmp_path), "--write", str(page)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    for stage in ("raw_index", "pack", "shuffle", "merge", "iterate"):
        assert f"| {stage} | ours | 1 MB |" in page.read_text("utf-8")
    assert not list(tmp_path.glob("benchmark-*")), "the work folder was not cleaned"
