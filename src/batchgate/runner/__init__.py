"""The runner: decide, admit, launch, learn, until a stop rule holds.

`Runner` is the loop; `Recorder` the one way in for events; `Model` who proposes.
"""

from .model import Model
from .recorder import Observer, Recorder
from .run import Runner
from .stopping import Stop, stop_rule

__all__ = ["Model", "Observer", "Recorder", "Runner", "Stop", "stop_rule"]
