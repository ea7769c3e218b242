"""All that gradients move: encoder, reward head, discriminator, and the teacher where there is one."""

import copy
from typing import Self

import torch
from torch import Tensor, nn

from model.config import BanditConfig
from model.discriminator import Discriminator
from model.encoder import Encoder, build_encoder
from model.randomness import derived_seed
from model.rounds import Domain

_SHARPNESS = 10.0  # latents have norm 1: logits need room to become confident


class Head(nn.Module):
    """Predicts rewards from latents: (n, d) → (n, M), M = K arms or 1 for a joint model."""

    def __init__(self, latent_size: int, model_count: int, exclusive: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(latent_size, model_count)
        self.is_exclusive = exclusive and model_count > 1

    def logits(self, latents: Tensor) -> Tensor:
        """Unbounded scores of the arms."""
        scores: Tensor = _SHARPNESS * self.linear(latents)
        return scores

    def forward(self, latents: Tensor) -> Tensor:
        """Expected rewards: a softmax where exactly one arm pays, else a sigmoid an arm."""
        logits = self.logits(latents)
        return logits.softmax(dim=1) if self.is_exclusive else logits.sigmoid()


class Teacher(nn.Module):
    """A slow copy of encoder and head, moved by averaging alone."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.head = copy.deepcopy(head)
        self.requires_grad_(False)

    @torch.no_grad()
    def logits(self, contexts: Tensor, domain: Domain) -> Tensor:
        """The head's scores of contexts (n, *shape), with running batch statistics."""
        self.eval()
        return self.head.logits(self.encoder(contexts, domain))

    @torch.no_grad()
    def follow(self, encoder: Encoder, head: Head, decay: float) -> None:
        """teacher ← decay·teacher + (1 − decay)·student, batch statistics included."""
        for slow, fast in ((self.encoder, encoder), (self.head, head)):
            values = fast.state_dict()
            for name, value in slow.state_dict().items():
                value.lerp_(values[name], 1.0 - decay)


class Networks(nn.Module):
    """One encoder version with its companions; `teacher` is a slow copy of encoder and head."""

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        self.encoder: Encoder = build_encoder(config)
        size = self.encoder.latent_size
        if self.encoder.is_learned:
            self.head = Head(size, config.model_count, config.exclusive_rewards)
            self.discriminator = Discriminator(size)
        if self.encoder.is_learned and config.consistency_weight > 0:
            self.teacher: Teacher | None = Teacher(self.encoder, self.head)
        else:
            self.teacher = None

    @classmethod
    def initial(cls, config: BanditConfig, seed: int, device: torch.device) -> Self:
        """The networks before any training, a function of configuration and seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, "initial networks"))
            return cls(config).to(device).eval()

    def clone(self) -> Self:
        """An independent copy."""
        return copy.deepcopy(self)

    @torch.no_grad()
    def encode(self, contexts: Tensor, domain: Domain, chunk: int = 1024) -> Tensor:
        """Latents in evaluation mode, in chunks of fixed size so that the result is reproducible."""
        if not len(contexts):
            return contexts.new_zeros(0, self.encoder.latent_size)
        return torch.cat([self.encoder(part, domain) for part in contexts.split(chunk)])
