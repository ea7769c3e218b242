"""The value function of one gradient step,

    L = L_RS + w_R·L_err + w_P·L_reg + λ·L_div (+ w_C·consistency),

minimised by the encoder and the head, and, in L_div, maximised by the encoder against the
discriminator through gradient reversal. It is made of tensor operations of fixed shape alone, so
that a GPU can record it once and replay it.

Shapes: n rounds or contexts, T towers (1 for most encoders), M models. Every tower learns by itself.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from model import losses
from model.config import BanditConfig, Objective
from model.networks import Networks
from model.rounds import Domain
from model.shares import best_arm_odds

# The tensors of one step by name; a part that an experiment does not have yet has no names.
# `source.*` and `target.*` (contexts, arms, rewards) are rounds, `unlabeled` are target contexts,
# `student_view` and `teacher_view` two random views of the same target contexts; `shares` (T,) says
# how far a tower takes part in the alignment, and `strength` (T,) is its λ.
Inputs = Mapping[str, Tensor]


def step_terms(networks: Networks, inputs: Inputs, config: BanditConfig) -> dict[str, Tensor]:
    """The weighted loss terms of one step."""
    terms: dict[str, Tensor] = {}
    z_target = _target_latents(networks, inputs)
    for domain in Domain:
        if f"{domain}.contexts" not in inputs:
            continue
        z = networks.encoder(inputs[f"{domain}.contexts"], domain)
        predicted = _predicted(networks, z, inputs, config)
        best = predicted[:0, :, 0]
        if config.prediction_weight and z_target is not None:
            best = _predicted(networks, z_target, inputs, config).amax(2)
        for name, value in _supervised(predicted, best, domain, inputs, config).items():
            terms[name] = terms[name] + value if name in terms else value
        if domain is Domain.SOURCE and z_target is not None and config.divergence_weight:
            terms["divergence"] = _divergence(networks, z, z_target, predicted, inputs)
    if z_target is not None and "teacher_view" in inputs:
        consistency = _consistency(networks, z_target, inputs, config)
        terms["consistency"] = inputs["consistency"] * consistency
    return terms


def _target_latents(networks: Networks, inputs: Inputs) -> Tensor | None:
    """Latents of unlabeled target contexts: of the student's view of them where there is one."""
    for name in ("student_view", "unlabeled"):
        if name in inputs:
            latents: Tensor = networks.encoder(inputs[name], Domain.TARGET)
            return latents
    return None


def _supervised(
    predicted: Tensor, best: Tensor, domain: Domain, inputs: Inputs, config: BanditConfig
) -> dict[str, Tensor]:
    """L_RS, R and P on rounds of a domain; `predicted` (n, T, M), `best` (m, T) of the target."""
    rewards = inputs[f"{domain}.rewards"][:, None].expand(predicted.shape[:2])
    arms = inputs[f"{domain}.arms"][:, None, None].expand(*predicted.shape[:2], 1)
    chosen = predicted.gather(2, arms)[:, :, 0]  # (n, T)
    terms = {"reward": _reward_loss(chosen, rewards, config).mean()}
    # R and P guard an encoder that is being aligned. Where D does not hold against it, P alone
    # would push target contexts away from everything that pays.
    shares = inputs["shares"]
    if weight := config.regression_weight:
        error = shares * losses.regression_error(chosen, rewards)
        terms["regression"] = weight * error.mean()
    if weight := config.prediction_weight:
        paid = shares * losses.predicted_reward(best, chosen, rewards)
        terms["prediction"] = weight * paid.mean()
    return terms


def _predicted(networks: Networks, z: Tensor, inputs: Inputs, config: BanditConfig) -> Tensor:
    """Expected rewards (n, T, M): the head's, or the frozen θ's for the paper's objective."""
    if config.objective is Objective.PAPER:
        return (z @ inputs["theta"].T)[:, None]
    return networks.head.predicted(z)


def _reward_loss(chosen: Tensor, rewards: Tensor, config: BanditConfig) -> Tensor:
    if config.objective is Objective.PAPER:
        return losses.squared_error(chosen, rewards)
    return losses.bandit_likelihood(chosen, rewards)


def _divergence(
    networks: Networks, z_source: Tensor, z_target: Tensor, predicted: Tensor, inputs: Inputs
) -> Tensor:
    weights = torch.ones_like(z_source[:, 0])
    if "share_ratio" in inputs:
        weights = best_arm_odds(predicted.detach().mean(dim=1)) @ inputs["share_ratio"]
    strength = inputs["strength"].repeat_interleave(z_source.shape[1] // len(inputs["strength"]))
    reversed_ = losses.reverse_gradient(torch.cat([z_source, z_target]), strength)
    logits = networks.discriminator.logits(reversed_)
    divergence = losses.divergence(logits[: len(z_source)], logits[len(z_source) :], weights)
    # A mean over the aligned towers; the other terms are means over all.
    return divergence * (logits.shape[1] / len(inputs["strength"]))


def _consistency(
    networks: Networks, z_view: Tensor, inputs: Inputs, config: BanditConfig
) -> Tensor:
    if networks.teacher is None:
        raise ValueError("consistency: the networks have no teacher")
    steady = networks.teacher.logits(inputs["teacher_view"], Domain.TARGET)
    logits = networks.head.logits(z_view)
    if logits.shape[2] == 1:
        return losses.squared_error(logits.sigmoid(), steady.sigmoid()).mean()
    # The towers teach together: what they agree on is right more often than what one believes.
    taught = steady.softmax(dim=2).mean(dim=1)
    if "share_factor" in inputs:
        taught = taught * inputs["share_factor"]
        taught = taught / taught.sum(dim=1, keepdim=True)
    return losses.consistency(logits, taught, config.confidence_floor)
