"""Drawings of error profiles: SVG, a column for each case, on logarithmic scales."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from nbx_conformance.bundles.matrix import CaseResult

_LEFT: Final = 44
_SHARE_TOP, _SHARE_BOTTOM = 8, 68
_ULP_TOP, _ULP_BOTTOM = 78, 128
_WIDTH, _HEIGHT = 800, 132
_SHARES: Final = (1e-3, 10.0)
_ULPS: Final = (1e-2, 1e5)
_ENDLESS: Final = 1e300
"""How a bundle writes an infinite share, for JSON has no infinity."""


def measured(profile: Mapping[str, Any]) -> bool:
    """Return whether errors have a size: not where results are not finite, or are wrong where they must be exact."""
    return profile["share"] < _ENDLESS or any(profile["ulp"])


def drawing(cases: Sequence[CaseResult], label: str) -> str:
    """Return a kernel's profile over its cases, those without a profile left empty."""
    step = (_WIDTH - _LEFT) / len(cases)
    bars: list[str] = []
    over: list[str] = []
    ranges: list[str] = []
    hits: list[str] = []
    for index, case in enumerate(cases):
        profile = case.profile
        if not profile:
            continue
        x, width = _LEFT + index * step, max(step * 0.7, 0.8)
        y = _at(profile["share"], _SHARES, _SHARE_TOP, _SHARE_BOTTOM)
        bar = f"M{x:.1f} {_SHARE_BOTTOM}V{y:.1f}h{width:.1f}V{_SHARE_BOTTOM}z"
        (over if profile["share"] > 1 else bars).append(bar)
        median, _, most = profile["ulp"]
        low, high = (_at(value, _ULPS, _ULP_TOP, _ULP_BOTTOM) for value in (median, most))
        ranges.append(f"M{x + width / 2:.1f} {low + 0.5:.1f}V{high - 0.5:.1f}")
        said = (
            f"{case.case}: {profile['share']:.3g} of bound, ulp {median:.3g} to {most:.3g}, L2 {profile['l2']:.2g}"
            if measured(profile)
            else f"{case.case}: not to be measured"
        )
        hits.append(
            f'<rect class="hit" x="{x:.1f}" y="{_SHARE_TOP}" width="{step:.1f}" height="{_ULP_BOTTOM - _SHARE_TOP}">'
            f"<title>{escape(said)}</title></rect>"
        )
    limit = _at(1, _SHARES, _SHARE_TOP, _SHARE_BOTTOM)
    one = _at(1, _ULPS, _ULP_TOP, _ULP_BOTTOM)
    stroke = min(max(step * 0.5, 0.8), 4)
    return (
        f'<div class="drawing"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'<text x="0" y="{limit + 3:.0f}">bound</text><text x="0" y="{_SHARE_BOTTOM}">1e-3</text>'
        f'<text x="0" y="{one + 3:.0f}">1 ulp</text>'
        f'<path class="rule" d="M{_LEFT} {_SHARE_BOTTOM}H{_WIDTH}M{_LEFT} {one:.1f}H{_WIDTH}"/>'
        f'<path class="limit" d="M{_LEFT} {limit:.1f}H{_WIDTH}"/>'
        f'<path class="share" d="{"".join(bars)}"/><path class="over" d="{"".join(over)}"/>'
        f'<path class="ulp" stroke-width="{stroke:.1f}" d="{"".join(ranges)}"/>{"".join(hits)}</svg></div>'
    )


def _at(value: float, scale: tuple[float, float], top: int, bottom: int) -> float:
    """Return where a value lies, at the ends of the scale what is beyond it."""
    low, high = scale
    share = math.log(min(max(value, low), high) / low) / math.log(high / low)
    return bottom - share * (bottom - top)
