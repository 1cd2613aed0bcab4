"""Reading a ledger: every segment in order, every line proven to follow the one before.

A crash can leave half a line at the end of a segment, and a reader stops before it. Whatever
else is wrong with the bytes is a `LedgerCorruptError` with file and line. Only whole lines cut
off the very end leave no mark in the files themselves; the `gate.json` of each job is there to
find those (`check_run`). Reading takes no lock and never changes anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import LedgerCorruptError, LedgerError
from ..events import FORMAT, Entry
from .line import decode, follows, stored_hash, why

_SEGMENT = re.compile(r"(\d{4,})\.jsonl")
_SEQ = re.compile(rb'\{"seq":(\d{1,18}),')
_CHANGED = "the line was changed: its hash does not fit"


def segment_name(number: int) -> str:
    """File name of a segment; `""` for number 0, which stands before the first."""
    return f"{number:04d}.jsonl" if number else ""


def segment_numbers(folder: Path) -> list[int]:
    """Numbers of the segments in a ledger's folder, lowest first."""
    names = (_SEGMENT.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(name[1]) for name in names if name)


def folder_of(run_dir: str | Path) -> Path:
    """Return the folder of a run's ledger.

    Raises:
        LedgerError: The directory holds no run.
    """
    folder = Path(run_dir) / "ledger"
    if not folder.is_dir():
        raise LedgerError(f"{run_dir} holds no run: there is no folder {folder}")
    return folder


def segments_of(run_dir: str | Path) -> list[Path]:
    """Return the files of a run's ledger, oldest first. Their lines are not looked at.

    Raises:
        LedgerError: There is no ledger, it cannot be read, or it is of a newer format.
    """
    folder = folder_of(run_dir)
    try:
        paths = [folder / segment_name(number) for number in segment_numbers(folder)]
        for path in paths:
            with path.open("rb") as file:
                opened = _parse_opening(file.readline())
            if opened is not None:  # else the line is damaged, as who reads it will find
                _check_format(opened, path)
    except OSError as exc:
        raise LedgerError(f"the ledger in {folder} cannot be read: {exc}") from exc
    return paths


