"""What a service with a fixed neural encoder must have decided, by numpy alone.

From a policy file it takes the encoder and the configuration, from an exported log the rounds. All else
is computed again in double precision: φ, A, b, θ, the probabilities, and the drawn arm. It shares no
line with what it judges: it imports neither `model` nor `service`.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

KINDS = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
ROWS = {"source": 0, "target": 1}  # of what is kept for each domain
CLIP = 10.0  # of standardised numbers
TIED = 1e-6  # of scores of the order of 1
ENCODER = "networks.encoder."


@dataclass(frozen=True)
class PolicyFile:
    """The manifest and the arrays of a policy file."""

    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, content: bytes) -> "PolicyFile":
        """Read safetensors: the header's length, the header, the arrays' bytes."""
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        manifest = json.loads(header.pop("__metadata__")["manifest"])
        arrays = {}
        for name, each in header.items():
            first, end = each["data_offsets"]
            values = np.frombuffer(content[start + first : start + end], KINDS[each["dtype"]])
            arrays[name] = values.reshape(each["shape"])
        return cls(manifest, arrays)

    @property
    def encoder(self) -> dict[str, NDArray[Any]]:
        """The encoder's arrays."""
        return {n.removeprefix(ENCODER): a for n, a in self.arrays.items() if n.startswith(ENCODER)}

    @property
    def gram(self) -> Doubles:
        """Σ φφᵀ of each arm, (K, d, d)."""
        return np.asarray(self.arrays["statistics.gram"])

    @property
    def b(self) -> Doubles:
        """Σ rφ of each arm, (K, d)."""
        return np.asarray(self.arrays["statistics.b"])


@dataclass(frozen=True)
class Rounds:
    """Decisions in the order of the log; `reward_offset` is where a reward is in the log, 0 without one."""

    ids: list[str]
    domains: NDArray[np.str_]
    contexts: Doubles
    arms: Integers
    probabilities: Doubles
    versions: Integers
    rewards: Doubles
    reward_offsets: Integers

    @classmethod
    def of(cls, lines: Iterable[str], reward_offsets: dict[str, int]) -> "Rounds":
        """An exported log, JSON lines; which offset a reward got is in the answer that acknowledged it."""
        header, *decisions = map(json.loads, lines)
        ids = [each["decision_id"] for each in decisions]
        return cls(
            ids=ids,
            domains=np.array([each.get("domain", "source") for each in decisions]),
            contexts=np.array([each["context"] for each in decisions], dtype=np.float64),
            arms=np.array([header["arms"].index(each["arm"]) for each in decisions]),
            probabilities=np.array([each["probabilities"] for each in decisions]),
            versions=np.array([each.get("policy_version", 0) for each in decisions]),
            rewards=np.array([each.get("reward", np.nan) for each in decisions]),
            reward_offsets=np.array([reward_offsets.get(each, 0) for each in ids]),
        )

    def up_to(self, offset: int) -> NDArray[np.bool_]:
        """The rounds whose reward is in the log up to an offset."""
        return (self.reward_offsets > 0) & (self.reward_offsets <= offset)


