"""Figures as sentences, the same ones on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from . import text
from .figures import Best, Ending, Rank, Saved, VerifierCount
from .stats import wilson

if TYPE_CHECKING:
    from .card import CheckCard, ReportCard
    from .estimate import Share
    from .rows import QuestionRow

_ENDINGS = {
    "stopped": "Finished",
    "failed": "Ended by failures",
    "suspended": "Suspended",
    "closed": "Ended without a stop rule",
    "open": "No end recorded",
    "empty": "Empty",
}
_REASKS = {
    "accepted": "accepted",
    "repeated": "the same value again",
    "same_check": "rejected by the same check",
    "other_check": "rejected by another check",
    "unjudged": "not judged",
}


def ended(ending: Ending) -> str:
    """Say how a run ended, in a few words: `Finished by the rule 'jobs'`."""
    return _ENDINGS[ending.how] + (f" by the rule {ending.rule!r}" if ending.rule else "")


def origin(best: Best) -> str:
    """Say where the best result came from, and how far it improved."""
    return (
        f"from the {best.source}; the first feasible one was {best.first:.6g}, "
        f"{'lower' if best.minimise else 'higher'} is better"
    )


def reasks(counts: Mapping[str, int]) -> str:
    """Say what followed a rejection; empty when nothing did."""
    told = (f"{counts[key]} {phrase}" for key, phrase in _REASKS.items() if key in counts)
    return f"After a rejection the next attempt was: {', '.join(told)}." if counts else ""


def verdicts(count: VerifierCount) -> str:
    """Say how often a verifier let pass and refused, and what the jobs found."""
    return (
        f"Verifier {count.name} let pass: "
        f"{count.passed_good} feasible, {count.passed_bad} not, {count.passed_unknown} unknown; "
        f"refused: "
        f"{count.refused_good} feasible, {count.refused_bad} not, {count.refused_unknown} unknown."
    )


def verifier(count: VerifierCount) -> str:
    """Say whether a verifier was right, as far as jobs can tell."""
    known = count.passed_good + count.passed_bad
    low, high = wilson(count.passed_good, known)
    told = [_rank(rank) for rank in count.ranks] or ["It measures nothing that the jobs measure."]
    if known:
        told.insert(
            0,
            f"Of {known} candidates that it let pass and whose job was judged, "
            f"{count.passed_good} were feasible: {count.passed_good / known:.0%} "
            f"(95 % interval {low:.0%} to {high:.0%}).",
        )
    return " ".join(told)


def saved(figures: Saved, false_reject: Share | None) -> str:
    """Say what the gate may have saved, how that is reckoned and how far it can be believed.

    Args:
        figures: The estimate.
        false_reject: Share of what the gate rejected that is good, as far as audits tell.
    """
    said = "saved" if figures.node_h >= 0 else "cost"
    audited = (
        f"Of those that audits ran, {false_reject.hits} of {false_reject.seen} were good."
        if false_reject and false_reject.seen
        else "None was audited, so whether they were bad is unknown."
    )
    return (
        f"The gate {said} about {text.hours(abs(figures.node_h))} node-hours: it refused "
        f"{figures.stopped} different candidates that never ran, a job of this run was charged "
        f"{text.hours(figures.job_node_h)} on average, and verifiers used "
        f"{text.hours(figures.cost_node_h)} to find out. {audited}"
    )


_ANSWERS = {"accept": "accepted", "reject": "rejected", "edit": "edited"}


def answer(question: QuestionRow) -> str:
    """Say what a person answered, or that nobody did."""
    if question.answered_at is None:
        return f"waits until {text.instant(question.expires_at)}"
    after = text.span(question.answered_at - question.asked_at)
    if question.action == "expire":
        return f"nobody answered within {after}"
    why = f": {question.why}" if question.why else ""
    return f"{_ANSWERS[question.action or '']} by {question.by} after {after}{why}"


def _rank(rank: Rank) -> str:
    if rank.spearman is None:
        return f"{rank.observable}: {rank.pairs} pairs do not tell how it ranks."
    poor = "; it does not rank as the jobs do" if rank.poor else ""
    told = f"Spearman {rank.spearman:.2f} with the job's over {rank.pairs} pairs"
    return f"{rank.observable}: {told}{poor}."


def measured(values: Mapping[str, object], units: Mapping[str, str]) -> dict[str, str]:
    """Return values as text, with their units where they have any."""
    return {
        name: f"{text.scalar(value)} {units.get(name, '')}".strip()
        for name, value in values.items()
    }


def remarks(found: ReportCard) -> Iterator[str]:
    """Yield what a report card says beside its figures: eras, drift, suggestions."""
    if not found.audited:
        yield "No rejected candidate was launched on purpose, so what is rejected wrongly is unknown."
    for check in found.checks:
        yield from _changes(check)
        for one in check.suggestions:
            yield (
                f"{check.name}: {one.observable} = {list(one.tighter)} instead of {list(one.now)} "
                f"would have stopped {one.bad_stopped} of {one.bad_seen} bad candidates and none "
                f"of {one.good_kept} good ones."
            )


def _changes(check: CheckCard) -> Iterator[str]:
    newest = check.eras[-1]
    if newest.changed:
        yield (
            f"{check.name}: {' and '.join(newest.changed)} changed {text.instant(newest.since_at)}; "
            "its figures are of the time since."
        )
    if check.drifted:
        yield f"{check.name}: it has drifted: its figures are surely others than before."
