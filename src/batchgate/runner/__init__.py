"""The runner: decide, admit, launch, learn, until a stop rule holds or its time is over.

`Runner` is the loop; `Recorder` the one way in for events; `Model` who proposes; `Tenure` how
long this life may run.
"""

from .model import Model
from .recorder import Observer, Recorder
from .run import Runner
from .stopping import Stop, stop_rule
from .tenure import Tenure

__all__ = ["Model", "Observer", "Recorder", "Runner", "Stop", "Tenure", "stop_rule"]
