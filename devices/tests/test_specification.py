"""What the specification of device facts says, typed from its tables and not from the files."""

from __future__ import annotations

from typing import Any

import pytest

from nbx_devices import plugin
from nbx_registry.devicetable import DeviceTable
from nbx_registry.errors import MissingFact

TABLE = DeviceTable(plugin.nbx_register_devices())

# A column a product; "-" is a rate that there is none of, or a value that nobody gives.
NVIDIA = """
                                 v100-sxm2-16gb  v100-sxm2-32gb  t4           a100-sxm4-80gb  l40s
memory.bytes                     16935682048     34089730048     15828254720  85100068864     47803596800
memory.bandwidth_bytes_per_s     900e9           900e9           320e9        2039e9          864e9
memory.reported_bandwidth_bytes_per_s 898.048e9  -               320.064e9    2039.04e9       864.096e9
multiprocessors                  80              80              40           108             142
peak.vector.float64_flop_per_s   7.8e12          7.8e12          0.254e12     9.7e12          1.43e12
peak.matrix.float64_flop_per_s   -               -               -            19.5e12         -
peak.vector.float32_flop_per_s   15.7e12         15.7e12         8.1e12       19.5e12         91.6e12
peak.matrix.tf32_flop_per_s      -               -               -            156e12          183e12
peak.matrix.float16_flop_per_s   125e12          125e12          65e12        312e12          362.05e12
peak.matrix.bfloat16_flop_per_s  -               -               -            312e12          362.05e12
peak.matrix.float8_e4m3fn_flop_per_s -           -               -            -               733e12
peak.matrix.float8_e5m2_flop_per_s -             -               -            -               733e12
peak.matrix.int8_op_per_s        -               -               130e12       624e12          733e12
peak.matrix.float4_e2m1fn_flop_per_s -           -               -            -               -
l2.bytes                         6291456         6291456         4194304      41943040        100663296
"""
# The H200's memory and second-level cache were unconfirmed; they are what the device reported when it was asked.
NVIDIA_LATER = """
                                 h100-sxm     h200-sxm      b200          rtx-5090
memory.bytes                     84942979072  150109880320  191514411008  -
memory.nominal_bytes             -            -             -             34359738368
memory.bandwidth_bytes_per_s     3.35e12      4.8e12        8.0e12        1792e9
memory.reported_bandwidth_bytes_per_s 3.35232e12 -          7.67232e12    -
memory.copy_bytes_per_s          -            4.25e12       -             -
multiprocessors                  132          132           148           170
peak.vector.float64_flop_per_s   33.5e12      33.5e12       37.2e12       1.64e12
peak.matrix.float64_flop_per_s   66.9e12      66.9e12       37.2e12       -
peak.vector.float32_flop_per_s   66.9e12      66.9e12       74.5e12       104.8e12
peak.matrix.tf32_flop_per_s      494.7e12     494.7e12      1.125e15      104.8e12
peak.matrix.float16_flop_per_s   989.4e12     989.4e12      2.25e15       209.5e12
peak.matrix.float16_accumulate_float16_flop_per_s 989.4e12 989.4e12 2.25e15 419e12
peak.matrix.bfloat16_flop_per_s  989.4e12     989.4e12      2.25e15       209.5e12
peak.matrix.float8_e4m3fn_flop_per_s 1978.9e12 1978.9e12    4.5e15        419e12
peak.matrix.float8_e5m2_flop_per_s 1978.9e12  1978.9e12     4.5e15        419e12
peak.matrix.float8_e4m3fn_accumulate_float16_flop_per_s - - -             838e12
peak.matrix.int8_op_per_s        1978.9e12    1978.9e12     4.5e15        838e12
peak.matrix.float4_e2m1fn_flop_per_s -        -             9.0e15        1676e12
l2.bytes                         52428800     62914560      132644864     100663296
"""
AMD = """
                                 mi100        mi250x       mi300x
memory.bytes                     -            -            -
memory.nominal_bytes             34359738368  68719476736  206158430208
memory.bandwidth_bytes_per_s     1.2288e12    1.6384e12    5.3e12
multiprocessors                  120          110          304
peak.vector.float64_flop_per_s   11.5e12      23.9e12      81.7e12
peak.matrix.float64_flop_per_s   -            47.9e12      163.4e12
peak.vector.float32_flop_per_s   23.1e12      23.9e12      163.4e12
peak.vector.float32_packed_flop_per_s -       47.9e12      -
peak.matrix.float32_flop_per_s   46.1e12      47.9e12      163.4e12
peak.matrix.tf32_flop_per_s      -            -            653.7e12
peak.matrix.float16_flop_per_s   184.6e12     191.5e12     1307.4e12
peak.matrix.bfloat16_flop_per_s  92.3e12      191.5e12     1307.4e12
peak.matrix.float8_e4m3fnuz_flop_per_s -      -            2614.9e12
peak.matrix.float8_e5m2fnuz_flop_per_s -      -            2614.9e12
peak.matrix.float8_e4m3fn_flop_per_s -        -            -
peak.matrix.int8_op_per_s        184.6e12     191.5e12     2614.9e12
l2.bytes                         8388608      8388608      33554432
last_level_cache.bytes           0            0            268435456
"""
APPLE = """
                                 m1           m2           m4-pro
memory.bytes                     -            -            -
memory.bandwidth_bytes_per_s     68.25e9      100e9        273e9
multiprocessors                  -            -            -
clock.peak_hz                    1.278e9      1.398e9      -
peak.vector.float32_flop_per_s   2.617e12     3.579e12     -
peak.vector.float16_flop_per_s   2.617e12     3.579e12     -
peak.matrix.float16_flop_per_s   2.617e12     3.579e12     -
peak.matrix.float64_flop_per_s   -            -            -
l2.bytes                         786432       1572864      -
last_level_cache.bytes           8388608      8388608      -
"""
INTEL = """
                                 max-1550
memory.bytes                     -
memory.bandwidth_bytes_per_s     1.6384e12
multiprocessors                  64
simd.per_device                  512
matrix_engines.per_device        512
clock.peak_hz                    1.6e9
peak.vector.float64_flop_per_s   26.2e12
peak.vector.float32_flop_per_s   26.2e12
peak.matrix.tf32_flop_per_s      209.7e12
peak.matrix.float16_flop_per_s   419.4e12
peak.matrix.bfloat16_flop_per_s  419.4e12
peak.matrix.int8_op_per_s        838.9e12
peak.matrix.float64_flop_per_s   -
l2.bytes                         213909504
"""
# Architectures, by a product that has each.
NVIDIA_ARCHITECTURES = """
                                 v100-sxm2-16gb t4     a100-sxm4-80gb l40s   h100-sxm b200    rtx-5090
arch                             sm_70          sm_75  sm_80          sm_89  sm_90    sm_100  sm_120
warp.width                       32             32     32             32     32       32      32
registers.per_multiprocessor     65536          65536  65536          65536  65536    65536   65536
registers.per_block              65536          65536  65536          65536  65536    65536   65536
registers.per_thread             255            255    255            255    255      255     255
shared.bytes_per_multiprocessor  98304          65536  167936         102400 233472   233472  102400
shared.bytes_per_block           49152          49152  49152          49152  49152    49152   49152
shared.bytes_per_block_optin     98304          65536  166912         101376 232448   232448  101376
shared.bytes_reserved_per_block  0              0      1024           1024   1024     1024    1024
l1.unified_bytes                 131072         98304  196608         131072 262144   262144  131072
shared.banks                     32             32     32             32     32       32      32
threads.per_block                1024           1024   1024           1024   1024     1024    1024
threads.per_multiprocessor       2048           1024   2048           1536   2048     2048    1536
warps.per_multiprocessor         64             32     64             48     64       64      48
blocks.per_multiprocessor        32             16     32             24     32       32      24
block.x                          1024           1024   1024           1024   1024     1024    1024
block.z                          64             64     64             64     64       64      64
grid.x                           2147483647     2147483647 2147483647 2147483647 2147483647 2147483647 2147483647
grid.y                           65535          65535  65535          65535  65535    65535   65535
rate.float32_per_float64         2              32     2              64     2        2       64
arithmetic.bfloat16              no             no     yes            yes    yes      yes     yes
matrix.tf32                      no             no     yes            yes    yes      yes     yes
matrix.float8_e4m3fn             no             no     no             yes    yes      yes     yes
matrix.float8_e5m2               no             no     no             yes    yes      yes     yes
matrix.float6_e2m3fn             no             no     no             no     no       yes     yes
matrix.float4_e2m1fn             no             no     no             no     no       yes     yes
matrix.int8                      no             yes    yes            yes    yes      yes     yes
matrix.int4                      no             yes    yes            yes    no       no      no
matrix.float64                   no             no     yes            no     yes      yes     no
async_copy.cp_async              no             no     yes            yes    yes      yes     yes
async_copy.tma                   no             no     no             no     yes      yes     yes
async_copy.tma_multicast         no             no     no             no     yes      yes     no
async_copy.tma_gather4           no             no     no             no     -        yes     no
cluster.supported                no             no     no             no     yes      yes     -
cluster.portable                 -              -      -              -      8        8       -
cluster.optin                    -              -      -              -      16       16      -
tensor_memory.bytes_per_block    0              0      0              0      0        262144  0
atomics.int64_global             yes            yes    yes            yes    yes      yes     yes
atomics.int64_shared             yes            yes    yes            yes    yes      yes     yes
atomics.int128                   no             no     no             no     yes      yes     yes
warp.reduce                      no             no     yes            yes    yes      yes     yes
registers.setmaxnreg             no             no     no             no     yes      yes     yes
matrix_unit.m8n8k4.float16       yes            no     no             no     no       no      no
matrix_unit.wmma_m16n16k16.float16 yes          yes    yes            yes    yes      yes     yes
matrix_unit.m16n8k8.float16      no             yes    yes            yes    yes      yes     yes
matrix_unit.m16n8k8.bfloat16     no             no     yes            yes    yes      yes     yes
matrix_unit.m16n8k16.float16     no             no     yes            yes    yes      yes     yes
matrix_unit.m16n8k16.bfloat16    no             no     yes            yes    yes      yes     yes
matrix_unit.m16n8k4.tf32         no             no     yes            yes    yes      yes     yes
matrix_unit.m16n8k8.tf32         no             no     yes            yes    yes      yes     yes
matrix_unit.m8n8k16.int8         no             yes    yes            yes    yes      yes     yes
matrix_unit.m8n8k32.int4         no             yes    yes            yes    no       no      no
matrix_unit.m8n8k128.uint1       no             yes    yes            yes    yes      yes     yes
matrix_unit.m16n8k16.int8        no             no     yes            yes    yes      yes     yes
matrix_unit.m16n8k32.int8        no             no     yes            yes    yes      yes     yes
matrix_unit.m16n8k64.int4        no             no     yes            yes    no       no      no
matrix_unit.m8n8k4_float64.float64 no           no     yes            no     yes      yes     no
matrix_unit.m16n8k32.float8_e4m3fn no           no     no             yes    yes      yes     yes
matrix_unit.m16n8k16.float8_e5m2 no             no     no             yes    yes      yes     yes
matrix_unit.m16n8k16.float64     no             no     no             no     yes      yes     no
matrix_unit.wgmma_m64k16.bfloat16 no            no     no             no     yes      no      no
matrix_unit.wgmma_m64k8.tf32     no             no     no             no     yes      no      no
matrix_unit.wgmma_m64k32.int8    no             no     no             no     yes      no      no
matrix_unit.wgmma_m64k256.uint1  no             no     no             no     yes      no      no
matrix_unit.tcgen05_f16.float16  no             no     no             no     no       yes     no
matrix_unit.tcgen05_tf32.tf32    no             no     no             no     no       yes     no
matrix_unit.tcgen05_f8f6f4.float4_e2m1fn no     no     no             no     no       yes     no
matrix_unit.tcgen05_mxf4.float4_e2m1fn no       no     no             no     no       yes     no
matrix_unit.tcgen05_i8.int8      no             no     no             no     no       yes     no
matrix_unit.m16n8k32_f8f6f4.float6_e3m2fn no    no     no             no     no       no      yes
matrix_unit.m16n8k32_mxf8f6f4.float8_e5m2 no    no     no             no     no       no      yes
matrix_unit.m16n8k64_mxf4nvf4.float4_e2m1fn no  no     no             no     no       no      yes
"""
AMD_ARCHITECTURES = """
                                 mi100   mi250x  mi300x
arch                             gfx908  gfx90a  gfx942
warp.width                       64      64      64
simd.per_multiprocessor          4       4       4
registers.per_multiprocessor     65536   131072  131072
registers.accumulation_per_multiprocessor 65536 - -
registers.per_thread             256     512     512
registers.accumulation_per_thread 256    -       -
registers.scalar_bytes           12800   12800   12800
shared.bytes_per_multiprocessor  65536   65536   65536
shared.bytes_per_block           65536   65536   65536
shared.bytes_per_block_optin     65536   65536   65536
threads.per_block                1024    1024    1024
warps.per_simd                   10      8       8
threads.per_multiprocessor       2560    2048    2048
blocks.per_multiprocessor        16      16      16
blocks.per_multiprocessor_single_warp 40 32      32
l1.bytes                         16384   16384   32768
rate.float32_per_float64         2       1       2
matrix.float64                   no      yes     yes
matrix.bfloat16                  yes     yes     yes
matrix.tf32                      no      no      yes
matrix.float8_e4m3fnuz           no      no      yes
matrix.float8_e4m3fn             no      no      no
matrix.float4_e2m1fn             no      no      no
async_copy.lds_load              -       yes     yes
async_copy.tma                   no      no      no
cluster.supported                no      no      no
atomics.int64_global             yes     yes     yes
atomics.int64_shared             -       -       -
atomics.float32_global           no      no      yes
atomics.float32_coarse_grained   yes     yes     yes
atomics.float64_global           -       no      yes
atomics.float64_coarse_grained   -       yes     yes
arithmetic.float64               yes     yes     yes
matrix_unit.mfma_32x32x2.float32 yes     yes     yes
matrix_unit.mfma_16x16x16.float16 yes    yes     yes
matrix_unit.mfma_16x16x16.bfloat16 no    yes     yes
matrix_unit.mfma_16x16x16.int8   yes     yes     no
matrix_unit.mfma_32x32x4_2b.int8 yes     yes     yes
matrix_unit.mfma_32x32x4_2b.bfloat16 no  yes     yes
matrix_unit.mfma_32x32x4.bfloat16 yes    no      no
matrix_unit.mfma_32x32x4.tf32    no      no      yes
matrix_unit.mfma_16x16x4.float64 no      yes     yes
matrix_unit.mfma_4x4x4_4b.float64 no     yes     yes
matrix_unit.mfma_16x16x32.int8   no      no      yes
matrix_unit.mfma_32x32x16.float8_e5m2fnuz no no  yes
matrix_unit.smfmac_32x32x32.int8 no      no      yes
"""
APPLE_ARCHITECTURES = """
                                 m1      m2      m4-pro
arch                             apple7  apple8  apple9
warp.width                       32      32      32
threads.per_block                1024    1024    1024
shared.bytes_per_block           32768   32768   32768
shared.bytes_per_block_optin     32768   32768   32768
shared.alignment_bytes           16      16      16
shared.bytes_per_multiprocessor  61440   61440   -
registers.per_multiprocessor     53248   53248   -
registers.per_thread             128     128     -
threads.per_multiprocessor       3072    3072    -
blocks.per_multiprocessor        -       -       -
arithmetic.bfloat16              yes     yes     yes
arithmetic.float64               no      no      no
arithmetic.int64                 yes     yes     yes
atomics.int64_global             no      no      no
atomics.int64_min_max            no      yes     yes
atomics.float32_global           yes     yes     yes
warp.reduce                      yes     yes     yes
warp.shift_fill                  no      yes     yes
async_copy.tma                   no      no      no
matrix_unit.simdgroup_8x8.float16 yes    yes     yes
matrix_unit.simdgroup_8x8.int8   no      no      no
"""
INTEL_ARCHITECTURES = """
                                 max-1550
arch                             intel_gpu_pvc
warp.width                       -
simd.per_multiprocessor          8
warps.per_simd                   8
registers.bytes_per_simd         65536
registers.per_multiprocessor     131072
registers.per_thread             256
shared.bytes_per_multiprocessor  131072
shared.bytes_per_block           131072
threads.per_block                1024
warps.per_multiprocessor         64
threads.per_multiprocessor       2048
blocks.per_multiprocessor        64
barriers.per_multiprocessor      32
rate.float32_per_float64         1
atomics.int64_global             -
async_copy.tma                   -
matrix_unit.xmx_m8n16k32.int8    yes
matrix_unit.xmx_m8n16k16.float16 yes
matrix_unit.xmx_m32n64k16.bfloat16 yes
matrix_unit.xmx_m8n16k8.tf32     yes
"""
TABLES = {
    "nvidia": (NVIDIA, NVIDIA_LATER, NVIDIA_ARCHITECTURES),
    "amd": (AMD, AMD_ARCHITECTURES),
    "apple": (APPLE, APPLE_ARCHITECTURES),
    "intel": (INTEL, INTEL_ARCHITECTURES),
}
WORDS: dict[str, Any] = {"-": None, "yes": True, "no": False}


