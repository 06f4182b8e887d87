"""A kernel that keeps a stream busy for a while."""

from nbx_registry.launch import Artifact

DELAY = Artifact(
    image=b"""\
.version 6.4
.target sm_70
.address_size 64

.visible .entry nbx_delay(.param .u64 nanoseconds)
{
    .reg .pred %again;
    .reg .b64 %limit, %start, %now, %passed;
    ld.param.u64 %limit, [nanoseconds];
    mov.u64 %start, %globaltimer;
wait:
    nanosleep.u32 500;
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %start;
    setp.lt.u64 %again, %passed, %limit;
    @%again bra wait;
    ret;
}
""",
    kind="ptx",
    entry="nbx_delay",
    arch="sm_70",
    toolkit="ptx 6.4",
    parameters=1,
)
"""Spins on the device's clock. Grid (1, 1, 1), one thread; PTX, so every device since sm_70 takes it."""
