"""The page: the support matrix, every failure with the command that shows it again, every kernel's error profile.

Whatever a bundle says is text here, never markup: bundles come from others. The page's policy lets no script run but
its own, and fetches nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources

from nbx_conformance.bundles.matrix import STATES, CaseResult, Matrix, Result, Support
from nbx_conformance.page.profile import drawing, measured


def page(matrix: Matrix, verified: Mapping[str, Sequence[str]]) -> str:
    """Return the page.

    Parameters
    ----------
    verified
        By a bundle's digest, what verification said of it, a sentence each, the verdict first.
    """
    files = resources.files("nbx_conformance.page")
    style = (files / "page.css").read_text("utf-8")
    script = (files / "page.js").read_text("utf-8")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            f"<title>Conformance report</title><style>{style}</style></head><body>",
            *_head(matrix),
            *_table(matrix),
            *_failures(matrix),
            *_waivers(matrix),
            *_plugins(matrix),
            *_kernels(matrix),
            *_sources(matrix, verified),
            f"<script>{script}</script></body></html>\n",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _head(matrix: Matrix) -> Iterator[str]:
    failed = sum(1 for _ in matrix.failures())
    cases = sum(source.cases for source in matrix.sources)
    what = f'<span class="failed">{failed} failed</span>' if failed else "none failed"
    yield (
        f"<h1>Conformance report</h1><p>{_count(len(matrix.ops), 'op')} on {_count(len(matrix.devices), 'device')}: "
        f"{_count(cases, 'case')} of {_count(len(matrix.sources), 'bundle')}, {what}.</p>"
    )
    yield '<ul class="legend">'
    for state, meaning in STATES.items():
        yield f'<li><span class="state {state}">{state}</span> <span class="dim">{escape(meaning)}</span></li>'
    yield "</ul>"
    yield (
        '<div class="tools"><input type="search" id="search" placeholder="Filter by op, kernel or device" '
        'aria-label="Filter by op, kernel or device">'
        '<label><input type="checkbox" id="failing"> only what fails</label>'
        '<span class="dim" id="counted" aria-live="polite"></span></div>'
    )


def _table(matrix: Matrix) -> Iterator[str]:
    yield '<h2>Support</h2><div class="scroll" tabindex="0" role="region" aria-label="Support by op and device">'
    yield '<table id="matrix"><thead><tr><th scope="col">op</th>'
    for device in matrix.devices:
        yield f'<th scope="col">{escape(device)}</th>'
    yield "</tr></thead><tbody>"
    for op in matrix.ops:
        supports = {device: matrix.cells.get((op, device), ()) for device in matrix.devices}
        names = [op, *(s.kernel for kernels in supports.values() for s in kernels)]
        failed = any(s.state == "failed" for kernels in supports.values() for s in kernels)
        yield f'<tr {_data(names, failed=failed)}><th scope="row">{_breakable(op)}</th>'
        for device in matrix.devices:
            yield f"<td>{_cell(matrix, op, device, supports[device])}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def _cell(matrix: Matrix, op: str, device: str, supports: Sequence[Support]) -> str:
    best = matrix.best(op, device)
    if best is None:
        return '<span class="none">-</span>'
    count = f" ({len(supports)})" if len(supports) > 1 else ""
    failed = sum(support.state == "failed" for support in supports)
    more = f' <span class="failed">{failed} failed</span>' if failed and best != "failed" else ""
    waived = ' <span class="waived">waived</span>' if any(support.waived for support in supports) else ""
    anchor = _anchor(device, supports[0].kernel)
    return f'<a class="state {best}" href="#{anchor}">{best}</a><span class="dim">{count}</span>{more}{waived}'


def _failures(matrix: Matrix) -> Iterator[str]:
    failures = list(matrix.failures())
    yield f'<h2 id="failures">Failures ({len(failures)})</h2>'
    if not failures:
        yield '<p class="dim">None.</p>'
    for result, case in failures:
        names = (result.op, result.kernel, case.case, result.bundle.device)
        yield (
            f'<div class="failure" {_data(names, failed=True)}><b>{escape(result.kernel)}</b> on '
            f"{escape(result.bundle.device)}, case <code>{escape(case.case)}</code>"
        )
        for check, verdict, reason in case.reasons:
            if verdict in ("fail", "error"):
                yield f'<div><span class="{verdict}">{verdict}: {escape(check)}</span> {escape(reason)}</div>'
        yield f"<pre>{escape(result.again(case))}</pre></div>"


def _waivers(matrix: Matrix) -> Iterator[str]:
    if not matrix.waivers:
        return
    yield '<h2>Waivers</h2><div class="scroll"><table><thead><tr>'
    columns = ("id", "kernel", "case", "check", "device", "share", "reason", "link", "expires")
    yield "".join(f'<th scope="col">{column}</th>' for column in columns) + "</tr></thead><tbody>"
    for _, waiver in sorted(matrix.waivers.items()):
        cells = (f"<td>{escape(str(waiver.get(column, '')))}</td>" for column in columns)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _plugins(matrix: Matrix) -> Iterator[str]:
    said = [(name, source) for source in matrix.sources for name in sorted(source.plugins)]
    if not said:
        return
    yield '<h2>Plugins as wholes</h2><div class="scroll"><table><thead><tr>'
    columns = ("plugin", "version", "device of the run", "verdict", "checks")
    yield "".join(f'<th scope="col">{column}</th>' for column in columns) + "</tr></thead><tbody>"
    for name, source in said:
        plugin = source.plugins[name]
        passed = ", ".join(escape(check["check"]) for check in plugin["checks"] if check["verdict"] == "pass")
        lines = [
            f'<span class="{escape(check["verdict"])}">{escape(check["check"])}</span> '
            f"{escape(check.get('reason', ''))}"
            for check in plugin["checks"]
            if check["verdict"] != "pass"
        ]
        verdict, version = escape(plugin["verdict"]), escape(plugin["version"] or "")
        yield (
            f"<tr><td>{escape(name)}</td><td>{version}</td><td>{escape(source.bundle.device)}</td>"
            f'<td class="{verdict}">{verdict}</td><td>{"<br>".join([*lines, passed])}</td></tr>'
        )
    yield "</tbody></table></div>"


def _kernels(matrix: Matrix) -> Iterator[str]:
    yield "<h2>Kernels and their error profiles</h2>"
    yield (
        '<p class="dim">Each column of a drawing is a case, in the order of the suite. Above: the largest share of its '
        "bound that an error takes, the dashed line being all of it. Below: the error in units in the last place, from "
        "the median element to the worst. A case without either is exact, or was refused as specified.</p>"
    )
    for device in matrix.devices:
        for op in matrix.ops:
            for support in matrix.cells.get((op, device), ()):
                names = (op, support.kernel, device)
                yield f'<section class="kernel" id="{_anchor(device, support.kernel)}" '
                yield f"{_data(names, failed=support.state == 'failed')}>"
                yield (
                    f'<h3>{escape(support.kernel)} <span class="dim">on {escape(device)}:</span> '
                    f'<span class="state {support.state}">{support.state}</span></h3>'
                )
                for result in support.results:
                    yield from _result(result)
                yield "</section>"


def _result(result: Result) -> Iterator[str]:
    counts = ", ".join(
        f'<span class="{verdict}">{count} {verdict}</span>' for verdict, count in result.counted().items()
    )
    missing = result.expected - len(result.cases)
    more = f', <span class="incomplete">{missing} not run</span>' if missing > 0 else ""
    yield f'<div class="dim">{escape(result.bundle.reach)}, by {escape(result.bundle.via)}: {counts}{more}</div>'
    profiled = [case for case in result.cases if case.profile]
    if profiled:
        yield drawing(result.cases, f"Error profile of {result.kernel} on {result.bundle.device}")
        worst = max(profiled, key=lambda case: case.profile["share"])
        said = f"<code>{escape(worst.case)}</code>, {escape(told(worst))}"
        yield f'<div class="dim">worst against its bound: {said}</div>'


def told(case: CaseResult) -> str:
    """Return a profile in words."""
    profile = case.profile
    median, nearly, most = profile["ulp"]
    at = f" at {profile['worst']}" if profile["worst"] else ""
    if not measured(profile):
        return f"not to be measured{at}: not finite, or wrong where results must be exact"
    return (
        f"{_percent(profile['share'])}{at}; ulp {median:.3g} at the median, {nearly:.3g} at 99 %, {most:.3g} at "
        f"worst; relative L2 {profile['l2']:.2g}"
    )


def _percent(share: float) -> str:
    return f"{share:.1%} of it" if share <= 10 else "far beyond it"


def _sources(matrix: Matrix, verified: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield '<h2>Bundles</h2><div class="scroll"><table><thead><tr>'
    columns = (
        "file",
        "device",
        "reach, by",
        "driver and toolkit",
        "kernels",
        "cases",
        "made",
        "seconds",
        "verification",
    )
    yield "".join(f'<th scope="col">{column}</th>' for column in columns) + "</tr></thead><tbody>"
    for source in matrix.sources:
        bundle = source.bundle
        versions = ", ".join(f"{name} {version}" for name, version in sorted(bundle.versions.items()))
        said = verified.get(bundle.digest, ("not verified here",))
        yield (
            f"<tr><td>{escape(bundle.path.name)}</td><td>{escape(bundle.device)}</td>"
            f"<td>{escape(bundle.reach)}, {escape(bundle.via)}</td><td>{escape(versions)}</td>"
            f'<td class="number">{len(bundle.records)}</td><td class="number">{source.cases}</td>'
            f'<td>{bundle.created:%Y-%m-%d %H:%M}</td><td class="number">{bundle.seconds:.0f}</td>'
            f"<td>{'<br>'.join(escape(line) for line in said)}</td></tr>"
        )
    yield "</tbody></table></div>"


def _breakable(name: str) -> str:
    """Return a name that may be broken behind an underscore or a colon."""
    return escape(name).replace("_", "_<wbr>").replace("::", "::<wbr>")


def _data(names: Sequence[str], *, failed: bool) -> str:
    return f'data-name="{escape(" ".join(names).lower())}" data-failed="{int(failed)}"'


def _anchor(device: str, kernel: str) -> str:
    # Names of others may hold anything; what an anchor is called does not matter.
    return "k" + hashlib.sha256(f"{device}\0{kernel}".encode()).hexdigest()[:12]
