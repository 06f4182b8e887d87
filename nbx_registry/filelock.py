"""Locks of files between processes: held until the file is closed, also by a process that is killed."""

from __future__ import annotations

import os
from typing import Any


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process alone; False where another holds it."""
    try:
        if os.name == "posix":
            import fcntl  # of POSIX alone

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt  # of Windows alone

            windows: Any = msvcrt
            windows.locking(descriptor, windows.LK_NBLCK, 1)
    except OSError:
        return False
    return True
