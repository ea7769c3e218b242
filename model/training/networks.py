"""The trained networks: encoder, reward head, discriminator and optional slow copies."""

import copy
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import BanditConfig
from model.encoders.base import TINY, Encoder
from model.encoders.ensemble import MemberLinear, aligned_count, by_member, member_norms
from model.encoders.first_weights import first_weights
from model.encoders.kinds import build_encoder
from model.rounds import Domain, Integers
from model.training.discriminator import Discriminator
from model.training.target_head import Distilled, HeadOutput, is_distilled

# Contexts encoded at once: on a CPU, activations between two layers should stay in its caches.
_FEWEST, _MOST, _NUMBERS, _ON_GPU = 128, 1024, 1 << 17, 8192
_SHARPNESS = 10.0  # latents have norm 1: logits need room to become confident


class Head(nn.Module):
    """The reward head: one linear layer for each member on latents (n, d); M = K arms, or 1 if joint."""

    def __init__(
        self, latent_size: int, model_count: int, exclusive: bool, members: int = 1
    ) -> None:
        super().__init__()
        self.members = members
        self.linear = MemberLinear(members, latent_size // members, model_count)
        self.is_exclusive = exclusive and model_count > 1

    def logits(self, latents: Tensor) -> Tensor:
        """Unbounded scores of the arms by each member, (n, T, M)."""
        scores: Tensor = _SHARPNESS * self.linear(by_member(latents, self.members))
        return scores

    def predicted(self, latents: Tensor) -> Tensor:
        """Expected rewards by each member, (n, T, M)."""
        return self.expected(self.logits(latents))

    def expected(self, logits: Tensor) -> Tensor:
        """Expected rewards of logits: a softmax if exactly one arm pays, else sigmoids."""
        return logits.softmax(dim=2) if self.is_exclusive else logits.sigmoid()

    def forward(self, latents: Tensor) -> Tensor:
        """Expected rewards, the mean over the members by their weights in the latents, (n, M)."""
        weights = functional.normalize(member_norms(latents, self.members), p=1.0, dim=1, eps=TINY)
        return (weights[:, None] @ self.predicted(latents))[:, 0]


class SlowCopy(nn.Module):
    """A copy of encoder and head that is updated by averaging only."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.head = copy.deepcopy(head)
        self.requires_grad_(False)

    @torch.no_grad()
    def logits(self, contexts: Tensor, domain: Domain) -> Tensor:
        """The head's logits (n, T, M) of contexts, with batch statistics as for the student."""
        self.train()
        return self.head.logits(self.encoder(contexts, domain))

    @torch.no_grad()
    def follow(self, encoder: Encoder, head: Head, weight: Tensor) -> None:
        """slow ← slow + weight·(fast − slow) of all tensors, batch statistics included."""
        slow = [*self.encoder.state_dict().values(), *self.head.state_dict().values()]
        fast = [*encoder.state_dict().values(), *head.state_dict().values()]
        moves = torch._foreach_sub(fast, slow)
        torch._foreach_mul_(moves, weight)
        torch._foreach_add_(slow, moves)


class Networks(nn.Module):
    """One encoder version with its head, discriminator and slow copies of encoder and head.

    `teacher` is the mean teacher of training; `average`, which moves much slower, is served.
    """

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        self.encoder: Encoder = build_encoder(config)
        size = self.encoder.latent_size
        if self.encoder.is_learned:
            members = self.encoder.members
            self.head = Head(size, config.model_count, config.exclusive_rewards, members)
            self._independent = members - (aligned_count(members) if config.is_aligned else 0)
            self.discriminator = Discriminator(size, members=members)
        self.distilled = (
            Distilled(size, config.model_count) if is_distilled(self.encoder, config) else None
        )
        self.teacher = self._slow_copy(config.consistency_weight > 0)
        self.average = self._slow_copy(config.average_decay > 0)

    @classmethod
    def initial(cls, config: BanditConfig, seed: int, device: torch.device) -> Self:
        """The networks before any training, a function of configuration and seed."""
        with first_weights(seed, "initial networks"):
            return cls(config).to(device).eval()

    @property
    def served(self) -> Encoder:
        """φ for folding and serving: the slowest copy's, because it errs least."""
        slowest = self.average or self.teacher
        return slowest.encoder if slowest else self.encoder

    @property
    def served_head(self) -> Head:
        """The head of the served encoder."""
        slowest = self.average or self.teacher
        return slowest.head if slowest else self.head

    @property
    def encoders(self) -> list[Encoder]:
        """φ and its slow copies."""
        return [self.encoder, *(slow.encoder for slow in (self.teacher, self.average) if slow)]

    @torch.no_grad()
    def head_output(self, latents: Tensor) -> HeadOutput:
        """The served head's output for served latents."""
        head = self.served_head
        scores = head.logits(latents).mean(dim=1)
        return HeadOutput(latents, head(latents), scores, is_linear=head.members == 1)

    @torch.no_grad()
    def independent_choices(self, latents: Tensor) -> Integers:
        """The arms (n, T′) that the members without alignment choose for served latents (n, d)."""
        if not self.encoder.is_learned:
            return np.zeros((len(latents), 0), dtype=np.int64)
        logits = self.served_head.logits(latents)[:, : self._independent]
        return np.asarray(logits.argmax(dim=2).cpu().numpy())

    def _slow_copy(self, is_wanted: bool) -> SlowCopy | None:
        is_possible = self.encoder.is_learned
        return SlowCopy(self.encoder, self.head) if is_wanted and is_possible else None

    def clone(self) -> Self:
        return copy.deepcopy(self)

    @torch.no_grad()
    def encode(self, contexts: Tensor, domain: Domain) -> Tensor:
        """Served latents in evaluation mode, in chunks of fixed size for reproducible results."""
        if not len(contexts):
            return contexts.new_zeros(0, self.served.latent_size)
        fitting = max(_FEWEST, min(_MOST, _NUMBERS // contexts[0].numel()))
        chunk = _ON_GPU if contexts.device.type == "cuda" else fitting
        return torch.cat([self.served(part, domain) for part in contexts.split(chunk)])
