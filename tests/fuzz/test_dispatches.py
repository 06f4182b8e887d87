"""What the registry answers is what the rules say; `make fuzz` asks a million times."""

from __future__ import annotations

import dispatches
import obvious
import pytest


def test_dispatches_agree_with_the_rules() -> None:
    ended = dispatches.fuzz(12_000, seed=1, per_catalog=600)
    assert ended.total() == 12_000
    # Of each kind enough, or the agreement says little.
    assert all(ended[end] > 100 for end in ("chosen", "refused", "faulty"))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_rank", lambda one: one[0].id),
        ("_time", lambda *_: None),
        ("_by_time", lambda ranked, *_: ranked),
        ("_refusal", lambda one, *_: None),
        ("_revokes", lambda *_: False),
    ],
)
def test_a_rule_read_otherwise_is_noticed(name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obvious, name, wrong)
    with pytest.raises(dispatches.Disagreement):
        dispatches.fuzz(20_000, seed=2, per_catalog=200)
