"""Representatives: of each kernel the first case with elements, of each combination of dtypes, that it takes."""

from __future__ import annotations

from typing import Any

from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel


class Picky:
    """A plugin whose one kernel takes what its condition says."""

    NBX_HOOKS = 1
    name = "nbx-picky"

    def __init__(self, when: str) -> None:
        self.kernel = Kernel(
            id="nbx-picky/add/it", op="add@1", backend="numpy", runtimes=("host",), bind="json:loads", when=(when,)
        )

    @hookimpl
    def nbx_register_kernels(self) -> list[Kernel]:
        return [self.kernel]


def representatives(op: str, kernel: str, *extra: Any) -> list[str]:
    session = Session(Options(device="cpu", extra=extra))
    found = session.registry.catalog.kernel(kernel)
    return [case.id for case in session.cases.of(op) if session.site.representative(found, case)]


def test_one_case_of_each_combination_of_dtypes_and_scalars_stands_for_the_others() -> None:
    cases = {case.id: case for case in Session(Options(device="cpu")).cases.of("add@1")}
    found = [cases[name] for name in representatives("add@1", "nbx-host/add/numpy")]
    kinds = [tuple(getattr(spec, "dtype", type(spec)) for spec in case.tensors.values()) for case in found]
    assert len(set(kinds)) == len(kinds) > 10
    assert not any(case.refuses for case in found)
    assert all(spec.size for case in found for spec in case.specs())


def test_a_case_with_an_axis_of_one_element_stands_for_others_only_where_there_is_none_without() -> None:
    found = representatives("sum@1", "nbx-host/sum/numpy")
    assert "last-f32-N63" in found
    assert not any("N1" in name.split("-") for name in found)


def test_only_what_the_kernel_takes_is_among_them() -> None:
    view = representatives("permute_dims@1", "nbx-host/permute_dims/view")
    copy = representatives("permute_dims@1", "nbx-host/permute_dims/numpy")
    assert view
    assert copy
    assert not set(view) & set(copy)


def test_a_full_case_stands_in_where_no_smoke_case_is_taken() -> None:
    cases = Session(Options(device="cpu")).cases
    most = max(
        case.tensors["x1"].size for case in cases.of("add@1", "smoke") if not isinstance(case.tensors["x1"], float)
    )
    (found, *_) = representatives("add@1", "nbx-picky/add/it", Picky(f"x1.size > {most}"))
    assert found not in {case.id for case in cases.of("add@1", "smoke")}
    assert representatives("add@1", "nbx-picky/add/it", Picky("x1.size > 2**40")) == []