class Reader:
    """Reads a ledger from its start and goes on where it stopped.

    Iterate to get the entries that are complete by now; iterate again for those written since.
    Memory does not grow with the ledger.

    Attributes:
        folder: The ledger's folder.
        seq: Place that the next line will have; the count of the lines read.
        segment: Number of the segment that holds the last line read, 0 before the first.
        line: 1-based number of that line in its segment.
        run: Name of the run, `""` before the first line.
    """

    def __init__(self, folder: Path, *, verify: bool = True, last: int | None = None) -> None:
        """Prepare to read; nothing is opened yet.

        Args:
            folder: The ledger's folder.
            verify: Whether to hash every line. Without it the first line of each segment, the
                order of all lines and the links between segments are still checked.
            last: Number of the last segment to read, by default all.
        """
        self.folder = folder
        self.seq = 0
        self.segment = 0
        self.line = 0
        self.run = ""
        self._verify = verify
        self._last = last
        self._offset = 0
        self._hash = b""

    @property
    def hash(self) -> str:
        """Hash of the last line read, in hex; `""` before the first."""
        return self._hash.decode()

    @property
    def where(self) -> str:
        """The last line read, as `0001.jsonl:17`."""
        return f"{segment_name(self.segment)}:{self.line}"

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries not read yet.

        Raises:
            LedgerCorruptError: A complete line is changed, missing or in the wrong place.
            LedgerError: A segment cannot be opened, or is of a newer format.
        """
        for line in self.lines():
            try:
                entry = decode(line)
            except (ValueError, RecursionError) as exc:
                message = f"the line is no event that this version knows: {why(exc)}"
                raise self._corrupt(self.line, message) from exc
            yield entry

    def lines(self) -> Iterator[bytes]:
        """Yield the complete lines not read yet, checked but not parsed. Raises as iterating does."""
        try:
            for number in self._numbers():
                if number > self.segment:
                    self.segment, self.line, self._offset = number, 0, 0
                yield from self._unread()
        except OSError as exc:
            raise LedgerError(f"the ledger in {self.folder} cannot be read: {exc}") from exc

    def _numbers(self) -> list[int]:
        # Listed before anything is read: a segment that has a successor by now is complete.
        numbers = segment_numbers(self.folder)
        for due, number in enumerate(numbers, start=1):
            if number != due:
                path = self.folder / segment_name(due)
                raise LedgerCorruptError("the segment is missing", str(path), 1)
        return numbers[max(self.segment - 1, 0) : self._last]

    def _unread(self) -> Iterator[bytes]:
        with self._path(self.segment).open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                if self.line == 0:
                    self._check_opening(line)
                if not line.startswith(b'{"seq":%d,"at":"' % self.seq):
                    raise self._corrupt(self.line + 1, _misplaced(line, due=self.seq))
                if self._verify and not follows(line, self._hash):
                    raise self._corrupt(self.line + 1, _CHANGED)
                self.seq += 1
                self.line += 1
                self._offset += len(line)
                self._hash = stored_hash(line)
                yield line

    def _check_opening(self, line: bytes) -> None:
        opened = _parse_opening(line)
        if opened is None:
            raise self._corrupt(1, "the first line of a segment is no segment_opened")
        previous = str(opened.get("previous_hash")).encode("ascii", "replace")
        # First of all the line by itself, so that a change in it is not taken for one elsewhere.
        if not follows(line, previous):
            raise self._corrupt(1, _CHANGED)
        _check_format(opened, self._path(self.segment))
        place = (opened.get("segment"), opened.get("previous"))
        if place != (self.segment, segment_name(self.segment - 1)):
            says = f"the file says that it is segment {place[0]} and follows {place[1]!r}"
            raise self._corrupt(1, f"{says}: segments were renamed")
        if previous != self._hash:
            raise self._broken_link(previous)
        run = str(opened.get("run"))
        if run != (self.run or run):
            raise self._corrupt(1, f"the segment is of run {run!r}, not {self.run!r}")
        self.run = run

    def _broken_link(self, previous: bytes) -> LedgerCorruptError:
        """Say why the segment does not go on from the last line before it."""
        found = previous == b""
        for path, number, line in self._earlier_lines():
            if found:
                return LedgerCorruptError(
                    f"lines were added here after {segment_name(self.segment)} was opened, by a "
                    "writer that had lost its lease; move them elsewhere to go on without them",
                    str(path),
                    number,
                )
            found = stored_hash(line) == previous
        return self._corrupt(
            1, "goes on from a line that no segment before holds: lines were cut off or changed"
        )

    def _earlier_lines(self) -> Iterator[tuple[Path, int, bytes]]:
        for path in map(self._path, range(1, self.segment)):
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.endswith(b"\n"):
                        yield path, number, line

    def _path(self, number: int) -> Path:
        return self.folder / segment_name(number)

    def _corrupt(self, line: int, message: str) -> LedgerCorruptError:
        return LedgerCorruptError(message, str(self._path(self.segment)), line)


def read(folder: Path, *, verify: bool = True) -> Iterator[Entry]:
    """Read a whole ledger, oldest entry first, up to a torn tail.

    Args:
        folder: The ledger's folder.
        verify: Whether to hash every line; see `Reader`.

    Raises:
        LedgerCorruptError: A complete line is changed, missing or in the wrong place.
        LedgerError: A segment cannot be opened, or is of a newer format.
    """
    return iter(Reader(folder, verify=verify))


def _parse_opening(line: bytes) -> dict[str, Any] | None:
    # Not `decode`: a newer format may have fields that this version's model forbids, and must
    # be told from a damaged line. The first line keeps its form and hash rule in every format.
    try:
        opened = json.loads(line)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(opened, dict) and opened.get("type") == "segment_opened"
    return opened if ours else None


def _check_format(opened: dict[str, Any], path: Path) -> None:
    version = opened.get("format")
    if not isinstance(version, int) or not 1 <= version <= FORMAT:
        raise LedgerError(
            f"{path}: the ledger has format {version}, and this version reads up to {FORMAT}; "
            "use the batchgate that wrote it, or a newer one"
        )


def _misplaced(line: bytes, *, due: int) -> str:
    found = _SEQ.match(line)
    if not found:
        return "this is no line of a ledger: half a line, or it was changed"
    seq = int(found[1])
    cause = "lines are missing" if seq > due else "a line stands here twice"
    return f"seq is {seq} where {due} is due: {cause}, or lines were swapped or changed"
