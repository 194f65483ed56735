"""Configs are resolved fast, and references that would make one far too large are refused at once."""

import re
import time
from pathlib import Path

import pytest
from resolution_helpers import CHECK, reason_of

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.resolution import resolve


def test_copies_of_copies_are_refused_in_no_time(read):
    start = time.process_time()
    text = "a0: [1]\n" + "\n".join(f"a{n}: ['" + "', '".join([f"${{a{n - 1}}}"] * 9) + "']" for n in range(1, 12))
    resolved = read(text)
    assert time.process_time() - start < 10
    assert {failure.reason for _, failure in resolved.unresolved()} == {
        "references to references, or copies of mappings, make the config far too large; write it flatter"
    }


@pytest.mark.parametrize("reference", ["${a%d}", "x${a%d}"])
def test_long_chains_of_references_end_in_a_reason(read, reference):
    resolved = read("\n".join(f"a{n}: {reference % (n + 1)}" for n in range(2000)) + "\na2000: y")
    assert resolved.data["a1990"].endswith("y")
    assert re.search(r"^references to references.*; write it flatter", reason_of(resolved.data["a0"]))


@pytest.mark.parametrize("other", ["${.size}", "${oc.select:settings.lr}"])
def test_a_config_of_400_lines_is_resolved_in_40_ms(read, other):
    """With and without OmegaConf."""
    lines = ["component_key: c", "variant_key: v", "config:", "  lr: ${settings.lr}", "  path: ${settings.root}/x"]
    lines += ["  size: 1", "  flag: true", "  near: ${.size}", f"  other: {other}"]
    section = "\n  ".join(["", *lines])
    text = "settings: {lr: 1e-4, root: '${modalities_env:experiment_id}'}"
    read(text + "".join(f"\ns{number}:{section}" for number in range(40)), CHECK)
    document = load_yaml(Path("config.yaml"))
    durations = []
    for _ in range(5):
        start = time.process_time()
        assert not list(resolve(document, CHECK).unresolved())
        durations.append(time.process_time() - start)
    assert min(durations) < 0.04


def test_texts_that_grow_by_references_are_limited(read):
    """Ten times ten times ...: eight short lines would make a gigabyte."""
    lines = ["a0: xxxxxxxxxx", *(f"a{n}: '{f'${{a{n - 1}}}' * 10}'" for n in range(1, 12))]
    resolved = read("\n".join(reversed(lines)))
    reasons = {key_path[0]: failure.reason for key_path, failure in resolved.unresolved()}
    assert "a11" in reasons
    assert all("make the config far too large" in reason for reason in reasons.values())
    assert len(resolved.data["a4"]) == 10**5


@pytest.mark.parametrize("reference", ["a.b.c", "a[b].c"])
def test_a_very_long_reference_is_answered_at_once(read, reference):
    start = time.process_time()
    resolved = read(f"a: '${{{reference}{'.d' * 50_000}}}'\nother: ${{oc.select:b}}\nb: 1\n")
    assert time.process_time() - start < 2
    assert resolved.data["other"] == 1
    assert resolved.data["a"].reason.startswith("${a")
    assert resolved.data["a"].reason.endswith("...} refers to nothing: there is no 'b' in 'a'")
