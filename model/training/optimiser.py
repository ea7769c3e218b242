"""Adam with moments that are kept between episodes; on a GPU, whole steps recorded and replayed.

A step launches a few hundred small kernels, which takes a GPU longer than running them. So the step
is recorded once as a CUDA graph on tensors with fixed addresses, and replayed. The values of networks,
optimiser and batches are copied into these tensors.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from model.config import BanditConfig
from model.training.networks import Networks

# Adam's state by parameter name: `NAME.first`, `NAME.second`, and one `step` for all.
Moments = dict[str, Tensor]
# The tensors of one step by name.
Batch = Mapping[str, Tensor]
# Records a step and returns a function that repeats it.
Record = Callable[[Callable[[], None]], Callable[[], None]]

_GRADIENT_LIMIT = 10.0  # on the norm of all gradients, against a single bad batch
_WARM_UP = 3  # steps before a recording, so that libraries have chosen their kernels
_RECORDINGS_KEPT = 8  # each holds memory on the GPU
_CAPTURE = threading.Lock()  # torch records one CUDA graph at a time in a process


class Optimiser:
    """Adam on the parameters of a module that have gradients."""

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        self.parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        is_cuda = next(iter(self.parameters.values())).is_cuda
        self.adam = torch.optim.Adam(
            self.parameters.values(), lr=learning_rate, fused=True, capturable=is_cuda
        )

    def minimise(self, loss: Tensor) -> None:
        """One step down the gradient of the loss."""
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters.values(), _GRADIENT_LIMIT)
        self.adam.step()

    def moments(self) -> Moments:
        """A copy of Adam's state; parameters that never had a gradient have none."""
        moments: Moments = {}
        for name, parameter in self.parameters.items():
            if state := self.adam.state.get(parameter):
                for moment, value in (("first", "exp_avg"), ("second", "exp_avg_sq")):
                    copied = state[value].clone(memory_format=torch.contiguous_format)
                    moments[f"{name}.{moment}"] = copied
                moments["step"] = state["step"].clone()
        return moments

    def load(self, moments: Moments) -> None:
        """Continue from these moments; existing state is overwritten in place."""
        for name, parameter in self.parameters.items():
            if f"{name}.first" in moments:
                loaded = {
                    "step": moments["step"],
                    "exp_avg": moments[f"{name}.first"],
                    "exp_avg_sq": moments[f"{name}.second"],
                }
                if state := self.adam.state.get(parameter):
                    for value, moment in loaded.items():
                        state[value].copy_(moment)
                else:
                    self.adam.state[parameter] = {n: m.clone() for n, m in loaded.items()}


class Training(Protocol):
    """Networks in training, step by step."""

    networks: Networks
    config: BanditConfig
    optimiser: Optimiser
    totals: dict[str, Tensor]

    def of(self, networks: Networks) -> Self:
        """The same training of other networks, from the start."""
        ...

    def step(self, batch: Batch) -> None:
        """One gradient step."""
        ...


def cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """Record a step on the current GPU; the result replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the GPU meanwhile.
    with _CAPTURE, torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph.replay


class Recordings:
    """Recorded steps, kept between episodes; used by one training at a time."""

    def __init__(self, record: Record = cuda_graph) -> None:
        self._record = record
        self._kept: dict[object, _RecordedTraining] = {}

    def run(self, training: Training, batches: Iterator[Batch]) -> None:
        """`training.step` on each batch, replayed."""
        first = next(batches)
        shapes = tuple((name, tuple(value.shape)) for name, value in sorted(first.items()))
        key = (training.config.digest(), first["alignment"].device, shapes)
        recorded = self._kept.pop(key, None) or _RecordedTraining(training, first, self._record)
        recorded.run(training, chain([first], batches))
        self._kept[key] = recorded  # at the end: the most recently used
        while len(self._kept) > _RECORDINGS_KEPT:
            del self._kept[next(iter(self._kept))]


class _RecordedTraining:
    """A training whose recorded step is used for other trainings of the same shapes."""

    def __init__(self, like: Training, example: Batch, record: Record) -> None:
        # channels_last weights: otherwise a GPU converts each of them in every step.
        own = like.networks.clone().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._own = like.of(own.train())
        self._places = {name: value.clone() for name, value in example.items()}
        self._replay = record(lambda: self._own.step(self._places))
        self._recorded = dict(self._own.optimiser.adam.state)  # of the trained parameters

    def run(self, training: Training, batches: Iterator[Batch]) -> None:
        """Load the values of a training, replay the step on each batch, copy the values back."""
        self._load(training)
        last: Batch = {}
        for batch in batches:
            # Tensors that stay the same during an episode are copied once.
            new = [name for name in self._places if batch[name] is not last.get(name)]
            torch._foreach_copy_([self._places[n] for n in new], [batch[n] for n in new])
            self._replay()
            last = batch
        _copy_values(self._own.networks, training.networks)
        training.optimiser.load(self._own.optimiser.moments())
        training.totals.update({n: total.clone() for n, total in self._own.totals.items()})

    def _load(self, training: Training) -> None:
        _copy_values(training.networks, self._own.networks)
        state = self._own.optimiser.adam.state
        state.clear()
        state.update(self._recorded)
        for values in self._recorded.values():
            for value in values.values():
                value.zero_()
        self._own.optimiser.load(training.optimiser.moments())
        for total in self._own.totals.values():
            total.zero_()


@torch.no_grad()
def _copy_values(source: Networks, destination: Networks) -> None:
    values, places = source.state_dict(), destination.state_dict()
    torch._foreach_copy_(list(places.values()), [values[name] for name in places])
