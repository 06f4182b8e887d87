"""Images that are not whole are told before the driver, which is given no length, reads behind them."""

import struct

import pytest

from nbx_cuda.runtime.code import check_image
from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact


def artifact(image: bytes, kind: str = "cubin") -> Artifact:
    return Artifact(image=image, kind=kind, entry="softmax", arch="sm_90", toolkit="triton 3.6.0")


def elf(sections: int = 900, count: int = 5, segments: int = 64, length: int = 1220) -> bytes:
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 2, 190, 1, 0, segments, sections)
    head += struct.pack("<IHHHHHH", 0, 64, 56, 3, 64, count, 1)
    return head.ljust(length, b"\1")


def test_whole_images_pass():
    check_image(artifact(elf()))
    check_image(artifact(b".version 8.0\n.target sm_90\n", "ptx"))
    check_image(artifact(b".version 8.0\n.target sm_90\n\0", "ptx"))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (elf()[:-1], "is cut short: it has 1219 bytes, and its tables end at 1220"),
        (elf(segments=1100), "tables end at 1268"),
        (elf()[:63], "is no 64-bit ELF file; it has 63 bytes"),
        (b"", "it has 0 bytes"),
        (b"\x7fELF\x01" + bytes(200), "is no 64-bit ELF file"),
    ],
    ids=["sections", "segments", "header", "empty", "32-bit"],
)
def test_a_cubin_that_is_not_whole_is_refused_by_name(image, message):
    with pytest.raises(NbxError, match=f"the cubin of softmax for sm_90.*{message}"):
        check_image(artifact(image))


@pytest.mark.parametrize("image", [b"", b"\x7fELF\x02", b".version 8.0\n\0more"], ids=["empty", "elf", "zero-inside"])
def test_what_is_no_ptx_is_refused(image):
    with pytest.raises(NbxError, match="the ptx of softmax for sm_90 is no PTX text"):
        check_image(artifact(image, "ptx"))
