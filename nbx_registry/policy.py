"""The policies of the gate, how much must have been checked about a kernel before it runs; and what else is asked."""

from __future__ import annotations

from typing import Literal

from nbx_registry.errors import SignatureError, nearest

Require = Literal["any", "checked", "checked_here", "tuned"]
REQUIRE: tuple[str, ...] = ("any", "checked", "checked_here", "tuned")
"""From the most lenient to the strictest; ``checked`` is the default."""


def check_require(require: object) -> None:
    """Raise `SignatureError` for what is no policy, with the nearest one."""
    if require not in REQUIRE:
        raise SignatureError(f"require={require!r} is none of {', '.join(REQUIRE)}{nearest(str(require), REQUIRE)}")


def check_device(device: object) -> None:
    """Raise `SignatureError` for what cannot name a device."""
    if not (isinstance(device, str) and device):
        raise SignatureError(f"device={device!r} names no device; write a product or a live handle: 'cpu', 'cuda:0'")


def check_asked(device: object, kernel: object, require: object) -> None:
    """Raise `SignatureError`, naming the parameter, for what cannot name a device, a kernel or a policy."""
    if device is not None:
        check_device(device)
    if kernel is not None and not (isinstance(kernel, str) and kernel):
        raise SignatureError(f"kernel={kernel!r} names no kernel; write its id (nbx kernels lists them)")
    if require is not None:
        check_require(require)
