"""Numbers as people read them: few digits, units, true minus signs."""

from collections.abc import Sequence

from serpette.records import Part

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
PART_NAMES: dict[Part, str] = {"block": "block", "attention": "attention", "mlp": "MLP"}
SPACE = "\N{NO-BREAK SPACE}"


def number(value: float | None) -> str:
    """About three significant digits: 1,234 or 84.2 or 0.012; a dash for nothing."""
    if value is None:
        return DASH
    size = abs(value)
    text = f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
    if size < 1:
        text = f"{value:.3f}" if size >= 0.01 or size == 0 else f"{value:.2g}"
    return text.replace("-", MINUS)


def percent(value: float | None) -> str:
    """One decimal: 84.2 %."""
    return DASH if value is None else f"{value:.1f}{SPACE}%".replace("-", MINUS)


def change(before: float | None, after: float | None) -> str:
    """The relative change with its sign: -8.1 %."""
    if before is None or after is None or before == 0:
        return DASH
    return signed(100 * (after / before - 1), f"{SPACE}%")


def signed(value: float, unit: str = "") -> str:
    """One decimal, with its sign unless it rounds to zero."""
    rounded = round(value, 1) + 0.0
    return f"{rounded:+.1f}{unit}".replace("-", MINUS) if rounded else f"0.0{unit}"


def points(value: float) -> str:
    """A difference of two percentages: -0.2 points."""
    return signed(value, f"{SPACE}points")


def hundredths(value: float | None) -> str:
    """Two decimals: 0.94."""
    return DASH if value is None else f"{value:.2f}".replace("-", MINUS)


def times(value: float | None) -> str:
    """A ratio: 1.18x."""
    return DASH if value is None else f"{value:.2f}{TIMES}"


def interval(low: float | None, high: float | None) -> str:
    """The two ends of an interval: 803 to 820."""
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def count(n: int, singular: str, plural: str = "") -> str:
    """1 image, 2 images."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def listing(words: Sequence[object]) -> str:
    """Words in a row: 2, 5 and 7."""
    *most, last = [str(word) for word in words] or [""]
    return f"{', '.join(most)} and {last}" if most else last
