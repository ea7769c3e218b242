"""The value function of one gradient step,

    L = L_RS + w_R·L_err + w_P·L_reg + λ·L_div (+ w_C·consistency),

minimised by the encoder and the head, and, in L_div, maximised by the encoder against the
discriminator through gradient reversal. It is made of tensor operations of fixed shape alone, so
that a GPU can record it once and replay it.

Shapes: n rounds or contexts, T members (1 for most encoders), M models. Every member learns by itself.
"""

from collections.abc import Mapping

from torch import Tensor

from model.config import BanditConfig, Objective
from model.rounds import Domain
from model.training import losses
from model.training.networks import Networks

# The tensors of one step by name; a part that an experiment does not have yet has no names.
# `source.*` and `target.*` (contexts, arms, rewards) are rounds, `unlabeled` are target contexts,
# `student_view` and `teacher_view` two random views of the same target contexts; `shares` (T,) says
# how far a member takes part in the alignment, and `strength` (T,) is its λ.
Inputs = Mapping[str, Tensor]


def step_terms(networks: Networks, inputs: Inputs, config: BanditConfig) -> dict[str, Tensor]:
    """The weighted loss terms of one step."""
    z, counts = _joined_latents(networks, inputs)
    logits = networks.head.logits(z)
    predicted, at_target = _predicted(networks, z, logits, inputs, config).split(counts)
    best = at_target.amax(2) if config.prediction_weight and counts[1] else at_target[:0, :, 0]
    terms: dict[str, Tensor] = {}
    if counts[0]:
        terms |= _supervised(predicted, best, Domain.SOURCE, inputs, config)
    if all(counts) and config.divergence_weight:
        terms["divergence"] = _divergence(networks, z, counts, inputs)
    if "target.contexts" in inputs:
        rounds = networks.encoder(inputs["target.contexts"], Domain.TARGET)
        known = _predicted(networks, rounds, networks.head.logits(rounds), inputs, config)
        for name, value in _supervised(known, best, Domain.TARGET, inputs, config).items():
            terms[name] = terms[name] + value if name in terms else value
    if counts[1] and "teacher_view" in inputs:
        consistency = _consistency(networks, logits.split(counts)[1], inputs, config)
        terms["consistency"] = inputs["consistency"] * consistency
    return terms


def _joined_latents(networks: Networks, inputs: Inputs) -> tuple[Tensor, list[int]]:
    """Latents of source rounds, then of unlabeled target contexts, and how many there are of each.

    Of the student's view of the target contexts where there is one.
    """
    source = inputs.get("source.contexts")
    target = inputs.get("student_view", inputs.get("unlabeled"))
    if source is not None and target is not None:
        return networks.encoder.together(source, target), [len(source), len(target)]
    if source is not None:
        return networks.encoder(source, Domain.SOURCE), [len(source), 0]
    if target is not None:
        return networks.encoder(target, Domain.TARGET), [0, len(target)]
    return inputs["shares"].new_zeros(0, networks.encoder.latent_size), [0, 0]


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


def _predicted(
    networks: Networks, z: Tensor, logits: Tensor, inputs: Inputs, config: BanditConfig
) -> Tensor:
    """Expected rewards (n, T, M): the head's, or the frozen θ's for the paper's objective."""
    if config.objective is Objective.PAPER:
        return (z @ inputs["theta"].T)[:, None]
    return networks.head.expected(logits)


def _reward_loss(chosen: Tensor, rewards: Tensor, config: BanditConfig) -> Tensor:
    if config.objective is Objective.PAPER:
        return losses.squared_error(chosen, rewards)
    return losses.bandit_likelihood(chosen, rewards)


def _divergence(networks: Networks, z: Tensor, counts: list[int], inputs: Inputs) -> Tensor:
    """Of latents `z` of source rounds and of target contexts."""
    strength = inputs["strength"].repeat_interleave(z.shape[1] // len(inputs["strength"]))
    logits = networks.discriminator.logits(losses.reverse_gradient(z, strength))
    source, target = logits.split(counts)
    divergence = losses.divergence(source, target)
    # A mean over the aligned members; the other terms are means over all.
    return divergence * (logits.shape[1] / len(inputs["strength"]))


def _consistency(
    networks: Networks, logits: Tensor, inputs: Inputs, config: BanditConfig
) -> Tensor:
    """Of the head's `logits` (n, T, M) of one view against the teacher's of the other.

    Like D it is for the aligned members, as a mean over all; the others are what rewards alone made of
    them, so that there is something to compare with.
    """
    if networks.teacher is None:
        raise ValueError("consistency: the networks have no teacher")
    steady = networks.teacher.logits(inputs["teacher_view"], Domain.TARGET)
    aligned = networks.discriminator.aligned
    share = aligned / logits.shape[1]
    logits = logits[:, -aligned:]
    if logits.shape[2] == 1:
        taught = steady[:, -aligned:].sigmoid()
        return share * losses.squared_error(logits.sigmoid(), taught).mean()
    # All members teach together: what they agree on is right more often than what one believes.
    taught = steady.softmax(dim=2).mean(dim=1)
    if "arm_prior_factor" in inputs:
        taught = taught * inputs["arm_prior_factor"]
        taught = taught / taught.sum(dim=1, keepdim=True)
    return share * losses.consistency(logits, taught, config.confidence_floor)
