"""Outputs: where results go to memory laid out otherwise than densely, as a caller's ``out=`` may be, they are right
there and nowhere else, or the layout is refused.
"""

from __future__ import annotations

from typing import Final

from nbx_conformance.cases import layouts
from nbx_conformance.checks.judge import judge
from nbx_conformance.checks.refusals import OF_REQUEST
from nbx_conformance.trials.bench import Bench
from nbx_conformance.trials.trial import Outcome, Trial
from nbx_registry.errors import Refused
from nbx_registry.spec import TensorSpec

NAME = "outputs"

LAYOUTS: Final = ("offset", "strided", "transposed", "pitched")


def check(trial: Trial) -> Outcome | None:
    """Bind a representative case with outputs of each layout and run it.

    None for a view, and for a case without outputs. Which layouts were refused is recorded.
    """
    if trial.bound.program is None or not trial.site.representative(trial.kernel, trial.case):
        return None
    tried = 0
    refused: list[str] = []
    for layout in LAYOUTS:
        outputs = tuple(_laid_out(spec, layout) for spec in trial.problem.signature.outputs)
        if outputs == trial.problem.signature.outputs:
            continue
        tried += 1
        try:
            wrong = _wrong(trial, outputs)
        except Refused as error:
            code = error.decision.candidate(trial.kernel.id).code or ""
            refused.append(f"{layout} ({code})")
            wrong = "" if code in OF_REQUEST else f"refused for what is no matter of a layout: {error}"
        if wrong:
            return Outcome(NAME, "fail", f"out= is {layout}, {', '.join(map(str, outputs))}: {wrong}")
    return Outcome(NAME, "pass", f"refused: {', '.join(refused)}" if refused else "") if tried else None


def _laid_out(spec: TensorSpec, layout: str) -> TensorSpec:
    """Return an output's spec in a layout, or as it is where that has too few axes for it."""
    axes = 0 if layout == "offset" else 1 if layout == "strided" else 2
    return layouts.apply(spec, layout) if spec.rank >= axes and spec.size else spec


def _wrong(trial: Trial, outputs: tuple[TensorSpec, ...]) -> str:
    """Return in words what is wrong with results in such outputs. Raises `Refused`."""
    problem = trial.problem
    signature = problem.op.signature(problem.specs(trial.case.tensors), dict(trial.case.attributes))
    signature.outputs = outputs
    bound = trial.registry.bind_specs(
        trial.case.op,
        signature,
        device=trial.site.target.name,
        kernel=trial.kernel.id,
        require="any",
        runtime=trial.site.emulator,
        settings=trial.settings,
    )
    run = Bench(bound).run(problem.inputs(0))
    for output in signature.op.outputs:
        damage = run.contents[output.name].damage(elements=False)
        if damage is not None:
            return f"written beside it: {damage}"
    return judge(trial, run, 0).wrong