class Oracle:
    """Decides as a policy with this encoder must, whatever rounds it has learned from."""

    def __init__(self, policy: PolicyFile) -> None:
        self._arrays = {name: array.astype(np.float64) for name, array in policy.encoder.items()}
        config = policy.manifest["config"]
        self.ridge, self.alpha = float(config["ridge"]), float(config["alpha"])
        self.epsilon, self.arm_count = float(config["epsilon"]), int(config["arm_count"])
        self._seed = int(policy.manifest["seed"])

    def latents(self, rounds: Rounds) -> Doubles:
        """φ of each context under its own domain, (n, d)."""
        forward = self._ensemble if "weights" in self._arrays else self._network
        found = [
            forward(context, ROWS[domain])
            for context, domain in zip(rounds.contexts, rounds.domains, strict=True)
        ]
        return np.array(found)

    def statistics(self, latents: Doubles, rounds: Rounds, offset: int) -> tuple[Doubles, Doubles]:
        """A and b of all rounds whose reward is in the log up to an offset."""
        size = latents.shape[1]
        A = np.tile(self.ridge * np.eye(size), (self.arm_count, 1, 1))
        b = np.zeros((self.arm_count, size))
        for row in np.flatnonzero(rounds.up_to(offset)):
            z, arm = latents[row], rounds.arms[row]
            A[arm] += np.outer(z, z)
            b[arm] += rounds.rewards[row] * z
        return A, b

    def scores(self, latents: Doubles, A: Doubles, b: Doubles) -> Doubles:
        """φᵀθ + α√(φᵀA⁻¹φ) of each arm, (n, K)."""
        theta = np.linalg.solve(A, b[..., None])[..., 0]
        widths = np.einsum("nd,kde,ne->nk", latents, np.linalg.inv(A), latents)
        return np.asarray(latents @ theta.T + self.alpha * np.sqrt(widths))

    def probabilities(self, scores: Doubles) -> Doubles:
        """(1 − ε) for the best arm, shared by ties, and ε for all alike."""
        best = scores >= scores.max(axis=1, keepdims=True) - TIED * max(1.0, self._widest)
        shares = best / best.sum(axis=1, keepdims=True)
        return np.asarray((1 - self.epsilon) * shares + self.epsilon / self.arm_count)

    def is_close_call(self, scores: Doubles, tolerance: float) -> NDArray[np.bool_]:
        """Whether rounding within the tolerance may change which arms are best, (n,)."""
        behind = np.sort(scores.max(axis=1, keepdims=True) - scores)[
            :, 1:
        ]  # without the best itself
        edge = TIED * max(1.0, self._widest)
        return np.asarray((np.abs(behind - edge) < tolerance).any(axis=1))

    def drawn(self, decision_id: str, probabilities: Doubles) -> int:
        """The arm that the decision's id draws."""
        offset = _digest(f"{self._seed}\x1fdraw".encode()) >> 1
        number = _mixed(_digest(decision_id.encode()) ^ offset) >> 11
        table = np.cumsum(probabilities)
        return int(np.searchsorted(table, number * 2.0**-53 * table[-1], side="right"))

    @property
    def _widest(self) -> float:
        return float(self.alpha / self.ridge**0.5)

    def _network(self, context: Doubles, row: int) -> Doubles:
        """A perceptron on standardised numbers, of principal components where there are some."""
        if "projection.components" in self._arrays:
            centred = context - self._arrays["projection.center"]
            context = _unit(self._arrays["projection.components"] @ centred)
        hidden = self._standardised("standardise", context, row)
        weights, biases = self._layers()
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            hidden = np.maximum(weight @ hidden + bias, 0.0)
        return _unit(weights[-1] @ hidden + biases[-1])

    def _ensemble(self, context: Doubles, row: int) -> Doubles:
        """Small perceptrons, on common scales and on the domain's own in turn; their latents joined."""
        scaled = [self._standardised(name, context, row) for name in ("common", "own")]
        weights, biases = self._layers()
        members = len(self._arrays["weights"])
        parts = []
        for member in range(members):
            hidden = scaled[member % 2]
            for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                hidden = hidden @ weight[member] + bias[member].reshape(-1)
                if layer < len(weights) - 1:
                    hidden = np.maximum(hidden, 0.0)
            parts.append(_unit(hidden) * self._arrays["weights"][member] / members**0.5)
        return np.concatenate(parts)

    def _standardised(self, name: str, context: Doubles, row: int) -> Doubles:
        center, scale = (self._arrays[f"{name}.{each}"][row] for each in ("center", "scale"))
        return np.asarray(np.clip((context - center) * scale, -CLIP, CLIP))

    def _layers(self) -> tuple[list[Doubles], list[Doubles]]:
        count = sum(name.startswith("layers.") for name in self._arrays) // 2
        weights, biases = (
            [self._arrays[f"layers.{layer}.{kind}"] for layer in range(count)]
            for kind in ("weight", "bias")
        )
        return weights, biases


def _unit(vector: Doubles) -> Doubles:
    return np.asarray(vector / (np.linalg.norm(vector) + 1e-12))


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def _mixed(value: int) -> int:
    """SplitMix64's finaliser."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = ((value ^ (value >> shift)) * factor) % 2**64
    return value
