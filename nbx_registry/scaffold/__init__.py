"""The beginning of a plugin: a complete small distribution, written out under the name that is asked for."""

from nbx_registry.scaffold.distribution import Names, collision, name_of, write

__all__ = ["Names", "collision", "name_of", "write"]
