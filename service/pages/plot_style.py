"""The style of all plots: colours, lines and texts, for pages (SVG) and files (PNG)."""

import io
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec

import matplotlib as mpl
from cycler import cycler
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Light colours by the names of the page's CSS variables, which have a dark one as well.
COLOURS = {
    "ink": "#1b2530",
    "muted": "#5a6675",
    "grid": "#d5dbe1",
    "source": "#7a828c",
    "target": "#0b6e99",
    "good": "#12703a",
    "caution": "#855700",
    "bad": "#b42a22",
    "series-1": "#0072b2",
    "series-2": "#c75000",
    "series-3": "#008060",
    "series-4": "#9b4f96",
    "series-5": "#8a6d00",
    "series-6": "#2b7fb8",
    "series-7": "#b0305c",
    "series-8": "#4f5d6b",
}
SERIES = [COLOURS[f"series-{number}"] for number in range(1, 9)]
# Lines differ in their dashes and points in their shape too, so that colour alone says nothing.
DASHES = ["-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
CHARACTERS_AN_INCH = 12  # of a legend
WIDTH, HEIGHT = 4.2, 2.7  # inches: readable at the width of a phone
_STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # callers choose the names of arms
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.edgecolor": COLOURS["muted"],
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=SERIES) + cycler(linestyle=2 * DASHES),
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.2,
    "legend.borderaxespad": 0.0,
}
LINES = 'stroke-linejoin="round" stroke-linecap="butt"'  # of all that say nothing else
_VARIABLES = {value: f"var(--{name})" for name, value in COLOURS.items()}

P = ParamSpec("P")

_lock = threading.Lock()  # matplotlib's settings are global


@contextmanager
def plot_style(name: str = "daband") -> Iterator[None]:
    """Draw in this style, one thread at a time; `name` makes the ids of an SVG repeatable."""
    with _lock, mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        yield


def svg(name: str, title: str, draw: Callable[[Axes], None], height: float = HEIGHT) -> Markup:
    """A drawing as an SVG element in the page's colours; its ids start with its name."""
    with plot_style(name):
        figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="none")
        axes = figure.subplots()
        axes.set_facecolor("none")
        draw(axes)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return Markup(_as_element(stream.getvalue(), name, title))  # noqa: S704 - matplotlib escapes texts


def _as_element(text: str, name: str, title: str) -> str:
    text = text[text.index("<svg") :]
    # Ids must be unique among the drawings of a page.
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'style="([^"]*)"', lambda found: _as_attributes(found[1]), text)
    label = f'<svg role="img" aria-labelledby="{name}-title" {LINES}'
    text = text.replace("<svg", label, 1)
    end = text.index(">") + 1
    return f'{text[:end]}<title id="{name}-title">{escape(title)}</title>{text[end:]}'


def _as_attributes(style: str) -> str:
    """A style as attributes, which the strictest policy allows; the font is the page's."""
    pairs = (each.split(": ", 1) for each in style.split("; "))
    found = (f'{name}="{_in_variables(value)}"' for name, value in pairs if name != "font-family")
    return " ".join(found)


def _in_variables(value: str) -> str:
    return re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), value)


def in_plot_style(make: Callable[P, Figure]) -> Callable[P, Figure]:
    """Make the figure in this style, so that it may be saved anywhere."""

    @wraps(make)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with plot_style():
            figure = make(*args, **kwargs)
            figure.draw_without_rendering()  # ticks take their style when they are first drawn
        return figure

    return styled


def legend_above(axes: Axes, **options: Any) -> None:
    """A legend over the plot, where it covers no curve."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    figure = axes.get_figure()
    assert figure is not None  # noqa: S101 - axes are always drawn in a figure
    widest = max(len(str(label)) for label in labels)
    room = int(CHARACTERS_AN_INCH * figure.get_figure(root=True).get_figwidth())
    columns = max(1, min(len(labels), room // (widest + 5)))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, **options)


def threshold(axes: Axes, value: float, name: str) -> None:
    """A dashed line across the plot in the colour of its name, which is beside it."""
    axes.axhline(value, color=COLOURS[name], linestyle=(0, (4, 3)), linewidth=1.0, zorder=1)
    axes.annotate(
        name,
        (1.0, value),
        (3, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=COLOURS[name],
    )
