"""Pictures are Markdown with a PNG inside, which is what the Dagster UI shows."""

import base64
import re

from modalities_pipeline.orchestration.plots import histogram_plot, line_plot


def picture_of(markdown: str, title: str) -> bytes:
    match = re.fullmatch(r"!\[(.*)\]\(data:image/png;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert match is not None
    assert match[1] == title
    return base64.b64decode(match[2])


def test_lines_become_a_small_png() -> None:
    points = [(step, 5 / (1 + step)) for step in range(500)]
    picture = picture_of(
        line_plot({"train": points, "val": points[::50]}, "Loss", "step", "nats", {"unigram": 4.0}), "Loss"
    )
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 60_000  # it is stored with every run


def test_a_histogram_becomes_a_png_that_depends_on_its_counts() -> None:
    one = picture_of(histogram_plot([0, 1, 2, 4], [5, 1, 0], "Lengths", "tokens", "documents"), "Lengths")
    other = picture_of(histogram_plot([0, 1, 2, 4], [1, 5, 0], "Lengths", "tokens", "documents"), "Lengths")
    assert one.startswith(b"\x89PNG")
    assert one != other
