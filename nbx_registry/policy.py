"""The policies of the gate: how much must have been checked about a kernel before it runs."""

from __future__ import annotations

from typing import Literal

Require = Literal["any", "checked", "checked_here", "tuned"]
REQUIRE: tuple[str, ...] = ("any", "checked", "checked_here", "tuned")
"""From the most lenient to the strictest; ``checked`` is the default."""
