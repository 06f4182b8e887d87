"""What the Triton kernels need and promise, as data: no toolkit is imported here."""

from nbx_triton.specs.attention import KERNELS as _ATTENTION
from nbx_triton.specs.elementwise import KERNELS as _ELEMENTWISE
from nbx_triton.specs.product import KERNELS as _PRODUCT
from nbx_triton.specs.random import KERNELS as _RANDOM
from nbx_triton.specs.rows import KERNELS as _ROWS

KERNELS = (*_ELEMENTWISE, *_ROWS, *_PRODUCT, *_ATTENTION, *_RANDOM)
"""Every kernel of this distribution."""
