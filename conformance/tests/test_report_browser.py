"""The report in a real browser: nothing is fetched, nothing foreign runs, and it can be used at two widths.

Needs Chromium: the one that the environment variable CHROMIUM names, which must then be there, or the one on the path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bundles_made import PROFILE, case, kernel, write
from playwright.sync_api import Page, sync_playwright

from nbx_conformance.bundles.matrix import gather
from nbx_conformance.page import page

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")

WIDTHS = {"wide": 1280, "narrow": 390}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    cases = [case(f"awkward-f32-N{n}", profile={**PROFILE, "share": n / 1000}) for n in (63, 127, 129, 1000)]
    kernels = {
        "nbx-acme/add/plain": kernel("add@1", *cases),
        "nbx-acme/softmax/rows": kernel(
            "softmax@1", *cases, case("wide", "fail", reason=f"out[0] is 2 {HOSTILE}", profile=PROFILE), verdict="fail"
        ),
        "nbx-acme/scaled_dot_product_attention/online": kernel("scaled_dot_product_attention@1", *cases),
    }
    one = write(folder / "one.json", kernels)
    two = write(folder / "two.json", {"nbx-acme/add/plain": kernel("add@1", *cases)}, device={"id": f"acme/{HOSTILE}"})
    file = folder / "report.html"
    file.write_text(page(gather([one, two]), {}), "utf-8")
    return file


@pytest.fixture(params=WIDTHS)
def shown(request: pytest.FixtureRequest, report: Path) -> Iterator[Page]:
    """The page, opened; at the end nothing was fetched but it, nothing was thrown, and no dialog came up."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTHS[request.param], "height": 900})
        asked: list[str] = []
        wrong: list[str] = []
        tab.on("request", lambda sent: asked.append(sent.url))
        tab.on("console", lambda said: wrong.append(said.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        tab.goto(report.as_uri())
        yield tab
        browser.close()
    assert asked == [report.as_uri()]
    assert wrong == []


def test_the_page_fits_its_width(shown: Page) -> None:
    assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert shown.title() == "Conformance report"
    assert shown.locator("svg").count() == 4
    assert shown.get_by_text(HOSTILE).count() > 0


def test_the_filter_leaves_what_was_asked_for(shown: Page) -> None:
    rows = shown.locator("#matrix tbody tr:visible")
    assert rows.count() == 3
    shown.get_by_role("searchbox").fill("soft")
    assert rows.count() == 1
    assert shown.locator("#counted").text_content() == "1 of 3 ops"
    assert shown.locator("section.kernel:visible").count() == 1
    shown.get_by_role("searchbox").fill("nothing like it")
    assert rows.count() == 0
    shown.get_by_role("searchbox").fill("")
    shown.get_by_role("checkbox").check()
    assert rows.count() == 1
    assert shown.locator(".failure:visible").count() == 1


def test_a_cell_leads_to_its_kernel(shown: Page) -> None:
    shown.locator("#matrix a.state.failed").first.click()
    heading = shown.locator("section.kernel:target h3")
    assert "nbx-acme/softmax/rows" in (heading.text_content() or "")
    assert heading.is_visible()


def test_the_command_of_a_failure_can_be_read_whole(shown: Page) -> None:
    command = shown.locator(".failure pre")
    assert command.text_content() == (
        "nbx conformance run --device acme/one --via device --size smoke --kernel nbx-acme/softmax/rows -k wide"
    )
    assert command.evaluate("e => e.scrollWidth <= e.clientWidth")
