"""Cost: what an op says it costs equals the closed forms that its case states, exactly.

It is about the op rather than the kernel, and is looked at in each trial so that a plugin's op is held to it as well.
What a kernel takes beside, its workspace, is for `allocation`.
"""

from __future__ import annotations

from nbx_conformance.problems.problem import Problem
from nbx_conformance.trials.trial import Outcome, Trial
from nbx_registry import expr
from nbx_registry.errors import ExpressionError

NAME = "cost"


def check(trial: Trial) -> Outcome | None:
    """Compare the declared cost with the case's closed forms; None for a case that states none."""
    if not trial.case.cost:
        return None
    wrong = "; ".join(differences(trial.problem).values())
    return Outcome(NAME, "fail" if wrong else "pass", wrong)


def differences(problem: Problem) -> dict[str, str]:
    """Return in words, by field, where an op's cost on a case is not what the case states.

    Raises `PluginFault` for a cost that is no count.
    """
    signature = problem.signature
    declared = problem.op.cost(signature)
    found: dict[str, str] = {}
    for name, text in problem.case.cost.items():
        try:
            form = expr.parse(text)
            closed = form.evaluate(signature.value)
        except ExpressionError as error:
            found[name] = f"the closed form of {name} cannot be computed: {error}"
            continue
        # A float that happens to be equal is no exact count.
        if type(closed) is not int or closed != getattr(declared, name):
            stated = f"{closed!r} by {form.explain(signature.value)}"
            found[name] = f"{name} is {getattr(declared, name)} by the contract, {stated}"
    return found
