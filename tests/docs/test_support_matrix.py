"""The support matrix of the documentation is what the bundles that are shipped say."""

from __future__ import annotations

from pathlib import Path

from nbx_conformance.bundles.matrix import gather, markdown

ROOT = Path(__file__).parents[2]
BUNDLES = (*ROOT.glob("nbx_registry/host/evidence/*.json"), *ROOT.glob("plugins/*/nbx_*/evidence/*.json"))


def test_the_page_is_the_one_that_the_shipped_bundles_make() -> None:
    made = markdown(gather(BUNDLES))
    # `make matrix` writes it.
    assert (ROOT / "docs" / "support-matrix.md").read_text("utf-8") == made
