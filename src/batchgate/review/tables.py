"""A run as tables, one row an attempt, a verdict, a decision, a job or a result.

They are pandas data frames or Arrow tables. Columns are typed: times are UTC, numbers and words
may be missing, and a campaign's own names carry a prefix (`candidate.x1`, `value.y`), so that none
of them can clash with ours. Needs the extra `tables`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign import CampaignSpec, Variable
from ..collector import collector_at_rest
from ..errors import ConfigError
from .database import Database
from .recorded import recorded_spec
from .views import COLUMNS, make_tables

if TYPE_CHECKING:
    import pandas
    import pyarrow

_COLUMNS = (
    *COLUMNS,
    *("adopted", "batch", "error", "exit_code", "host", "level", "model", "response_id", "signal"),
    *("samples_total", "samples_valid", "source", "span_id", "temperature", "trace_id"),
    "walltime_s",
)


def _time(seconds: str) -> str:
    # 0.0 stands for "never" in the ledger. Whole microseconds: a double holds no more of today.
    return f"make_timestamp((nullif({seconds}, 0) * 1e6)::BIGINT)"


def _lines(words: str) -> str:
    return f"array_to_string(coalesce({words}, []), chr(10))"


_ATTEMPTS = f"""
WITH
    told AS (
        SELECT
            decision, attempt, min("at") / 1e9 AS started_at, max("at") / 1e9 AS ended_at,
            any_value(others) AS others, any_value(model) AS model,
            any_value(response_id) AS response_id, any_value(temperature) AS temperature,
            any_value(samples_valid) AS samples_valid, any_value(samples_total) AS samples_total,
            any_value(elapsed_s) FILTER (type <> 'check_judged') AS answer_s,
            any_value(trace_id) AS trace_id, any_value(span_id) AS span_id
        FROM event
        WHERE type IN ('attempt_started', 'proposal_made', 'proposal_rejected', 'check_judged')
            OR (type = 'failure_recorded' AND NOT again)
        GROUP BY ALL
    ),
    row AS (
        SELECT *, if(taken > 1, others -> (taken - 2), proposal) AS judged
        FROM attempt JOIN told USING (decision, attempt)
    )
SELECT
    decision, attempt, {_time("started_at")} AS started_at, {_time("ended_at")} AS ended_at,
    outcome, {_lines("rejected_by")} AS rejected_by, {_lines("reasons")} AS reasons,
    coalesce(proposal, 'null')::VARCHAR AS proposal,
    coalesce(len(list_filter(
        json_extract(judged, '$.candidates[*]'), lambda one: json_type(one) = 'OBJECT'
    )), 0)::BIGINT AS candidates,
    coalesce(model, '') AS model, coalesce(response_id, '') AS response_id, temperature,
    input_tokens::BIGINT AS input_tokens, output_tokens::BIGINT AS output_tokens,
    coalesce(samples_valid, 0) AS samples_valid, coalesce(samples_total, 0) AS samples_total,
    coalesce(answer_s, 0.0) AS answer_s, coalesce(trace_id, '') AS trace_id,
    coalesce(span_id, '') AS span_id
FROM row ORDER BY place, attempt
"""

_VERDICTS = f"""
SELECT
    decision, attempt, "check", passed, hard, verifier, {_lines("reasons")} AS reasons,
    {_lines("refused")} AS refused, observables::VARCHAR AS observables, elapsed_s, node_h
FROM event JOIN (SELECT decision, seq AS place FROM decision) USING (decision)
WHERE type = 'check_judged' ORDER BY place, attempt, seq
"""

_DECISIONS = f"""
SELECT
    decision, opened.source, {_time('opened."at" / 1e9')} AS opened_at,
    {_time('made."at" / 1e9')} AS closed_at, made.disposition, coalesce(made.cause, '') AS cause,
    (SELECT count(*) FROM attempt WHERE attempt.decision = opened.decision) AS attempts,
    coalesce(json_array_length(made.candidates), 0)::BIGINT AS candidates, made.batch
FROM (FROM event WHERE type = 'decision_opened') AS opened
LEFT JOIN (FROM event WHERE type = 'decision_made') AS made USING (decision)
ORDER BY opened.seq
"""

_JOBS = f"""
SELECT
    job, job.decision, job.source, job.fingerprint, plan.level, plan.attempt, outcome,
    {_time("planned_at")} AS planned_at, {_time("job.started_at")} AS started_at,
    {_time("job.ended_at")} AS ended_at, {_time("settled_at")} AS settled_at,
    coalesce(job.state, 'active') AS state, job."end", ended.exit_code, ended.signal,
    coalesce(ended.error, '') AS error, coalesce(ended.host, '') AS host, job.reserved_node_h,
    job.charged_node_h, plan.walltime_s, coalesce(ended.adopted, FALSE) AS adopted,
    coalesce(ended.again, FALSE) AS again, job.candidate::VARCHAR AS candidate
FROM job
JOIN (FROM event WHERE type = 'job_planned') AS plan USING (job)
LEFT JOIN (FROM event WHERE type = 'job_ended') AS ended USING (job)
ORDER BY job.seq
"""

_RESULTS = f"""
SELECT
    job, job.decision, source, job.fingerprint, {_time("settled_at")} AS settled_at,
    "values" IS NOT NULL AS valid, feasible, {_lines("bad.reasons")} AS reasons, charged_node_h,
    candidate::VARCHAR AS candidate, "values"::VARCHAR AS value
