"""The suite as a pytest test. Three lines in a plugin's tests have the whole of it, with readable ids::

from nbx_conformance import suite

test_conformance = suite("nbx-acme")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbx_conformance.runs.options import Options

if TYPE_CHECKING:
    import pytest

MARK = "nbx_options"
"""The attribute by which the pytest plugin knows a suite's test function."""


def suite(
    *plugins: str,
    device: str | None = None,
    via: str = "auto",
    size: str = "smoke",
    ops: tuple[str, ...] = (),
    kernels: tuple[str, ...] = (),
    waivers: tuple[str, ...] = (),
    extra: tuple[Any, ...] = (),
) -> Callable[..., None]:
    """Return a test function that tries every kernel of these plugins on every case, each a test of its own.

    Parameters
    ----------
    plugins
        Their names; none means all that are installed.
    device
        A live handle or a product; by default the first live device of each runtime that the kernels are for. Where
        there is none the suite fails: nothing measured is no pass.
    via
        ``auto`` (as far as can be reached), ``device``, ``interpreter``, ``build``, or an emulator's name.
    size
        ``smoke``, ``full`` or ``large``. The command line has the last word: ``--nbx-device``, ``--nbx-via``,
        ``--nbx-size``, ...
    ops, kernels
        Only these.
    waivers
        Files of waivers, beside those of the plugins.
    extra
        Plugin objects of this process, beside the installed ones.
    """

    def test_conformance(nbx_trial: Callable[[pytest.FixtureRequest], None], request: pytest.FixtureRequest) -> None:
        nbx_trial(request)

    options = Options(
        device=device,
        via=via,
        size=size,
        plugins=plugins,
        ops=tuple(ops),
        kernels=tuple(kernels),
        waivers=tuple(waivers),
        extra=tuple(extra),
    )
    setattr(test_conformance, MARK, options)
    return test_conformance
