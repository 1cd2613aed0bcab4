"""Errors raised by batchgate, one root, one file.

::

  * BatchGateError
    x ConfigError              the campaign, the settings or the call is wrong: mend it, start again
    x LedgerError
      + LedgerCorruptError     a line that is not the last one cannot be read, or was changed
      + LedgerHeldError        another runner holds the run's directory
      + LedgerWriteError       the disk refused an event: nothing more is launched
      + LedgerMismatchError    the run's directory belongs to another campaign
    x ProducerError            the model did not answer: a failure, never a rejection
      + ServerError            the model server could not be started or died
    x FlowError                the execution side is down: nothing was judged
    x VerifierError            a verifier's task failed: nothing was judged
    x SurrogateError           nothing valid can be proposed

A proposal that a check refuses is a `Verdict`, not an error (`batchgate.decision`).
"""

from __future__ import annotations


class BatchGateError(Exception):
    """Base of every error that batchgate raises on purpose."""


class ConfigError(BatchGateError):
    """A campaign, a setting or a call was put together wrongly. Mend it and start again."""


class LedgerError(BatchGateError):
    """Base for errors about the event ledger."""


class LedgerCorruptError(LedgerError):
    """A complete line of the ledger cannot be read, is missing, or was changed.

    Attributes:
        path: Segment that holds the line.
        line_number: 1-based line that failed.
    """

    def __init__(self, message: str, path: str, line_number: int) -> None:
        super().__init__(message, path, line_number)
        self.path = path
        self.line_number = line_number

    def __str__(self) -> str:
        return f"{self.path}:{self.line_number}: {self.args[0]}"


class LedgerHeldError(LedgerError):
    """Another live runner holds the run's directory. Wait for it, or end it first."""


class LedgerWriteError(LedgerError):
    """An event could not be written, so nothing more may be launched. Free the disk, run again."""


class LedgerMismatchError(LedgerError):
    """The run's directory was started by another campaign. Choose another directory."""


class ProducerError(BatchGateError):
    """The model did not answer as a model does. A failure, never a rejection.

    Attributes:
        kind: One of `connection`, `status`, `timeout`, `protocol`.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class ServerError(BatchGateError):
    """The model server could not be started, or died. The message names its log."""


class FlowError(BatchGateError):
    """The execution side is down and takes no more tasks. Start the run again."""


class VerifierError(BatchGateError):
    """A verifier's task failed, so nothing is known of the proposal.

    Attributes:
        verifier: Name of the level.
        end: How its task ended, a `batchgate.job.End` value.
    """

    def __init__(self, message: str, verifier: str, end: str) -> None:
        super().__init__(message, verifier, end)
        self.verifier = verifier
        self.end = end

    def __str__(self) -> str:
        return str(self.args[0])


class SurrogateError(BatchGateError):
    """No candidate that the checks allow could be found. Widen the space or the checks."""
