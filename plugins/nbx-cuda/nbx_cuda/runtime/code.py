"""Loading compiled code: an `Artifact` becomes a `Function` that programs launch."""

from __future__ import annotations

import hashlib
import struct
import threading
from typing import Any

from nbx_cuda.runtime.context import Context
from nbx_cuda.runtime.driver import bindings, call, translated
from nbx_cuda.runtime.errors import CudaError
from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact

DEFAULT_SHARED_BYTES = 48 * 1024
"""Dynamic shared memory every kernel may use without asking."""

_allowing = threading.Lock()
"""Held while a function is given more shared memory."""

ELF_HEADER = struct.Struct("<32xQQ6xHHHH2x")
"""Where a 64-bit ELF file's tables are: offsets of segments and sections, then size and count of each."""


class Function:
    """A kernel loaded on one device.

    Attributes
    ----------
    handle : int
        The driver's, bound to the device's primary context: a launch from another context fails instead of running on
        the wrong device.
    entry : str
    device : int
    parameters : int
        Count of parameters, hidden ones included.
    sizes : tuple of int or None
        Bytes of each parameter; None where the driver (before 12.4) cannot tell.
    threads : int
        Threads one block may have, by the registers the kernel takes.
    static_shared_bytes : int
        Shared memory the kernel itself declares.
    """

    __slots__ = (
        "_allowed",
        "_keep",
        "_limit",
        "device",
        "entry",
        "handle",
        "parameters",
        "sizes",
        "static_shared_bytes",
        "threads",
    )

    def __init__(self, context: Context, artifact: Artifact, code: Any, shared_limit: int) -> None:
        self.entry = artifact.entry
        self.device = context.index
        with translated(f"loading {artifact.entry} for {artifact.arch} on cuda:{context.index}"):
            kernel = code.get_kernel(artifact.entry)
        self._keep = code
        self.sizes = _parameter_sizes(kernel)
        self.parameters = _parameter_count(artifact, self.sizes)
        self.handle = int(call(f"binding {self.entry} to cuda:{self.device}", "cuKernelGetFunction", kernel.handle))
        self.threads = self._attribute("CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK")
        self.static_shared_bytes = self._attribute("CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES")
        self._limit = shared_limit - self.static_shared_bytes
        self._allowed = DEFAULT_SHARED_BYTES - self.static_shared_bytes
        self.allow_shared(artifact.shared_bytes)

    def allow_shared(self, nbytes: int) -> None:
        """Let launches use that much dynamic shared memory. Raises `NbxError` beyond what the device's blocks have."""
        if nbytes <= self._allowed:
            return
        if nbytes > self._limit:
            raise NbxError(
                f"{self.entry} asks for {nbytes} bytes of dynamic shared memory; a block of cuda:{self.device} has "
                f"{self._limit} beside the kernel's own {self.static_shared_bytes}"
            )
        with _allowing:
            # Another thread may have been given more meanwhile, which this would take back.
            if nbytes <= self._allowed:
                return
            attributes = bindings().CUfunction_attribute
            call(
                f"giving {self.entry} {nbytes} bytes of shared memory",
                "cuFuncSetAttribute",
                self.handle,
                attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                nbytes,
            )
            self._allowed = nbytes

    def _attribute(self, name: str) -> int:
        attribute = getattr(bindings().CUfunction_attribute, name)
        return int(call(f"asking about {self.entry}", "cuFuncGetAttribute", attribute, self.handle))

    def __repr__(self) -> str:
        return f"<Function {self.entry} on cuda:{self.device}>"


class Loader:
    """Loads code on one device, each image once.

    What is loaded stays for the life of the process: a graph or a launch in flight may still use it.
    """

    def __init__(self, context: Context, shared_limit: int) -> None:
        self._context = context
        self._shared_limit = shared_limit
        self._lock = threading.Lock()
        self._codes: dict[bytes, Any] = {}
        self._functions: dict[tuple[bytes, str, int | None], Function] = {}

    def load(self, artifact: Artifact) -> Function:
        """Load a cubin or PTX.

        Raises `NbxError` for another kind of code, for an image that is not whole, for a parameter count that is not
        the artifact's, for more shared memory than there is; `CudaError` for code that the device cannot run or that
        lacks the entry.
        """
        if artifact.kind not in ("cubin", "ptx"):
            raise NbxError(
                f"{artifact.entry} is {artifact.kind} code for {artifact.arch}; the CUDA runtime loads cubin and ptx"
            )
        check_image(artifact)
        digest = hashlib.sha256(artifact.kind.encode() + b"\0" + artifact.image).digest()
        key = (digest, artifact.entry, artifact.parameters)
        with self._lock:
            function = self._functions.get(key)
            if function is None:
                with self._context.current():
                    function = Function(self._context, artifact, self._code(digest, artifact), self._shared_limit)
                self._functions[key] = function
            elif artifact.shared_bytes:
                with self._context.current():
                    function.allow_shared(artifact.shared_bytes)
        return function

    def _code(self, digest: bytes, artifact: Artifact) -> Any:
        from cuda.core import ObjectCode

        code = self._codes.get(digest)
        if code is None:
            make = ObjectCode.from_cubin if artifact.kind == "cubin" else ObjectCode.from_ptx
            code = self._codes[digest] = make(artifact.image, name=artifact.entry)
        return code


def check_image(artifact: Artifact) -> None:
    """Raise `NbxError` unless an image is whole, as far as its head can tell.

    The driver is given an address without a length: it would read on behind a cubin that was cut short.
    """
    image, what = artifact.image, f"the {artifact.kind} of {artifact.entry} for {artifact.arch}"
    if artifact.kind == "ptx":
        if b".version" not in image or b"\0" in image.rstrip(b"\0"):
            raise NbxError(f"{what} is no PTX text: it states no .version, or holds zero bytes")
        return
    if image[:5] != b"\x7fELF\x02" or len(image) < ELF_HEADER.size:
        raise NbxError(f"{what} is no 64-bit ELF file; it has {len(image)} bytes and begins with {image[:8]!r}")
    segments, sections, segment_size, segment_count, section_size, section_count = ELF_HEADER.unpack_from(image)
    end = max(segments + segment_size * segment_count, sections + section_size * section_count)
    if end > len(image):
        raise NbxError(f"{what} is cut short: it has {len(image)} bytes, and its tables end at {end}")


def _parameter_sizes(kernel: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(info.size) for info in kernel.arguments_info)
    except NotImplementedError:  # cuda-core's answer to drivers before 12.4
        return None


def _parameter_count(artifact: Artifact, sizes: tuple[int, ...] | None) -> int:
    if sizes is None:
        if artifact.parameters is None:
            raise CudaError(
                f"nobody says how many parameters {artifact.entry} takes: neither its artifact, nor this driver "
                "(12.4 and later do)"
            )
        return artifact.parameters
    if artifact.parameters is not None and artifact.parameters != len(sizes):
        raise NbxError(
            f"{artifact.entry} is said to take {artifact.parameters} parameters; its {artifact.kind} takes {len(sizes)}"
        )
    return len(sizes)
