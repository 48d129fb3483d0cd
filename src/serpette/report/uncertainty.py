"""How far an accuracy can be trusted, from the number of images behind it."""

import math

from serpette.records import DataRef, Scores, Selection


def validation_data(selection: Selection) -> DataRef | None:
    """The validation images of a selection, under whatever name their split goes."""
    return next((data for split, data in selection.data.items() if split.startswith("val")), None)


def baseline_interval(selection: Selection) -> tuple[float, float] | None:
    """Wilson's 95 % interval of the baseline's validation accuracy, in percent."""
    data = validation_data(selection)
    if data is None or data.n == 0:
        return None
    z, n, p = 1.96, data.n, selection.baseline.validation_top1 / 100
    centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    return 100 * (centre - half) / (1 + z * z / n), 100 * (centre + half) / (1 + z * z / n)


def turned(before: Scores, after: Scores) -> tuple[int, int] | None:
    """Images that went from right to wrong, and from wrong to right; `None` unless both saw the same images."""
    if before.data.fingerprint != after.data.fingerprint or len(before.correct) != len(after.correct):
        return None
    pairs = list(zip(before.correct, after.correct, strict=True))
    return pairs.count((True, False)), pairs.count((False, True))


def paired_interval(before: Scores, after: Scores) -> tuple[float, float] | None:
    """A 95 % interval of the change in accuracy, in points, from the images that changed."""
    changed = turned(before, after)
    if changed is None or not before.correct:
        return None
    (lost, gained), n = changed, len(before.correct)
    difference = (gained - lost) / n
    half = 1.96 * math.sqrt(max((gained + lost) / n - difference**2, 0) / n)
    return 100 * (difference - half), 100 * (difference + half)
