"""Importance, 1 - cosine, and the logarithmic scale that spreads it: cosines crowd near 1."""

import math

from serpette.records import Profile, SiteScore

_FLOOR = 1e-4


def importance(site: SiteScore) -> float | None:
    """How much the site changes the stream; `None` where that may not be ranked."""
    if site.cosine is None or not site.rankable or not math.isfinite(site.cosine):
        return None
    return 1 - site.cosine


def importance_range(profile: Profile) -> tuple[float, float]:
    """The ends of a logarithmic scale that holds all sites, never empty."""
    values = [max(value, _FLOOR) for site in profile.sites if (value := importance(site)) is not None]
    low, high = min(values, default=_FLOOR), max(values, default=1.0)
    return (low, high) if high > low * 1.01 else (low / 2, low * 2)


def importance_position(value: float, low: float, high: float) -> float:
    """Where `value` lies on the scale, from 0 to 1."""
    return math.log(min(max(value, low), high) / low) / math.log(high / low)
