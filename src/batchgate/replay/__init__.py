"""A record decided once more: by its own campaign, or by another one.

`replay` holds a run's record against the campaign's checks and the runner's rules, and tells where
they disagree. `decide_against` tells what other checks would have launched. Both run the code
that the runner runs. No model is asked, no verifier and no job is started: what those said is
taken from the record.
"""

from .against import Added, Against, Stopped, decide_against
from .mismatch import Mismatch
from .run import RunReplay, replay

__all__ = ["Added", "Against", "Mismatch", "RunReplay", "Stopped", "decide_against", "replay"]