def cells() -> list[Any]:
    found = []
    for vendor, tables in TABLES.items():
        for table in tables:
            products, *rows = (line.split() for line in table.strip("\n").splitlines())
            for key, *values in rows:
                assert len(values) == len(products), key
                for product, text in zip(products, values, strict=True):
                    found.append(pytest.param(f"{vendor}/{product}", key, text, id=f"{product}:{key}"))
    return found


@pytest.mark.parametrize(("id", "key", "text"), cells())
def test_a_device_has_what_its_specification_says(id: str, key: str, text: str) -> None:
    device = TABLE[id]
    if text in WORDS:
        wanted = WORDS[text]
    elif text[0].isdigit():
        wanted = float(text) if "e" in text else int(text)
    else:
        wanted = text
    if wanted is None:
        with pytest.raises(MissingFact):
            device.fact(key)
        return
    assert device.values[key] == wanted
    assert type(device.values[key]) is type(wanted)


def test_every_product_of_the_specification_has_its_table() -> None:
    named = {param.values[0] for param in cells()}
    assert named | {"host/cpu"} == set(TABLE)


OTHERS = {
    "nvidia/v100-sxm2-16gb": {
        "memory.label": "16 GiB HBM2",
        "memory.nominal_bytes": 16 * 2**30,
        "matrix_unit.m8n8k4": {"float16": ("float16", "float32")},
        "driver.last": "580",
        "toolkit.last": "CUDA 12.x",
    },
    "nvidia/v100-sxm2-32gb": {"memory.label": "32 GiB HBM2", "memory.nominal_bytes": 32 * 2**30},
    "nvidia/t4": {"memory.label": "16 GB GDDR6", "matrix_unit.m8n8k32": {"int4": ("int32",)}},
    "nvidia/a100-sxm4-80gb": {"memory.label": "80 GB HBM2e", "matrix_unit.m16n8k4": {"tf32": ("float32",)}},
    "nvidia/l40s": {
        "peak.matrix.float16_accumulate_float16_flop_per_s": 366.4e12,
        "matrix_emulated.m8n8k4_float64": {"float64": ("float64",)},
    },
    "nvidia/h100-sxm": {
        "matrix_unit.wgmma_m64k16": {"float16": ("float16", "float32"), "bfloat16": ("float32",)},
        "code.exact_targets": ("sm_90a",),
    },
    "nvidia/b200": {
        "matrix_unit.tcgen05_i8": {"int8": ("int32",)},
        "matrix_unit.tcgen05_f16": {"float16": ("float16", "float32"), "bfloat16": ("float32",)},
        "driver.least": "570.133.20",
        "code.family_targets": ("sm_100f: 10.0 and 10.3",),
    },
    "nvidia/rtx-5090": {
        "matrix_unit.m16n8k64_mxf4": {"float4_e2m1fn": ("float32",)},
        "matrix_emulated.m16n8k64": {"int4": ("int32",)},
    },
    "amd/mi250x": {
        "matrix_emulated.mfma_16x16x8": {"bfloat16": ("float32",)},
        "code.target_ids": ("gfx90a:sramecc+:xnack-",),
    },
    "amd/mi300x": {"matrix_unit.smfmac_16x16x32": {"float16": (), "bfloat16": ()}},
    "apple/m1": {"memory.options": ("8 GB",), "multiprocessor_options": (7, 8), "rate.matrix_product": 0.8},
    "apple/m2": {"memory.options": ("8 GB", "16 GB", "24 GB"), "multiprocessor_options": (8, 10)},
    "apple/m4-pro": {
        "memory.options": ("24 GB", "48 GB", "64 GB"),
        "multiprocessor_options": (16, 20),
        "memory.label": "unified LPDDR5X",
    },
    "intel/max-1550": {
        "warp.width_options": (16, 32),
        "registers.per_warp_options": (128, 256),
        "shared.bytes_per_block_steps": tuple(1024 * n for n in (0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128)),
        "clock.base_hz": 900e6,
    },
}


