"""acme::scale_shift."""

from __future__ import annotations

import numpy as np

from nbx_registry.op import op


@op(
    "acme::scale_shift@1(x: I[*X], *, scale: int = 1, shift: int = 0) -> I[*X]",
    require=("-1000 <= scale <= 1000", "-1000 <= shift <= 1000"),
    flops="2 * x.size",
    least_flops="2 * x.distinct",
    exact=True,
)
def scale_shift(x: np.ndarray, *, scale: int, shift: int) -> np.ndarray:
    """Scale and shift integers, saturating: ``clip(x * scale + shift)`` to the range of the dtype.

    Parameters
    ----------
    x : integer
        ``acme_fixed8`` too; ``shift`` then counts sixteenths.
    scale, shift : int
        From -1000 to 1000.

    Returns
    -------
    the dtype and shape of ``x``

    Raises
    ------
    SignatureError
        For a scale or shift beyond that.
    """
    limits = np.iinfo(x.dtype)
    # Python's integers: products of 64-bit numbers do not fit 64 bits.
    wide = x.astype(object) * scale + shift
    return np.clip(wide, limits.min, limits.max).astype(x.dtype)
