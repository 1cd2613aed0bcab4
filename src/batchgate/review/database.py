"""A run's ledger as a table that answers SQL, for questions that are asked of runs of any length.

At 10^5 attempts a ledger has a million lines. DuckDB reads them on all cores and counts them in
seconds, where events as Python objects take minutes. No line is validated and no hash is looked
at (`batchgate verify` does that); only a line that is missing is noticed.
"""

from __future__ import annotations

import functools
import glob
import json
import os
import tempfile
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duckdb

from ..errors import LedgerCorruptError, LedgerError
from ..events import EVENTS, FORMAT
from ..ledger import segments_of

if TYPE_CHECKING:
    import pyarrow

THREADS = 4
"""Cores that are used at most: a login node is shared."""

_KINDS = tuple(event.model_fields["type"].default for event in EVENTS)
_KIND = f"ENUM{_KINDS}"
"""A number for each kind of event: every query asks for some, and words take ten times as long."""

_WORDS: Mapping[Any, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


class Database:
    """The table `event` of a run: a row a line. Make it with `Database.of`, as a context manager.

    Its columns are named as the fields of the events are, with `seq`, the place in the run, `at`,
    nanoseconds since the epoch, and `type` always among them. A column is NULL for events
    without such a field; a field that an older version did not write has its default. Fields that
    are neither words, numbers, truths nor lists of words are JSON as it stands in the ledger.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Use a connection that has the table."""
        self._connection = connection

    @classmethod
    @contextmanager
    def of(cls, run_dir: str | Path, *columns: str) -> Iterator[Self]:
        """Read columns of a run's ledger. A run that is still going on can be read too.

        Args:
            run_dir: The run's directory.
            columns: Names of fields of events.

        Raises:
            LedgerError: There is no ledger, it cannot be read, or lines are missing.
            LedgerCorruptError: A line is no event.
        """
        segments = segments_of(run_dir)
        wanted = {"seq": "BIGINT", "at": "BIGINT", "type": _KIND, "format": "BIGINT"}
        wanted |= {name: schema()[name] for name in columns}
        with duckdb.connect(config=_config()) as connection:
            _load(connection, segments, wanted)
            _prove_whole(connection, segments)
            _fill(connection, columns)
            yield cls(connection)

    def rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a query gives, in which `$name` stands for a parameter."""
        return self._execute(query, parameters).fetchall()

    def row(self, query: str, **parameters: Any) -> tuple[Any, ...]:
        """Return the one row that a query gives."""
        (found,) = self.rows(query, **parameters)
        return found

    def make(self, table: str, query: str, **parameters: Any) -> None:
        """Keep what a query gives as a table."""
        self._execute(f"CREATE TABLE {table} AS {query}", parameters)

    def arrow(self, query: str) -> pyarrow.Table:
        """Return what a query gives as an Arrow table. Needs pyarrow."""
        with _countable():
            return self._connection.cursor().sql(query).to_arrow_table()

    def _execute(self, query: str, parameters: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
        with _countable():
            # A cursor of its own, so that threads can ask at once.
            return self._connection.cursor().execute(query, parameters or None)


@contextmanager
def _countable() -> Iterator[None]:
    """Tell what a query could not make of the ledger."""
    try:
        yield
    except duckdb.Error as exc:
        told = str(exc).partition("\n")[0]
        raise LedgerError(f"the ledger holds what cannot be counted: {told}") from exc


@functools.cache
def schema() -> Mapping[str, str]:
    """SQL type of each column, by the annotations of the events' fields."""
    found: dict[str, set[str]] = {}
    for event in EVENTS:
        for name, field in event.model_fields.items():
            found.setdefault(name, set()).add(_sql_type(field.annotation))
    return {name: kinds.pop() if len(kinds) == 1 else "JSON" for name, kinds in found.items()}


def _sql_type(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "VARCHAR"
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return "VARCHAR"
    if origin in {types.UnionType, typing.Union}:
        return _sql_type(next(part for part in parts if part is not types.NoneType))
    return "VARCHAR[]" if origin is tuple and parts[0] is str else "JSON"


def _config() -> dict[str, Any]:
    return {
        "threads": min(THREADS, len(os.sched_getaffinity(0))),
        # Nothing is fetched from anywhere, and nothing is left in the working directory.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": "",
        # `seq` tells the order; keeping that of the lines costs a quarter of the reading.
        "preserve_insertion_order": False,
    }


def _load(
    connection: duckdb.DuckDBPyConnection, segments: list[Path], columns: Mapping[str, str]
) -> None:
    if not segments:
        names = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE event ({names})")
        return
    if not any(map(_is_torn, segments)):
        # What DuckDB 2.0 cannot read is told, or mended, below.
        with suppress(duckdb.Error):
            _read(connection, segments, columns)
            return
    with tempfile.TemporaryDirectory(prefix="batchgate-") as folder:
        mended = [_mended(path, Path(folder)) for path in segments]
        try:
            _read(connection, mended, columns)
        except duckdb.Error as exc:
            _prove_events(mended, segments)
            told = str(exc).partition("\n")[0].replace(folder, str(segments[0].parent))
            raise LedgerError(f"the ledger cannot be read: {told}") from exc


def _is_torn(path: Path) -> bool:
    """Whether a segment ends in half a line, which does not count even where it is whole JSON."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            return file.read()[-1:] not in {b"", b"\n"}
    except OSError as exc:
        raise LedgerError(f"{path} cannot be read: {exc}") from exc


def _read(
    connection: duckdb.DuckDBPyConnection, paths: Collection[Path], columns: Mapping[str, str]
) -> None:
    kinds = ", ".join(f"'{name}': $${kind}$$" for name, kind in columns.items())
    # A path is a pattern to DuckDB, and a folder named `seed=3` a column, unless it is told.
    connection.execute(
        f"CREATE TABLE event AS SELECT * FROM read_json(?, format = 'newline_delimited', "
        f"hive_partitioning = false, columns = {{{kinds}}})",
        [[glob.escape(str(path.absolute())) for path in paths]],
    )


def _mended(path: Path, folder: Path) -> Path:
    """Copy a segment without half a line at its end, and with `?` for lone surrogates."""
    copy = folder / path.name
    try:
        with path.open("rb") as lines, copy.open("wb") as out:
            out.writelines(_clean(line) for line in lines if line.endswith(b"\n"))
    except OSError as exc:
        raise LedgerError(f"{path} cannot be read: {exc}") from exc
    return copy


def _clean(line: bytes) -> bytes:
    if b"\\ud" not in line:
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return line
    return text.encode(errors="replace") + b"\n"


def _prove_events(copies: Iterable[Path], segments: Iterable[Path]) -> None:
    """Say which line of the copies of segments is no event, if one is not."""
    for copy, path in zip(copies, segments, strict=True):
        with copy.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not _is_event(line):
                    message = "the line is no event that this version knows"
                    raise LedgerCorruptError(message, str(path), number)


def _is_event(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return True  # or half of one, which does not count
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("type") in _KINDS


def _prove_whole(connection: duckdb.DuckDBPyConnection, segments: Collection[Path]) -> None:
    found = connection.execute(
        "SELECT count(*), count(type), count(seq), max(seq) + 1 FROM event"
    ).fetchone()
    lines, events, told, due = found or (0, 0, 0, 0)
    if events != lines:
        _prove_events(segments, segments)
    if told != lines or lines not in {0, due}:
        raise LedgerError(
            f"the ledger has {lines} lines where {due} are due; `batchgate verify` says where"
        )


def _fill(connection: duckdb.DuckDBPyConnection, columns: Iterable[str]) -> None:
    """Give fields that an older version did not write their defaults."""
    (oldest,) = connection.execute("SELECT min(format) FROM event").fetchone() or (None,)
    if oldest is None or oldest >= FORMAT:
        return
    filled = [
        f'"{name}" = coalesce("{name}", {told})' for name in columns if (told := _default(name))
    ]
    if filled:
        with _countable():
            connection.execute(f"UPDATE event SET {', '.join(filled)}")


def _default(name: str) -> str:
    """Return a field's default in SQL, event by event; empty without one."""
    cases = []
    for event in EVENTS:
        field = event.model_fields.get(name)
        if field and not field.is_required() and field.default is not None:
            kind = event.model_fields["type"].default
            cases.append(f"WHEN '{kind}' THEN {_literal(field.default, schema()[name])}")
    return f"CASE type {' '.join(cases)} END" if cases else ""


def _literal(value: Any, sql_type: str) -> str:
    if isinstance(value, tuple) and sql_type != "JSON":
        return f"[]::{sql_type}"
    text = json.dumps(value) if sql_type == "JSON" else str(value)
    return f"'{text}'::{sql_type}"
