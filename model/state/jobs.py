"""Jobs and their results as messages of plain values and arrays, so that jobs can run in other processes.

A job depends on its message alone; the process that runs it does not change a bit of the result.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from model.bandit.linucb import Factors
from model.bandit.policy import PolicyVersion
from model.config import BanditConfig
from model.learner import Outcome, TrainingJob
from model.memory import COLUMNS, ContextSample, RoundBatch
from model.state.restore import load_state, taken_confidence, taken_moments
from model.state.snapshot import columns_of, confidence_arrays, network_arrays
from model.state.tensor_bytes import Arrays
from model.training.episode import TrainingSet
from model.training.networks import Networks
from model.training.optimiser import Recordings
from model.transfer.abstention import Abstention
from model.transfer.diagnostics import TransferReport
from model.transfer.gate import Verdict
from model.transfer.report import Judgement, JudgingJob
from model.transfer.verdict import Signs, TransferVerdict, Word


@dataclass(frozen=True, slots=True)
class Message:
    """Plain values (JSON) and arrays by name. The arrays may belong to the sender: do not change them."""

    header: dict[str, Any]
    arrays: Arrays


def training_message(job: TrainingJob) -> Message:
    """All inputs of an encoder update."""
    header = {
        "kind": "training",
        "episode": job.data.episode,
        "seen": job.data.seen,
        **_config_and_seed(job.config, job.seed),
    }
    arrays = network_arrays(job.networks, job.moments) | _round_arrays(job.data.rounds)
    for name, sample in (("source", job.data.source), ("target", job.data.target)):
        arrays[f"{name}.contexts"] = _array(sample.contexts)
        arrays[f"{name}.references"] = sample.references
    return Message(header, arrays | {"theta": job.theta})


def judging_message(job: JudgingJob) -> Message:
    """All inputs of a judgement."""
    names = asdict(job.version)
    header = {"kind": "judging", "version": names, **_config_and_seed(job.config, job.seed)}
    header["unpaid_arms"] = job.unpaid_arms
    arrays = network_arrays(job.networks, {}) | _round_arrays(job.held_out)
    arrays |= {"source": _array(job.source), "target": _array(job.target)}
    arrays["theta"] = job.factors.theta
    arrays["judging_theta"] = job.judging_theta
    arrays["inverse_root"] = job.factors.inverse_root
    if job.factors.own_target_theta is not None:
        arrays["target_theta"] = job.factors.own_target_theta
    return Message(header, arrays | confidence_arrays(job.confidence))


def answered(
    message: Message, device: torch.device | str, recordings: Recordings | None = None
) -> Message:
    """Run the job of a message on a device; `recordings` keeps recorded GPU steps for later jobs."""
    if message.header["kind"] == "judging":
        return Message(asdict(_judging_job(message, torch.device(device)).run()), {})
    outcome = _training_job(message, torch.device(device)).run(recordings)
    header = {
        "episode": outcome.episode,
        "losses": outcome.losses,
        "verdict": outcome.verdict.as_dict(),
    }
    return Message(header, network_arrays(outcome.networks, outcome.moments))


def outcome_of(answer: Message, job: TrainingJob) -> Outcome:
    """The outcome of a training, with networks on the device of the job's own."""
    networks, arrays = job.networks.clone(), dict(answer.arrays)
    load_state(networks, arrays)
    moments = taken_moments(networks, arrays)
    verdict = dict(answer.header["verdict"])
    verdict["reasons"] = tuple(verdict["reasons"])
    episode, losses = answer.header["episode"], answer.header["losses"]
    return Outcome(episode, networks, moments, losses, Verdict(**verdict))


def judgement_of(answer: Message) -> Judgement:
    """The judgement in an answer."""
    payload = answer.header
    verdict = TransferVerdict(
        Word(payload["verdict"]["word"]), tuple(payload["verdict"]["reasons"])
    )
    return Judgement(
        payload["encoder_version"],
        TransferReport(**payload["report"]),
        Signs(**payload["signs"]),
        verdict,
        tuple(payload["conditions"]),
        tuple(Abstention(**each) for each in payload["abstention"]),
    )


def _training_job(message: Message, device: torch.device) -> TrainingJob:
    header, arrays = message.header, dict(message.arrays)
    config, networks = _networks(header, arrays, device)
    data = TrainingSet(
        header["episode"],
        header["seen"],
        _rounds(arrays, device),
        _sample(arrays, "source", device),
        _sample(arrays, "target", device),
    )
    moments = taken_moments(networks, arrays)
    return TrainingJob(data, networks, moments, arrays["theta"], config, header["seed"])


def _judging_job(message: Message, device: torch.device) -> JudgingJob:
    header, arrays = message.header, dict(message.arrays)
    config, networks = _networks(header, arrays, device)
    return JudgingJob(
        networks=networks,
        config=config,
        factors=Factors(arrays["theta"], arrays["inverse_root"], arrays.get("target_theta")),
        judging_theta=arrays["judging_theta"],
        confidence=taken_confidence(arrays),
        version=PolicyVersion(**header["version"]),
        held_out=_rounds(arrays, device),
        source=_tensor(arrays["source"], device),
        target=_tensor(arrays["target"], device),
        unpaid_arms=tuple(header["unpaid_arms"]),
        seed=header["seed"],
    )


def _config_and_seed(config: BanditConfig, seed: int) -> dict[str, Any]:
    return {"config": json.loads(config.to_json()), "seed": seed}


def _networks(
    header: dict[str, Any], arrays: Arrays, device: torch.device
) -> tuple[BanditConfig, Networks]:
    config = BanditConfig.from_mapping(header["config"])
    networks = Networks.initial(config, header["seed"], torch.device("cpu"))
    load_state(networks, arrays)
    return config, networks.to(device)


def _round_arrays(rounds: RoundBatch) -> Arrays:
    return {"rounds.contexts": _array(rounds.contexts), **columns_of("rounds", rounds)}


def _rounds(arrays: Arrays, device: torch.device) -> RoundBatch:
    columns = {name: arrays[f"rounds.{name}"] for name in COLUMNS}
    return RoundBatch(_tensor(arrays["rounds.contexts"], device), **columns)


def _sample(arrays: Arrays, name: str, device: torch.device) -> ContextSample:
    return ContextSample(_tensor(arrays[f"{name}.contexts"], device), arrays[f"{name}.references"])


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(tensor.detach().cpu().numpy())


def _tensor(array: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array).to(device)
