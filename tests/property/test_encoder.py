import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from model.encoders.base import Encoder, FrozenEncoder
from model.encoders.kinds import build_encoder
from model.rounds import Domain, checked_contexts
from tests.support.builders import small_config
from tests.support.strategies import FINITE, repeatable

CPU = torch.device("cpu")
KINDS: dict[str, tuple[int, ...]] = {
    "identity": (4,),
    "scaled": (4,),
    "pca": (4,),
    "scaled-pca": (4,),
    "mlp": (4,),
    "pca-mlp": (4,),
    "conv": (1, 2, 2),
    "strided-conv": (1, 2, 2),
}
contexts_of_four = hnp.arrays(np.float32, (3, 4), elements=FINITE)


def prepared(kind: str, contexts: Tensor) -> Encoder:
    torch.manual_seed(0)
    encoder = build_encoder(
        small_config(encoder=kind, context_shape=KINDS[kind], component_count=2)
    )
    encoder.prepare(contexts, contexts[:0], contexts)
    return encoder


@pytest.mark.parametrize("kind", KINDS)
@repeatable()
@given(contexts=contexts_of_four, spread=st.sampled_from([1e-3, 1.0, 1e3]))
def test_no_finite_context_gives_nan_when_served(kind, contexts, spread):
    shape = KINDS[kind]
    seen = spread * torch.randn(20, *shape, generator=torch.Generator().manual_seed(1))
    frozen = FrozenEncoder.of(prepared(kind, seen).eval(), CPU)
    for domain in Domain:
        latents = frozen.on_host(checked_contexts(contexts.reshape(3, *shape), shape), domain)
        assert np.isfinite(latents).all()
        assert (np.linalg.norm(latents, axis=1) <= 1 + 1e-5).all()


@pytest.mark.parametrize("kind", KINDS)
@repeatable()
@given(contexts=contexts_of_four)
def test_no_finite_context_gives_nan_when_fitted_and_trained_on(kind, contexts):
    batch = torch.from_numpy(contexts.reshape(3, *KINDS[kind]))
    encoder = prepared(kind, batch).train()
    latents = encoder(batch, Domain.SOURCE)
    assert torch.isfinite(latents).all()
    assert all(torch.isfinite(value).all() for value in encoder.state_dict().values())
