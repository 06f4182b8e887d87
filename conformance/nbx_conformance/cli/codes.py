"""Exit codes of the commands."""

from __future__ import annotations

from typing import Final

PASSED: Final = 0
NOT_PASSED: Final = 3
"""Something failed, or nothing was measured."""
USAGE: Final = 2
INTERRUPTED: Final = 130
