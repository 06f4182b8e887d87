"""Cases: what kernels are tried on, as data, beside the code that reads it, and what fills their tensors."""

from nbx_conformance.cases.casefile import COSTS, FOLDER, SIZES, Case, CaseTable, Scalar, Size, load

__all__ = ["COSTS", "FOLDER", "SIZES", "Case", "CaseTable", "Scalar", "Size", "load"]
