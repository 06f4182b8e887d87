"""Triton decides at import whether it compiles or interprets: what is interpreted runs in a process of its own."""

from __future__ import annotations

import os

collect_ignore = ["interpreted"] if os.environ.get("TRITON_INTERPRET") != "1" else []
