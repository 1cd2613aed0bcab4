"""What proposes when the model does not: a quasi-random design and a Gaussian process.

`propose` is the fallback as the runner calls it. The generators stand behind gest-api's
`Generator`, so any other generator of that interface serves as well. They need the extra
`surrogate`, whose libraries are imported when one is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .extra import load_extra
from .fallback import propose

if TYPE_CHECKING:
    from .gaussian_process import GaussianProcess
    from .generator import Sobol

__all__ = ["GaussianProcess", "Sobol", "propose"]


def __getattr__(name: str) -> Any:
    homes = {"GaussianProcess": ".gaussian_process", "Sobol": ".generator"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load_extra(homes[name]), name)


def __dir__() -> list[str]:
    return __all__
