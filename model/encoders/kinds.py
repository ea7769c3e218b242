"""The kinds of encoder that a configuration can name."""

from collections.abc import Callable

from model.config import ENSEMBLE, BanditConfig
from model.encoders.base import Encoder
from model.encoders.images import Conv, StridedConv
from model.encoders.scaled import Scaled, ScaledProjection
from model.encoders.vectors import MLP, Ensemble, Identity, ProjectedMLP, Projection

# Every kind of encoder is registered here.
ENCODERS: dict[str, Callable[[BanditConfig], Encoder]] = {
    "identity": Identity,
    "scaled": Scaled,
    "pca": Projection,
    "scaled-pca": ScaledProjection,
    "mlp": MLP,
    "conv": Conv,
    "strided-conv": StridedConv,
    "pca-mlp": ProjectedMLP,
    ENSEMBLE: Ensemble,
}


def build_encoder(config: BanditConfig) -> Encoder:
    """The encoder that the configuration names, freshly initialised from torch's generator."""
    return ENCODERS[kind_of(config)](config)


def kind_of(config: BanditConfig) -> str:
    """The kind that the configuration names, or the default for its context shape."""
    kind = config.encoder
    if kind == "auto":
        kind = "conv" if len(config.context_shape) == 3 else "mlp"
    if kind not in ENCODERS:
        raise ValueError(f"encoder: must be one of auto, {', '.join(ENCODERS)}")
    return kind
