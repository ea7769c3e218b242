"""A and b under a new encoder, from the remembered rounds."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from model.bandit.linucb import LinUCB
from model.config import BanditConfig, HoldoutRule
from model.memory import RoundBatch
from model.rounds import Booleans, Domain, Doubles, Integers
from model.training.networks import Networks


@dataclass(frozen=True, slots=True)
class EncodedRounds:
    """Rounds with their latents (n, d) under one encoder."""

    rounds: RoundBatch
    latents: torch.Tensor

    @classmethod
    def under(cls, networks: Networks, rounds: RoundBatch) -> Self:
        """Each round under its own domain's normalisation."""
        return cls(rounds, encode_rounds(networks, rounds))


def encode_rounds(networks: Networks, rounds: RoundBatch) -> torch.Tensor:
    """Latents of rounds (n, d), each under its own domain's normalisation."""
    latents = rounds.contexts.new_zeros(len(rounds), networks.encoder.latent_size)
    for domain in Domain:
        rows = torch.from_numpy(rounds.is_target == (domain is Domain.TARGET)).to(latents.device)
        latents[rows] = networks.encode(rounds.contexts[rows], domain)
    return latents


def empty_statistics(networks: Networks, config: BanditConfig) -> LinUCB:
    """(A, b) before the first round."""
    size = networks.encoder.latent_size
    statistics = LinUCB(config.model_count, size, config.ridge)
    if networks.distilled is not None:
        statistics.target_shift = np.zeros((config.model_count, size))
    return statistics


def rebuilt_statistics(
    encoded: EncodedRounds, networks: Networks, seen: int, config: BanditConfig
) -> LinUCB:
    """(A, b) of encoded rounds, which are the newest of `seen` rounds."""
    latents, rounds = encoded.latents, encoded.rounds
    statistics = _summed(latents, rounds.arms, rounds.rewards, config)
    if networks.distilled is not None:
        models, rewards = (
            torch.from_numpy(column).to(latents.device) for column in (rounds.arms, rounds.rewards)
        )
        shift = networks.distilled.shift(latents, models, rewards, seen, config.ridge)
        statistics.target_shift = shift.cpu().numpy()
    return statistics


def held_out_statistics(encoded: EncodedRounds, config: BanditConfig) -> LinUCB:
    """(A, b) of the held-out rounds alone."""
    return _sums_of(encoded.latents, encoded.rounds, encoded.rounds.is_held_out, config)


def trained_statistics(latents: torch.Tensor, rounds: RoundBatch, config: BanditConfig) -> LinUCB:
    """(A, b) whose θ judges an encoder: without the held-out rounds where contexts are held out."""
    if config.holdout is HoldoutRule.ROUNDS:
        return _summed(latents, rounds.arms, rounds.rewards, config)
    return _sums_of(latents, rounds, ~rounds.is_held_out, config)


def _sums_of(
    latents: torch.Tensor, rounds: RoundBatch, chosen: Booleans, config: BanditConfig
) -> LinUCB:
    rows = torch.from_numpy(chosen).to(latents.device)
    return _summed(latents[rows], rounds.arms[chosen], rounds.rewards[chosen], config)


def _summed(
    latents: torch.Tensor, arms: Integers, rewards: Doubles, config: BanditConfig
) -> LinUCB:
    """(A, b) of rounds with latents (n, d), arms and rewards (n,), without the target's shift."""
    if latents.device.type == "cpu":
        return LinUCB.rebuilt(latents.numpy(), arms, rewards, config.model_count, config.ridge)
    wide = latents.double()
    models = torch.from_numpy(arms).to(wide.device)
    weights = torch.nn.functional.one_hot(models, config.model_count).double()  # (n, M)
    gram = torch.stack([(wide * column[:, None]).T @ wide for column in weights.T])
    paid = torch.from_numpy(rewards).to(wide.device)
    b = (weights * paid[:, None]).T @ wide
    counts = np.bincount(arms, minlength=config.model_count)
    return LinUCB.of_sums(gram.cpu().numpy(), b.cpu().numpy(), counts, config.ridge)
