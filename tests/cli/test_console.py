import pytest

from nbx_registry.cli import console


def test_a_table_folds_long_cells_and_loses_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    name = "nbx-host/scaled_dot_product_attention/numpy"
    console.table(("kernel", "calls"), [(name, 12)], right=("calls",))
    out = capsys.readouterr().out
    assert all(len(line) <= 40 for line in out.splitlines())
    kernel = "".join(line.removesuffix("12").strip() for line in out.splitlines()[1:])
    assert kernel == name
    assert "…" not in out


def test_a_piped_table_keeps_ids_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a-distribution/some_operation_with_a_long_name/variant" * 2
    console.table(("kernel",), [(name,)])
    assert name in capsys.readouterr().out.splitlines()[1]


def test_lines_keep_their_indent_and_continue_deeper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    console.lines("head\n   - a condition on extents does not hold here")
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == "head"
    assert printed[1].startswith("   - a condition")
    assert all(line.startswith("     ") and len(line) <= 30 for line in printed[2:])


def test_brackets_and_colons_are_text_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.lines("add(x1: float16[1, 2]) [red]:warning:")
    console.table(("spec",), [("float16[bold]",)])
    out = capsys.readouterr().out
    assert "add(x1: float16[1, 2]) [red]:warning:" in out
    assert "float16[bold]" in out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.5 s"), (0.00342, "3.42 ms"), (15.84e-6, "15.8 us"), (2.2e-9, "2.2 ns"), (0.0, "0 ns")],
)
def test_durations_carry_their_unit(seconds: float, text: str) -> None:
    assert console.figure_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (33_554_432, "33.55 MB"), (10**18, "1000.00 PB")]
)
def test_bytes_are_in_decimal_units(count: int, text: str) -> None:
    assert console.figure_bytes(count) == text