@pytest.mark.parametrize(("id", "key"), [(id, key) for id, facts in OTHERS.items() for key in facts])
def test_what_is_no_figure_is_as_the_specification_says(id: str, key: str) -> None:
    assert TABLE[id].fact(key) == OTHERS[id][key]


@pytest.mark.parametrize(
    ("id", "key", "tags", "read"),
    [
        ("nvidia/v100-sxm2-16gb", "memory.bytes", "X1", "dev"),
        ("nvidia/v100-sxm2-32gb", "memory.bytes", "X2", "dev"),
        ("nvidia/t4", "memory.bandwidth_bytes_per_s", "X4", "3p"),
        ("nvidia/a100-sxm4-80gb", "peak.matrix.tf32_flop_per_s", "N6", "vendor"),
        ("nvidia/l40s", "peak.matrix.float16_flop_per_s", "N8", "q"),
        ("nvidia/h100-sxm", "peak.vector.float32_flop_per_s", "X1", "="),
        ("nvidia/h200-sxm", "memory.bytes", "measured", "dev"),
        ("nvidia/b200", "peak.matrix.float16_flop_per_s", "X3", "3p"),
        ("nvidia/rtx-5090", "peak.vector.float64_flop_per_s", "N7, N1", "="),
        ("nvidia/rtx-5090", "async_copy.tma_multicast", "N9", "vendor"),
        ("amd/mi100", "peak.matrix.int8_op_per_s", "A5", "="),
        ("amd/mi250x", "memory.bandwidth_bytes_per_s", "X1", "dev"),
        ("amd/mi300x", "atomics.float64_global", "A8", "vendor"),
        ("apple/m1", "clock.peak_hz", "P2", "3p"),
        ("apple/m2", "registers.per_thread", "third_party", "="),
        ("apple/m4-pro", "arithmetic.float64", "P3, P2", "q"),
        ("intel/max-1550", "peak.vector.float64_flop_per_s", "I4, I6", "="),
        ("intel/max-1550", "shared.bytes_per_multiprocessor", "I1", "vendor"),
    ],
)
def test_a_fact_names_the_documents_and_how_it_was_read(id: str, key: str, tags: str, read: str) -> None:
    fact = TABLE[id].facts[key]
    assert (fact.source, fact.read) == (tags, read)
