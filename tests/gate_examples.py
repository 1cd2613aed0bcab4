"""Two graphs with gates: a draft that is revised, and a plan that is made, carried out, reviewed.

Run as a program with a folder, a budget, the visit in which to kill itself (0 for none) and maybe a
person's answer, it plays the draft's graph on a SQLite file, or goes on with it.
"""

import asyncio
import json
import operator
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from batchgate import Verdict
from batchgate.gate import GateState, JsonLines, QualityGateReview
from batchgate.langgraph import add_quality_gate


class Article(GateState):
    draft: str
    ended: str
    runs: Annotated[list[str], operator.add]


async def draft(state):
    return {"draft": "a b", "runs": ["draft"]}


async def revise(state):
    told = state["gate_results"]["review"]["feedback"]
    return {"draft": f"{state['draft']} {told}", "runs": ["revise"]}


async def publish(state):
    return {"ended": "published", "runs": ["publish"]}


async def park(state):
    return {"ended": "parked", "runs": ["park"]}


async def ask_a_person(state):
    last = state["gate_results"]["review"]
    review = QualityGateReview(
        artifact=state["draft"],
        criteria=["at least five words"],
        auto_score=last["score"],
        reasons=last["reasons"],
        gate="review",
    )
    return {"ended": interrupt(review.to_payload()), "runs": ["ask"]}


async def long_enough(state):
    words = len(state["draft"].split())
    return Verdict(words >= 5, words / 5, [f"{words} words, must be at least 5"], "more")


def article(*, evaluator=long_enough, max_attempts, escalate=park, on_event=None):
    """Draft, gate, then revise, publish or escalate."""
    graph = StateGraph(Article)
    for node in (draft, revise, publish):
        graph.add_node(node.__name__, node)
    graph.add_node("escalate", escalate)
    add_quality_gate(
        graph,
        "review",
        evaluator,
        on_pass="publish",
        on_fail="revise",
        on_escalate="escalate",
        max_attempts=max_attempts,
        on_event=on_event,
    )
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "review")
    graph.add_edge("revise", "review")
    graph.add_edge("publish", END)
    graph.add_edge("escalate", END)
    return graph


class Project(GateState):
    notes: str
    plan: list[str]
    code: str
    findings: list[str]
    runs: Annotated[list[str], operator.add]


async def research(state):
    return {"notes": "bounds are 0 and 1", "runs": ["research"]}


async def plan(state):
    return {"plan": [*state.get("plan", []), "a step"], "runs": ["plan"]}


async def implement(state):
    if "code" in state:
        return {"runs": []}
    return {"code": "x = 0.5", "runs": ["implement"]}


async def review(state):
    return {"findings": [*state.get("findings", []), "looked at"], "runs": ["review"]}


def project(*, on_event=None):
    """Research, plan, implement, review, with a gate after the plan and after the review."""
    graph = StateGraph(Project)
    for node in (research, plan, implement, review, park):
        graph.add_node(node.__name__, node)
    for gate, evaluator, on_pass, on_fail in (
        ("plan_gate", lambda state: len(state["plan"]) >= 2, "implement", "plan"),
        ("review_gate", lambda state: len(state["findings"]) >= 2, END, "implement"),
    ):
        add_quality_gate(
            graph,
            gate,
            evaluator,
            on_pass=on_pass,
            on_fail=on_fail,
            on_escalate="park",
            on_event=on_event,
        )
    graph.add_edge(START, "research")
    graph.add_edge("research", "plan")
    graph.add_edge("plan", "plan_gate")
    graph.add_edge("implement", "review")
    graph.add_edge("review", "review_gate")
    graph.add_edge("park", END)
    return graph


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


async def main(folder: Path, attempts: int, kill_at: int, answer: str | None = None) -> None:
    visits = 0

    async def evaluate(state):
        nonlocal visits
        visits += 1
        if visits == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return await long_enough(state)

    graph = article(
        evaluator=evaluate,
        max_attempts=attempts,
        escalate=ask_a_person,
        on_event=JsonLines(folder / "gates.jsonl"),
    )
    async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.sqlite")) as saver:
        app = graph.compile(checkpointer=saver)
        known = await saver.aget_tuple(thread("t")) is not None
        given: Any = Command(resume=answer) if answer else None if known else {"draft": ""}
        state = await app.ainvoke(given, thread("t"), durability="sync")
    asked = [one.value for one in state.pop("__interrupt__", [])]
    sys.stdout.write(json.dumps({"state": state, "asked": asked}))


if __name__ == "__main__":
    _, folder, attempts, kill_at, *answer = sys.argv
    asyncio.run(main(Path(folder), int(attempts), int(kill_at), *answer))
