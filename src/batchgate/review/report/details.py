"""What the details of a line say: an answer, its checks, its jobs, each as label and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...events import CheckJudged, Plain
from .. import text
from ..rows import AttemptRow, JobRow

IDS = ("Response", "Trace")
"""Labels of what only a machine looks for."""
SLOW_S = 0.1
"""Seconds from which on it is told how long a check took."""


def proposal_told(proposal: Plain) -> str:
    """Return a proposal on one line, its rationale left out."""
    if isinstance(proposal, Mapping) and isinstance(proposal.get("candidates"), (list, tuple)):
        return " | ".join(map(text.compact, proposal["candidates"]))
    return "" if proposal is None else text.scalar(proposal)


def candidates_told(candidates: Sequence[Plain]) -> list[tuple[str, str]]:
    """Tell candidates one by one."""
    if len(candidates) == 1:
        return [("Candidate", text.compact(candidates[0]))]
    return [(f"Candidate {i}", text.compact(c)) for i, c in enumerate(candidates, start=1)]


def attempt_told(attempt: AttemptRow) -> Iterator[tuple[str, str]]:
    """Tell what was answered, how, and what each check said of it."""
    if len(attempt.candidates) > 1:
        yield from candidates_told(attempt.candidates)
    if isinstance(attempt.proposal, Mapping):
        for name, value in attempt.proposal.items():
            if name != "candidates":
                yield name, text.scalar(value)
    elif attempt.proposal is not None:
        yield "Answer", text.scalar(attempt.proposal)
    yield "Asked", f"{text.instant(attempt.started_at)}, answered in {text.span(attempt.answer_s)}"
    if attempt.rejected_by and not attempt.checks:
        yield f"Stage {attempt.rejected_by[0]}", "; ".join(attempt.reasons)
    yield from _samples(attempt)
    for check in attempt.checks:
        sample = f", sample {check.sample}" if attempt.others else ""
        kind = "Verifier" if check.verifier else "Check"
        yield f"{kind} {check.check}{sample}", _check_told(check)
    if attempt.model:
        yield "Model", attempt.model
    if attempt.temperature is not None:
        yield "Temperature", f"{attempt.temperature:g}"
    if attempt.output_tokens:
        yield "Tokens", f"{attempt.input_tokens} in, {attempt.output_tokens} out"
    if attempt.samples_total > 1:
        yield "Samples", f"{attempt.samples_valid} of {attempt.samples_total} valid"
    yield "Response", attempt.response_id
    yield "Trace", attempt.trace_id


def _samples(attempt: AttemptRow) -> Iterator[tuple[str, str]]:
    samples = (attempt.proposal, *attempt.others) if attempt.others else ()
    for number, sample in enumerate(samples, start=1):
        accepted = attempt.outcome == "accepted" and number == attempt.sample
        yield f"Sample {number}{', accepted' if accepted else ''}", proposal_told(sample)


def _check_told(check: CheckJudged) -> str:
    objected = "rejected" if check.hard else "objected, without gating"
    told = "passed" if check.passed else objected
    if check.verifier or check.elapsed_s >= SLOW_S:
        told += f" in {text.span(check.elapsed_s)}"
    if check.score is not None:
        told += f", score {check.score:.6g}"
    told += "".join(f"; {reason}" for reason in check.reasons)
    measured = " | ".join(map(text.compact, check.observables))
    return f"{told}; measured {measured}" if measured else told


def job_told(job: JobRow) -> str:
    """Tell what became of a job."""
    told = [text.plain_word(job.outcome)]
    if job.values is not None:
        told.append(text.compact(job.values))
    if job.started_at:
        told.append(f"ran {text.span(job.ended_at - job.started_at)} on {job.host}")
    if job.charged_node_h:
        told.append(f"charged {text.hours(job.charged_node_h)} node-hours")
    if job.attempt > 1:
        told.append(f"launch {job.attempt} of this candidate")
    if job.rerun:
        results = "result" if job.rerun == 1 else "results"
        told.append(f"with changed settings, after {job.rerun} rejected {results}")
    if job.adopted:
        told.append("its result was found after its runner had died")
    told += [job.error] if job.error else []
    return "; ".join([*told, *job.reasons])
