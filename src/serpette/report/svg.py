"""A matplotlib figure as accessible SVG, for the inside of a page or for a file of its own.

matplotlib writes SVG for a file: ids that repeat from figure to figure, a style sheet for `*`, fixed colours. Here the
ids are made unique, the style sheet goes, and the colours become CSS variables. An artist whose gid starts with `TIP`
gets the rest of its gid as a tooltip.
"""

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.figure import Figure

from serpette.report.palette import light, themed

TIP = "tip:"
FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
_HEADING = 26  # points above the figure
_REFERENCE = re.compile(r"(?<=#)[\w.-]+(?=\))|(?<=^#).+$")
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": light("line"),
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": light("muted"),
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": light("ink"),
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.titlesize": 9.5,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",  # for measuring: ships with matplotlib, and is wider than what will be shown
    "font.size": 9,
    "grid.color": light("line"),
    "grid.linewidth": 0.6,
    "hatch.color": light("muted"),
    "hatch.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "serpette",
    "text.color": light("ink"),
    "text.parse_math": False,
    "xtick.color": light("line"),
    "xtick.labelcolor": light("muted"),
    "ytick.color": light("line"),
    "ytick.labelcolor": light("muted"),
}


@contextmanager
def style() -> Iterator[None]:
    """The look of every chart, whatever the user's matplotlibrc says; matplotlib is left as it was."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def inline(figure: Figure, label: str) -> str:
    """The figure for the inside of a page, as wide as its container; screen readers say `label`."""
    root = _parse(figure)
    del root.attrib["width"], root.attrib["height"]
    for element in root.iter():
        if "style" in element.attrib:
            element.attrib["style"] = themed(element.attrib["style"])
    return _serialise(root, label)


def standalone(figure: Figure, label: str, heading: str) -> str:
    """The figure for a file of its own, on the light theme's paper, under a heading in any script."""
    root = _parse(figure)
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    box = {"x": "0", "y": f"-{_HEADING}", "width": f"{width:g}", "height": f"{height + _HEADING:g}"}
    root.attrib |= {"viewBox": " ".join(box.values()), "width": f"{width:g}pt", "height": f"{height + _HEADING:g}pt"}
    text = ElementTree.Element("text", {"x": "8", "y": "-8", "style": f"font: 600 11px {FONT}; fill: {light('ink')}"})
    text.text = _printable(heading)
    paper = ElementTree.Element("rect", {**box, "fill": light("paper")})
    root[:0] = [_titled(_printable(f"{heading}: {label}")), paper, text]
    return '<?xml version="1.0" encoding="utf-8"?>\n' + _serialise(root, label) + "\n"


def _parse(figure: Figure) -> ElementTree.Element:
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(name): value for name, value in element.attrib.items()}
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in ("metadata", "style")]:
            parent.remove(child)
    _name(root, "c" + hashlib.sha256(buffer.getvalue().encode()).hexdigest()[:8])
    return root


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _name(root: ElementTree.Element, prefix: str) -> None:
    """Prefix the ids that something refers to, turn tips into titles, and drop all other ids."""
    values = [value for element in root.iter() for name, value in element.attrib.items() if name != "id"]
    used = {name for value in values for name in _REFERENCE.findall(value)}
    for element in root.iter():
        own = element.attrib.pop("id", "")
        for name, value in element.attrib.items():
            element.attrib[name] = _REFERENCE.sub(lambda match: f"{prefix}-{match[0]}", value)
        if own in used:
            element.attrib["id"] = f"{prefix}-{own}"
        if own.startswith(TIP):
            element.insert(0, _titled(own.removeprefix(TIP)))
        if element.tag == "text":
            element.attrib["style"] = element.attrib["style"].replace("'DejaVu Sans'", FONT)


def _titled(text: str) -> ElementTree.Element:
    title = ElementTree.Element("title")
    title.text = text
    return title


def _printable(text: str) -> str:
    """XML has no place for control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _serialise(root: ElementTree.Element, label: str) -> str:
    root.attrib |= {
        "xmlns": "http://www.w3.org/2000/svg",
        "role": "img",
        "aria-label": label,
        "stroke-linejoin": "round",
    }
    return ElementTree.tostring(root, encoding="unicode")
