"""The record of one decision, its verification and its replay."""

from .record import Record, record_of
from .replaying import Mismatch, Replay

__all__ = ["Mismatch", "Record", "Replay", "record_of"]
