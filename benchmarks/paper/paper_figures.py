"""The paper's own figures: target accuracy, mean and standard deviation, and accuracy by class."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the paper's tables."""

    mean: float
    std: float
    per_class: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {"mean": self.mean, "std": self.std, "per_class": list(self.per_class) or None}


# Where LinUCB is missing the paper ran out of memory.
ZERO_SHOT: Mapping[str, Mapping[str, Figure]] = {
    "digit": {
        "linucb": Figure(
            0.3808,
            0.02,
            (0.3667, 0.4045, 0.5102, 0.3811, 0.3157, 0.3445, 0.4229, 0.4595, 0.3489, 0.2449),
        ),
        "linucb-p": Figure(
            0.3060,
            0.02,
            (0.3645, 0.6398, 0.3151, 0.2709, 0.2258, 0.1995, 0.1752, 0.3786, 0.1273, 0.2992),
        ),
        "nlinucb": Figure(
            0.3816,
            0.04,
            (0.3781, 0.3228, 0.3569, 0.3381, 0.3663, 0.4312, 0.4766, 0.4004, 0.4034, 0.3613),
        ),
        "nlinucb-p": Figure(
            0.2706,
            0.02,
            (0.8588, 0.2224, 0.3880, 0.3029, 0.2978, 0.0000, 0.1869, 0.2243, 0.2148, 0.0000),
        ),
        "daband": Figure(
            0.6002,
            0.02,
            (0.6891, 0.6662, 0.6188, 0.5703, 0.6008, 0.5534, 0.6010, 0.5709, 0.6266, 0.5023),
        ),
    },
    "visda17": {
        "linucb-p": Figure(0.1145, 0.06),
        "nlinucb": Figure(0.1001, 0.02),
        "nlinucb-p": Figure(0.0932, 0.01),
        "daband": Figure(0.4644, 0.03),
    },
    "s2rda49": {
        "linucb-p": Figure(0.1039, 0.02),
        "nlinucb": Figure(0.1108, 0.02),
        "nlinucb-p": Figure(0.1115, 0.01),
        "daband": Figure(0.3923, 0.03),
    },
}

ABLATION: Mapping[str, Mapping[str, Figure]] = {
    "digit": {
        "w/o R&P&D": Figure(0.3816, 0.04),
        "w/o R&P": Figure(0.5676, 0.02),
        "w/o R&D": Figure(0.3793, 0.02),
        "w/o P&D": Figure(0.3544, 0.01),
        "w/o R": Figure(0.5682, 0.01),
        "w/o P": Figure(0.5768, 0.01),
        "w/o D": Figure(0.3649, 0.02),
        "full": Figure(0.6002, 0.02),
    },
    "visda17": {
        "w/o R&P&D": Figure(0.1001, 0.02),
        "w/o R&P": Figure(0.4088, 0.03),
        "w/o R&D": Figure(0.1010, 0.02),
        "w/o P&D": Figure(0.0936, 0.01),
        "w/o R": Figure(0.4096, 0.01),
        "w/o P": Figure(0.4304, 0.01),
        "w/o D": Figure(0.1098, 0.01),
        "full": Figure(0.4644, 0.03),
    },
    "s2rda49": {
        "w/o R&P&D": Figure(0.1108, 0.02),
        "w/o R&P": Figure(0.3691, 0.02),
        "w/o R&D": Figure(0.0918, 0.01),
        "w/o P&D": Figure(0.1032, 0.01),
        "w/o R": Figure(0.3694, 0.03),
        "w/o P": Figure(0.3719, 0.02),
        "w/o D": Figure(0.1121, 0.02),
        "full": Figure(0.3923, 0.03),
    },
}
