"""The op contracts of sparse delta memory."""

from nbx_registry.op import Op
from nbx_sdm.contracts.wy_solve import wy_solve

ALL: tuple[Op, ...] = (wy_solve,)
"""Every op of this plugin."""
