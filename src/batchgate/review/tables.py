"""A run as pandas tables, one row an attempt, a verdict, a decision, a job or a result.

Columns are typed: times are UTC, numbers and words may be missing, and a campaign's own names
carry a prefix (`candidate.x1`, `value.y`), so that none of them can clash with ours. Needs the
extra `tables`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign import CampaignSpec, Variable
from ..errors import ConfigError
from .record import RunRecord
from .rows import JobRow

if TYPE_CHECKING:
    import pandas

_TEXT, _WHOLE, _NUMBER, _TRUTH, _INSTANT = "string", "Int64", "Float64", "boolean", "instant"

Column = tuple[str, str, Callable[[Any], Any]]
"""Name of a column, its type, and what it shows of a row."""

NAMES = ("attempts", "verdicts", "decisions", "jobs", "results")
"""Every table."""


def _plain(name: str, kind: str, *, field: str = "") -> Column:
    return name, kind, lambda row: getattr(row, field or name)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dict)


def _lines(name: str) -> Column:
    return name, _TEXT, lambda row: "\n".join(getattr(row, name))


_ATTEMPTS: tuple[Column, ...] = (
    _plain("decision", _WHOLE),
    _plain("attempt", _WHOLE, field="number"),
    _plain("started_at", _INSTANT),
    _plain("ended_at", _INSTANT),
    _plain("outcome", _TEXT),
    _lines("rejected_by"),
    _lines("reasons"),
    ("proposal", _TEXT, lambda row: _json(row.proposal)),
    ("candidates", _WHOLE, lambda row: len(row.candidates)),
    _plain("model", _TEXT),
    _plain("response_id", _TEXT),
    _plain("temperature", _NUMBER),
    _plain("input_tokens", _WHOLE),
    _plain("output_tokens", _WHOLE),
    _plain("samples_valid", _WHOLE),
    _plain("samples_total", _WHOLE),
    _plain("answer_s", _NUMBER),
    _plain("trace_id", _TEXT),
    _plain("span_id", _TEXT),
)
_VERDICTS: tuple[Column, ...] = (
    _plain("decision", _WHOLE),
    _plain("attempt", _WHOLE),
    _plain("check", _TEXT),
    _plain("passed", _TRUTH),
    _plain("hard", _TRUTH),
    _plain("verifier", _TRUTH),
    _lines("reasons"),
    _lines("refused"),
    ("observables", _TEXT, lambda row: _json(row.observables)),
    _plain("elapsed_s", _NUMBER),
    _plain("node_h", _NUMBER),
)
_DECISIONS: tuple[Column, ...] = (
    _plain("decision", _WHOLE, field="number"),
    _plain("source", _TEXT),
    _plain("opened_at", _INSTANT),
    _plain("closed_at", _INSTANT),
    _plain("disposition", _TEXT),
    _plain("cause", _TEXT),
    ("attempts", _WHOLE, lambda row: len(row.attempts)),
    ("candidates", _WHOLE, lambda row: len(row.candidates)),
    _plain("batch", _WHOLE),
)
_JOBS: tuple[Column, ...] = (
    _plain("job", _TEXT),
    _plain("decision", _WHOLE),
    _plain("source", _TEXT),
    _plain("fingerprint", _TEXT),
    _plain("level", _TEXT),
    _plain("attempt", _WHOLE),
    _plain("outcome", _TEXT),
    _plain("planned_at", _INSTANT),
    _plain("started_at", _INSTANT),
    _plain("ended_at", _INSTANT),
    _plain("settled_at", _INSTANT),
    _plain("state", _TEXT),
    _plain("end", _TEXT),
    _plain("exit_code", _WHOLE),
    _plain("signal", _WHOLE),
    _plain("error", _TEXT),
    _plain("host", _TEXT),
    _plain("reserved_node_h", _NUMBER),
    _plain("charged_node_h", _NUMBER),
    _plain("walltime_s", _NUMBER),
    _plain("adopted", _TRUTH),
    _plain("again", _TRUTH),
)
_RESULTS: tuple[Column, ...] = (
    _plain("job", _TEXT),
    _plain("decision", _WHOLE),
    _plain("source", _TEXT),
    _plain("fingerprint", _TEXT),
    _plain("settled_at", _INSTANT),
    ("valid", _TRUTH, lambda row: row.values is not None),
    _plain("feasible", _TRUTH),
    _lines("reasons"),
    _plain("charged_node_h", _NUMBER),
)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a run: `Tables(open_run(run_dir)).attempts()`.

    Each call makes a new data frame.

    Attributes:
        record: The run.

    Raises:
        ConfigError: pandas is not installed.
    """

    record: RunRecord

    def attempts(self) -> pandas.DataFrame:
        """One row an attempt: when, what was proposed, what became of it."""
        return _frame(_ATTEMPTS, self.record.attempts)

    def verdicts(self) -> pandas.DataFrame:
        """One row for each check that judged an attempt."""
        return _frame(_VERDICTS, (check for a in self.record.attempts for check in a.checks))

    def decisions(self) -> pandas.DataFrame:
        """One row a decision: who was asked, how it ended."""
        return _frame(_DECISIONS, self.record.decisions)

    def jobs(self) -> pandas.DataFrame:
        """One row a launch, with its candidate, its end and its charge."""
        return _frame((*_JOBS, *_variables(self.record.spec)), self.record.jobs)

    def results(self) -> pandas.DataFrame:
        """One row for each result that was judged, with its candidate and its values."""
        judged = [job for job in self.record.jobs if job.values is not None or job.reasons]
        names = sorted({name for job in judged for name in job.values or {}})
        columns = (*_RESULTS, *_variables(self.record.spec), *map(_value, names))
        return _frame(columns, judged)

    def named(self) -> Mapping[str, pandas.DataFrame]:
        """Return every table by its name."""
        return {name: getattr(self, name)() for name in NAMES}


