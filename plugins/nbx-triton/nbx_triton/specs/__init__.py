"""What the Triton kernels need and promise, as data: no toolkit is imported here."""

from nbx_triton.specs.attention import KERNELS as _ATTENTION
from nbx_triton.specs.convolution import KERNELS as _CONVOLUTION
from nbx_triton.specs.fourier import KERNELS as _FOURIER
from nbx_triton.specs.gemv import KERNELS as _GEMV
from nbx_triton.specs.int4 import KERNELS as _INT4
from nbx_triton.specs.layout import KERNELS as _LAYOUT
from nbx_triton.specs.normalization import KERNELS as _NORMALIZATION
from nbx_triton.specs.paged import KERNELS as _PAGED
from nbx_triton.specs.pointwise import KERNELS as _POINTWISE
from nbx_triton.specs.power import KERNELS as _POWER
from nbx_triton.specs.product import KERNELS as _PRODUCT
from nbx_triton.specs.random import KERNELS as _RANDOM
from nbx_triton.specs.reductions import KERNELS as _REDUCTIONS
from nbx_triton.specs.rotary import KERNELS as _ROTARY
from nbx_triton.specs.rows import KERNELS as _ROWS
from nbx_triton.specs.sorting import KERNELS as _SORTING

KERNELS = (
    *_POINTWISE,
    *_POWER,
    *_ROWS,
    *_REDUCTIONS,
    *_LAYOUT,
    *_ROTARY,
    *_NORMALIZATION,
    *_SORTING,
    *_PRODUCT,
    *_GEMV,
    *_CONVOLUTION,
    *_FOURIER,
    *_ATTENTION,
    *_PAGED,
    *_INT4,
    *_RANDOM,
)
"""Every kernel of this distribution."""
