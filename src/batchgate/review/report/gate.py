"""The sections about the gate: what its checks did, whether re-asks helped, how often it was right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from .. import phrases, text
from ..card import ReportCard
from ..estimate import Share
from ..figures import CheckCount, Judged, Summary, Transition, VerifierCount
from . import parts, scatter
from .findings import Findings
from .html import Content, Markup, tag

MAX_COLUMNS = 6
"""Attempt numbers that have a column of their own in the table of checks."""

_FOLLOWED = {
    "accepted": "accepted",
    "repeated": "same value again",
    "same_check": "same check again",
    "other_check": "another check",
    "unjudged": "not judged",
}


def checks(figures: Summary) -> Content:
    """Show which check rejected how much at which attempt, why, and whether asking again helped."""
    if not figures.asks:
        return parts.quiet("The model was not asked yet.")
    heat = _heat(figures) if figures.checks else ""
    return [
        parts.row(heat, _asks(figures)),
        _transitions(figures),
        _reasons(figures.checks),
    ]


def _heat(figures: Summary) -> Markup:
    numbers = [ask.attempt for ask in figures.asks][:MAX_COLUMNS]
    beyond = len(figures.asks) > MAX_COLUMNS
    heads = ["Check", *(f"attempt {n}" for n in numbers), *(["later"] if beyond else []), "all"]
    rows = []
    for check in figures.checks:
        found = [[part for part in check.by_attempt if part.attempt == n] for n in numbers]
        later = [part for part in check.by_attempt if part.attempt > numbers[-1]]
        cells = [
            _heat_cell(check, part, attempt) for attempt, part in zip(numbers, found, strict=True)
        ]
        if beyond:
            cells.append(_heat_cell(check, later))
        cells.append(_heat_cell(check, check.by_attempt))
        rows.append([f"{check.name} ({check.kind})", *cells])
    return parts.table(
        heads,
        rows,
        "Rejected of judged proposals, by check and attempt. A darker cell rejected a larger "
        "share. Choose a number to see these attempts.",
    )


def _heat_cell(check: CheckCount, judged: Sequence[Judged], attempt: int | None = None) -> Markup:
    total = sum(part.judged for part in judged)
    rejected = sum(part.rejected for part in judged)
    if not total:
        return tag("td", "-", class_="number quiet")
    told = f"{rejected} of {total}"
    if rejected and check.kind != "soft":
        where = {"check": check.name} | ({"attempt": attempt} if attempt else {})
        told = tag("a", told, href=f"#{urlencode(where)}")
    depth = -(-rejected * 5 // total)
    return tag("td", told, " ", _percent(rejected, total), class_=f"number heat{depth}")


def _asks(figures: Summary) -> Content:
    rows = [
        (
            f"attempt {ask.attempt}",
            ask.asked,
            ask.accepted,
            f"{ask.accepted / ask.asked:.0%} ({ask.low:.0%} to {ask.high:.0%})",
        )
        for ask in figures.asks
    ]
    head = ("Asked", "times", "accepted", "rate (95 % interval)")
    return parts.table(head, rows, "How often the model's first answer passed, and each re-ask.")


def _transitions(figures: Summary) -> Content:
    if not figures.reasks:
        return ()
    keys = [key for key in _FOLLOWED if key in figures.reasks]
    everything = Transition("all", figures.reasks)
    rows = [_transition(one, keys) for one in (*figures.transitions, everything)]
    return parts.table(
        ("Rejected by", "asked again", *(_FOLLOWED[key] for key in keys)),
        rows,
        "What the next attempt was after a rejection: whether the reason helped. An attempt that "
        "several checks rejected counts for each of them.",
    )


def _transition(one: Transition, keys: Sequence[str]) -> list[Content]:
    total = sum(one.followed.values())
    cells = [_followed(one.followed.get(key, 0), total, good=key == "accepted") for key in keys]
    return [one.check, total, *cells]


def _followed(count: int, total: int, *, good: bool) -> Markup:
    if not count:
        return tag("td", "-", class_="number quiet")
    depth = -(-count * 5 // total)
    shade = f"cool{depth}" if good else f"heat{depth}"
    return tag("td", str(count), " ", _percent(count, total), class_=f"number {shade}")


def _percent(count: int, total: int) -> Markup:
    return tag("span", f"{count / total:.0%}", class_="share")


def _reasons(found: Iterable[CheckCount]) -> Content:
    rows = [
        (check.name, reason.count, reason.example if reason.count == 1 else reason.template)
        for check in found
        for reason in check.reasons
    ]
    if not rows:
        return ()
    return parts.table(
        ("Check", "times", "reason"),
        [(name, count, text.clipped(reason, 300)) for name, count, reason in rows],
        "Most frequent reasons; # stands for a number.",
    )


# --- the report card -----------------------------------------------------------------------------


def card(found: ReportCard) -> Content:
    """Show how often each check was wrong, as far as jobs have told."""
    if not found.checks:
        return parts.quiet("No candidate was judged by a check yet.")
    rows = [
        (
            f"{check.name} ({check.kind})" if check.kind != check.name else "the whole gate",
            check.passed,
            _share(check.false_accept),
            check.rejected,
            _share(check.false_reject),
        )
        for check in found.checks
    ]
    shown = parts.table(
        ("Check", "passed", "of these bad", "rejected", "of these good"),
        rows,
        "How often it was wrong, with 95 % intervals, as far as jobs have told. Bad is a result "
        "that is infeasible or was rejected. Of what was rejected only audits tell.",
    )
    return [shown, [tag("p", remark) for remark in phrases.remarks(found)]]


def _share(share: Share) -> Markup:
    if share.value is None:
        return tag("td", "unknown", class_="quiet nowrap")
    told = f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%})"
    support = f" {share.hits} of {share.seen}{'' if share.calibrated else ', too few to believe'}"
    return tag("td", told, tag("span", support, class_="quiet"), class_="nowrap")


# --- verifiers -----------------------------------------------------------------------------------


def verifiers(found: Findings) -> Content:
    """Show whether the verifiers were right, as far as jobs can tell."""
    if not found.figures.verifiers:
        return parts.quiet("No verifier has judged a candidate yet.")
    charts = [parts.figure(chart) for chart in scatter.scatters(found.record)]
    return [[_confusion(verifier) for verifier in found.figures.verifiers], charts]


def _confusion(verifier: VerifierCount) -> Content:
    rows = (
        ("let pass", verifier.passed_good, verifier.passed_bad, verifier.passed_unknown),
        ("refused", verifier.refused_good, verifier.refused_bad, verifier.refused_unknown),
    )
    head = (verifier.name, "job feasible", "job not feasible", "no judged job")
    return [parts.table(head, rows), tag("p", phrases.verifier(verifier))]
