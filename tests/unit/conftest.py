"""Makes the helpers beside these tests, and the simulated runtime, importable under --import-mode=importlib."""

import sys
from pathlib import Path

HERE = Path(__file__).parent

sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent / "plugins" / "nbx-simulated"))