FROM job LEFT JOIN (SELECT job, reasons FROM event WHERE type = 'result_rejected') AS bad USING (job)
WHERE "values" IS NOT NULL OR invalid ORDER BY job.seq
"""

_QUERIES = {
    "attempts": _ATTEMPTS,
    "verdicts": _VERDICTS,
    "decisions": _DECISIONS,
    "jobs": _JOBS,
    "results": _RESULTS,
}


def open_run(run_dir: str | Path) -> Run:
    """Read a run's tables. A run that is still going on can be read too.

    It is read once, here: what the run writes later is not in the tables. No hash is looked at
    (`batchgate verify` does that).

    Args:
        run_dir: The run's directory, which holds its `ledger` folder.

    Raises:
        LedgerError: There is no ledger in it, it is damaged, or its campaign is none that this
            version knows.
        ConfigError: pyarrow is not installed.
    """
    with _extra():
        import pyarrow  # noqa: F401 - before the ledger is read, which may take a while
    with Database.of(run_dir, *_COLUMNS) as run, collector_at_rest():
        make_tables(run)
        spec = recorded_spec(run, run_dir)
        return Run({name: _typed(run.arrow(query), spec) for name, query in _QUERIES.items()})


@dataclass(frozen=True, slots=True)
class Run:
    """The tables of a run. Make it with `open_run`.

    Each call makes a new data frame, with the types of pandas that have a place for what is
    missing (`Int64`, `string`). It raises a `ConfigError` when pandas is not installed.

    Attributes:
        arrow: The same tables for pyarrow, by the names of the methods: `run.arrow["jobs"]`.
    """

    arrow: Mapping[str, pyarrow.Table]

    def attempts(self) -> pandas.DataFrame:
        """One row an attempt: when, what was proposed, what became of it."""
        return _frame(self.arrow["attempts"])

    def verdicts(self) -> pandas.DataFrame:
        """One row for each check that judged an attempt."""
        return _frame(self.arrow["verdicts"])

    def decisions(self) -> pandas.DataFrame:
        """One row a decision: who was asked, how it ended."""
        return _frame(self.arrow["decisions"])

    def jobs(self) -> pandas.DataFrame:
        """One row a launch, with its candidate, its end and its charge."""
        return _frame(self.arrow["jobs"])

    def results(self) -> pandas.DataFrame:
        """One row for each result that was judged, with its candidate and its values."""
        return _frame(self.arrow["results"])

    def named(self) -> Mapping[str, pandas.DataFrame]:
        """Return every data frame by its name."""
        return {name: _frame(table) for name, table in self.arrow.items()}


def write_csv(run: Run, folder: Path) -> list[Path]:
    """Write every table to `folder/NAME.csv`, and return the files.

    Raises:
        ConfigError: pandas is not installed, or the folder cannot be written.
    """
    return _write(run, folder, "csv", lambda table, path: table.to_csv(path, index=False))


def write_parquet(run: Run, folder: Path) -> list[Path]:
    """Write every table to `folder/NAME.parquet`, and return the files.

    Raises:
        ConfigError: pandas is not installed, or the folder cannot be written.
    """
    return _write(run, folder, "parquet", lambda table, path: table.to_parquet(path))


def _write(run: Run, folder: Path, ending: str, put: Callable[[Any, Path], Any]) -> list[Path]:
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in run.named().items():
            paths.append(folder / f"{name}.{ending}")
            put(table, paths[-1])
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be written: {exc.strerror}") from exc
    return paths


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ImportError as exc:
        raise ConfigError(f"tables need {exc.name}: pip install 'batchgate[tables]'") from exc


def _typed(table: pyarrow.Table, spec: CampaignSpec | None) -> pyarrow.Table:
    """Give times their zone, and what is JSON in the ledger its columns or its canonical form."""
    import pyarrow

    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        match name:
            case "candidate":
                columns |= _variables(column.to_pylist(), spec)
            case "value":
                columns |= _values(column.to_pylist())
            case "proposal" | "observables":
                canonical = {text: _canonical(text) for text in column.unique().to_pylist()}
                columns[name] = pyarrow.array(
                    [canonical[text] for text in column.to_pylist()], "string"
                )
            case _ if pyarrow.types.is_timestamp(column.type):
                columns[name] = column.cast(pyarrow.timestamp("us", "UTC"))
            case _:
                columns[name] = column
    return pyarrow.table(columns)


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def _variables(candidates: list[str], spec: CampaignSpec | None) -> dict[str, pyarrow.Array]:
    variables = spec.variables if spec else {}
    found = [json.loads(text) for text in candidates]
    return {
        f"candidate.{name}": _array([one.get(name) for one in found], _kind(variable))
        for name, variable in variables.items()
    }


def _values(values: list[str | None]) -> dict[str, pyarrow.Array]:
    found = [json.loads(text) if text else {} for text in values]
    names = sorted({name for one in found for name in one})
    return {f"value.{name}": _array([one.get(name) for one in found], "double") for name in names}


def _kind(variable: Variable) -> str:
    if variable.values is None:
        return "int64" if variable.integer else "double"
    kinds = {type(value) for value in variable.values}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64"
    return "double" if kinds <= {int, float} else "string"


def _array(values: list[Any], kind: str) -> pyarrow.Array:
    import pyarrow

    convert = {"string": str, "double": float}.get(kind)
    if convert:
        values = [None if value is None else convert(value) for value in values]
    return pyarrow.array(values, kind)


def _frame(table: pyarrow.Table) -> pandas.DataFrame:
    with _extra():
        import pandas
    import pyarrow

    kinds = {
        pyarrow.bool_(): pandas.BooleanDtype(),
        pyarrow.float64(): pandas.Float64Dtype(),
        pyarrow.int64(): pandas.Int64Dtype(),
        pyarrow.string(): pandas.StringDtype(),
    }
    return table.to_pandas(types_mapper=kinds.get)
