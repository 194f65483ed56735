"""Pictures for asset metadata: Markdown with the image inside it, which is the form that the Dagster UI shows."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = Sequence[tuple[float, float]]


def line_plot(
    series: Mapping[str, Series], title: str, x_label: str, y_label: str, levels: Mapping[str, float] | None = None
) -> str:
    """Lines of (x, y) points by name, as Markdown; `levels` are dashed horizontal lines, for example baselines."""
    figure = _new_figure()
    axes = figure.subplots()
    for name, points in series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="." if len(points) < 40 else "", label=name)
    for name, level in (levels or {}).items():
        axes.axhline(level, linestyle="--", color="gray", label=f"{name}: {level:.2f}")
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    axes.legend()
    return _as_markdown(figure, title)


def histogram_plot(edges: Sequence[float], counts: Sequence[int], title: str, x_label: str, y_label: str) -> str:
    """A histogram with n + 1 bin edges and n counts, as Markdown; bins are drawn equally wide and labelled."""
    figure = _new_figure()
    axes = figure.subplots()
    axes.bar(range(len(counts)), counts, width=1.0, align="edge", edgecolor="white")
    step = max(1, len(edges) // 12)
    axes.set_xticks(range(0, len(edges), step), [f"{edge:g}" for edge in edges[::step]], rotation=45)
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return _as_markdown(figure, title)


def _new_figure() -> "Figure":
    from matplotlib.figure import Figure  # without pyplot: no global state, no display

    return Figure(figsize=(7, 4), layout="constrained")


def _as_markdown(figure: "Figure", title: str) -> str:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=90)
    return f"![{title}](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})"
