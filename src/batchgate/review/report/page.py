"""The page of a report: what a reader wants to know the morning after, top to bottom.

How it ended and where to look first; what was found; what was decided, and what the surrogate
replaced; what the gate did and whether it was right; where time and node-hours went; what broke;
every attempt.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from ...collector import collector_at_rest
from .. import phrases, text
from ..figures import Summary
from ..record import RunRecord
from . import fallbacks, first, gate, parts, sections, spent
from .findings import Findings
from .html import Content, Markup, tag


def page(found: Findings) -> str:
    """Return a run's report as one HTML document that needs nothing else.

    The same entries give the same bytes. Scripts and styles are allowed by their hashes only, so
    that nothing in the record could act even if it were not escaped.
    """
    figures = found.figures
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{figures.campaign or 'Campaign'}: report of {figures.run or 'a run'}"),
        tag("style", Markup(style)),
    )
    with collector_at_rest():
        body = tag("body", _header(found), _main(found))
    document = tag("html", head, body, tag("script", Markup(script)), lang="en")
    return f"<!doctype html>\n{document}\n"


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _main(found: Findings) -> Markup:
    record, figures = found.record, found.figures
    contents: dict[str, Content] = {
        "Look here first": first.first(found.leads),
        "Results": sections.results(record, figures),
        "Decisions": sections.decisions(record, figures),
        "Fallbacks": fallbacks.fallbacks(record),
        "Checks": gate.checks(figures),
        "Report card": gate.card(found.card),
        "Verifiers and results": gate.verifiers(found),
        "Time": sections.time(record, figures),
        "Node-hours": spent.node_hours(found),
        "Failures": sections.failures(record),
        "Attempts": sections.attempts(record),
    }
    links = [tag("a", title, href=f"#{_name(title)}") for title in contents]
    return tag(
        "main",
        tag("nav", links, class_="contents", aria_label="Sections"),
        [_section(title, content) for title, content in contents.items()],
    )


def _name(title: str) -> str:
    return title.lower().replace(" ", "-")


def _section(title: str, content: Content) -> Markup:
    name = _name(title)
    return tag("section", tag("h2", title, id=name), content, aria_labelledby=name)


def _header(found: Findings) -> Markup:
    record, figures = found.record, found.figures
    return tag(
        "header",
        tag("h1", figures.title or figures.campaign or "A run that never started"),
        _ending(figures),
        [tag("p", warning, class_="warning", role="note") for warning in figures.warnings],
        _cards(found),
        _facts(record, figures),
    )


def _ending(figures: Summary) -> Markup:
    ending = figures.ending
    reason = f": {ending.reason}" if ending.reason else ""
    return tag(
        "p",
        tag("strong", phrases.ended(ending)),
        text.clipped(reason, 500),
        tag("span", f" (newest event: {text.instant(ending.at)})", class_="quiet"),
        class_=f"ending {ending.how}",
    )


def _cards(found: Findings) -> Markup:
    figures, billed = found.figures, found.hours.billed
    best, slots = figures.best, figures.slots
    ended = sum(count for word, count in figures.jobs.items() if word != "running")
    lives = "1 runner" if figures.lives == 1 else f"{figures.lives} runners, one after the other"
    cards = (
        (
            f"Best {best.objective}" if best else "Best result",
            f"{best.value:.6g}" if best else "none",
            phrases.origin(best) if best else "",
        ),
        ("Decisions", str(sum(figures.decisions.values())), text.words(figures.decisions)),
        ("Jobs ended", str(ended), text.words(figures.jobs)),
        (
            "Node-hours charged",
            text.hours(figures.node_h.charged),
            f"of {text.hours(figures.node_h.granted)} granted"
            + (f"; {text.hours(billed)} billed" if billed else ""),
        ),
        ("Slots busy", text.share(slots.busy_share), f"of the time of {slots.slots} slots"),
        ("Wall time", text.span(figures.wall_s), lives),
    )
    told = (
        tag("div", tag("dt", name), tag("dd", value), tag("dd", note, class_="quiet"))
        for name, value, note in cards
    )
    return tag("dl", told, class_="cards")


def _facts(record: RunRecord, figures: Summary) -> Markup:
    models = dict.fromkeys(attempt.model for attempt in record.attempts if attempt.model)
    facts = {
        "Run": figures.run,
        "Campaign": f"{figures.campaign} {record.state.digest[:12]}".strip(),
        "Started": text.instant(figures.started_at),
        "batchgate": record.version,
        "Seed": str(record.seed),
        "Producer": record.lives[-1].producer if record.lives else "",
        "Model": text.clipped(", ".join(models), 300),
        "Tokens": f"{figures.input_tokens:,} in, {figures.output_tokens:,} out",
        "Ledger": f"{record.events:,} events",
    }
    return parts.pairs({name: value for name, value in facts.items() if value})