def write_csv(record: RunRecord, folder: Path) -> list[Path]:
    """Write every table to `folder/NAME.csv`, and return the files.

    Raises:
        ConfigError: pandas is not installed, or the folder cannot be written.
    """
    return _write(record, folder, "csv", lambda table, path: table.to_csv(path, index=False))


def write_parquet(record: RunRecord, folder: Path) -> list[Path]:
    """Write every table to `folder/NAME.parquet`, and return the files.

    Raises:
        ConfigError: pandas or pyarrow is not installed, or the folder cannot be written.
    """
    return _write(record, folder, "parquet", lambda table, path: table.to_parquet(path))


def _write(
    record: RunRecord, folder: Path, ending: str, put: Callable[[Any, Path], Any]
) -> list[Path]:
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in Tables(record).named().items():
            paths.append(folder / f"{name}.{ending}")
            put(table, paths[-1])
    except ImportError as exc:
        raise ConfigError(f"{exc}: pip install 'batchgate[tables]'") from exc
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be written: {exc.strerror}") from exc
    return paths


def _variables(spec: CampaignSpec | None) -> tuple[Column, ...]:
    variables = spec.variables if spec else {}
    return tuple(_variable(name, variable) for name, variable in variables.items())


def _variable(name: str, variable: Variable) -> Column:
    def shown(row: JobRow) -> Any:
        return row.candidate.get(name)

    return f"candidate.{name}", _kind(variable), shown


def _kind(variable: Variable) -> str:
    if variable.values is None:
        return _WHOLE if variable.integer else _NUMBER
    kinds = {type(value) for value in variable.values}
    if kinds == {bool}:
        return _TRUTH
    if kinds == {int}:
        return _WHOLE
    return _NUMBER if kinds <= {int, float} else _TEXT


def _value(name: str) -> Column:
    return f"value.{name}", _NUMBER, lambda row: (row.values or {}).get(name)


def _frame(columns: Iterable[Column], rows: Iterable[Any]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as exc:
        raise ConfigError("tables need pandas: pip install 'batchgate[tables]'") from exc
    found = list(rows)
    return pandas.DataFrame(
        {name: _series(pandas, kind, [show(row) for row in found]) for name, kind, show in columns}
    )


def _series(pandas: Any, kind: str, values: list[Any]) -> Any:
    if kind == _INSTANT:
        # 0.0 stands for "never" in the ledger. Whole microseconds: a double holds no more of today.
        whole = [round(at * 1e6) if at else None for at in values]
        return pandas.Series(pandas.array(whole, dtype="Int64")).astype("datetime64[us, UTC]")
    if kind == _TEXT:
        values = [None if value is None else str(value) for value in values]
    return pandas.Series(pandas.array(values, dtype=kind))
