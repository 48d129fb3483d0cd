"""The colours of the report, each in a light and a dark shade.

Charts are drawn in the light shades; on a page each becomes a CSS variable, so that one drawing serves both themes.
The methods wear the Okabe-Ito colours, which stay apart for colour-blind readers.
"""

from typing import Literal, NamedTuple

Theme = Literal["light", "dark"]


class Shade(NamedTuple):
    """One colour in both themes, as lower-case `#rrggbb`; no two light shades are equal."""

    light: str
    dark: str


SHADES: dict[str, Shade] = {
    "paper": Shade("#fdfdfc", "#15171a"),
    "panel": Shade("#f4f4f1", "#1d2024"),
    "line": Shade("#dcdcd6", "#363a40"),
    "muted": Shade("#5d6168", "#a2a7ae"),
    "ink": Shade("#1b1d21", "#e9eaec"),
    "accent": Shade("#8a1c3f", "#f08aa6"),
    "block": Shade("#0072b2", "#5ab4ee"),
    "attention": Shade("#d55e00", "#ff8a3d"),
    "mlp": Shade("#009e73", "#34cfa2"),
    "joint": Shade("#b5609a", "#e6a0cf"),
    "contiguous": Shade("#c48a00", "#f2bd45"),
    "random": Shade("#56b4e9", "#8fd0f7"),
    "deepest": Shade("#7a6a58", "#c4b29c"),
    "manual": Shade("#44484e", "#c6c9cd"),
}


def light(name: str) -> str:
    """The colour that charts are drawn in."""
    return SHADES[name].light


def css_variables(theme: Theme) -> str:
    """The palette as CSS declarations, `--ink: #1b1d21; ...`."""
    return " ".join(f"--{name}: {getattr(shade, theme)};" for name, shade in SHADES.items())


def themed(style: str) -> str:
    """Replace the light shades in a CSS declaration by variables that fall back on them."""
    for name, shade in SHADES.items():
        style = style.replace(shade.light, f"var(--{name}, {shade.light})")
    return style
