"""``python -m nbx_conformance``: the command group without the rest of ``nbx``."""

from nbx_conformance.cli import conformance

if __name__ == "__main__":
    conformance(prog_name="python -m nbx_conformance")
