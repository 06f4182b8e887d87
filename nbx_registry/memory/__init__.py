"""Memory laid out ahead: how much one slab must hold, and allocators that engines pass."""
