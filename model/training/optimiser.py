"""Adam steps on the objective: run one after the other, or, on a GPU, replayed from a recording.

A step launches a few hundred small kernels. A GPU runs them in a fraction of the time that it
takes to launch them one by one, so there the whole step is recorded once, on tensors that keep
their place, and replayed; the values of networks, optimiser and inputs are copied into them.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from model.config import BanditConfig
from model.training.networks import Networks
from model.training.objective import Inputs, step_terms

Moments = dict[str, Tensor]

_GRADIENT_LIMIT = 10.0
_WARM_UP = 3  # steps before a recording, so that libraries have chosen their kernels
_recording = threading.Lock()
_BENCHES_KEPT = 8  # each holds its recordings' memory on the GPU


class Stepper:
    """Networks in training with their optimiser and the sums of the loss terms."""

    def __init__(self, networks: Networks, config: BanditConfig) -> None:
        self.networks = networks
        self.config = config
        self.parameters = {n: p for n, p in networks.named_parameters() if p.requires_grad}
        self.device = next(iter(self.parameters.values())).device
        self.optimiser = torch.optim.Adam(
            self.parameters.values(),
            lr=config.learning_rate,
            fused=True,
            capturable=self.device.type == "cuda",
        )
        self.totals: dict[str, Tensor] = {}
        slow = {"teacher": networks.teacher, "average": networks.average}
        self._following = {
            f"{name}_weight": copy.following(networks.encoder, networks.head)
            for name, copy in slow.items()
            if copy is not None
        }

    def run(self, steps: Sequence[Inputs]) -> None:
        """One gradient step on each of the inputs."""
        for inputs in steps:
            self.step(inputs)

    def step(self, inputs: Inputs) -> None:
        """One gradient step."""
        terms = step_terms(self.networks, inputs, self.config)
        self.optimiser.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), _GRADIENT_LIMIT)
        self.optimiser.step()
        for weight, following in self._following.items():
            following.move(inputs[weight])
        for name, value in terms.items():
            if name not in self.totals:
                self.totals[name] = torch.zeros((), device=self.device)
            self.totals[name] += value.detach()

    def moments(self) -> Moments:
        """Adam's state by parameter name; parameters that never had a gradient have none."""
        moments: Moments = {}
        for name, parameter in self.parameters.items():
            if state := self.optimiser.state.get(parameter):
                for moment, value in (("first", "exp_avg"), ("second", "exp_avg_sq")):
                    copied = state[value].clone(memory_format=torch.contiguous_format)
                    moments[f"{name}.{moment}"] = copied
                moments["step"] = state["step"].clone()
        return moments

    def load_moments(self, moments: Moments) -> None:
        """Continue Adam where the last good update left it."""
        for name, parameter in self.parameters.items():
            if f"{name}.first" in moments:
                self.optimiser.state[parameter] = {
                    "step": moments["step"].clone(),
                    "exp_avg": moments[f"{name}.first"].clone(),
                    "exp_avg_sq": moments[f"{name}.second"].clone(),
                }


class RecordedStepper(Stepper):
    """The same steps, recorded as one CUDA graph for each set of inputs and replayed."""

    def __init__(self, networks: Networks, config: BanditConfig) -> None:
        # Weights in the order in which a GPU convolves, or each of them is copied in every step.
        own = networks.clone().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        super().__init__(own, config)
        self.networks.train()
        self._recordings: dict[tuple[object, ...], _Recording] = {}
        self._known: set[str] = set()  # parameters whose moments mean something
        self._last: Inputs = {}

    def begin(self, networks: Networks, moments: Moments, example: Inputs) -> None:
        """Start from these values; steps on inputs like `example` are recorded if they are new."""
        key = tuple((name, tuple(value.shape)) for name, value in sorted(example.items()))
        if key not in self._recordings:
            self._recordings[key] = self._recorded(example)
        self._recording, self._last = self._recordings[key], {}
        _copy_values(networks, self.networks)
        for total in self.totals.values():
            total.zero_()
        self.load_moments(moments)

    def run(self, steps: Sequence[Inputs]) -> None:
        """Replay the recording on each of the inputs."""
        places = self._recording.inputs
        for inputs in steps:
            # What stays the same in all steps of an update is copied once.
            new = [name for name in places if inputs[name] is not self._last.get(name)]
            torch._foreach_copy_([places[name] for name in new], [inputs[name] for name in new])
            self._last = inputs
            self._recording.graph.replay()

    def moments(self) -> Moments:
        known = self._known | self._recording.trained
        return {
            name: value
            for name, value in super().moments().items()
            if name == "step" or name.rpartition(".")[0] in known
        }

    def load_moments(self, moments: Moments) -> None:
        self._known = {name.rpartition(".")[0] for name in moments if name != "step"}
        for name, parameter in self.parameters.items():
            if not (state := self.optimiser.state.get(parameter)):
                continue
            if name in self._known:
                state["step"].copy_(moments["step"])
                state["exp_avg"].copy_(moments[f"{name}.first"])
                state["exp_avg_sq"].copy_(moments[f"{name}.second"])
            else:
                for value in state.values():
                    value.zero_()

    def _recorded(self, example: Inputs) -> "_Recording":
        places = {name: value.clone() for name, value in example.items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self.step(places)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile, but only one may record.
        with _recording, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.step(places)
        trained = {name for name, value in self.parameters.items() if value.grad is not None}
        return _Recording(graph, places, trained)


class _Recording:
    """A recorded step, the places of its inputs and the parameters that it moves."""

    def __init__(
        self, graph: torch.cuda.CUDAGraph, inputs: dict[str, Tensor], trained: set[str]
    ) -> None:
        self.graph = graph
        self.inputs = inputs
        self.trained = trained


# Benches are kept between episodes with their recordings; nothing else of an episode stays in them.
# Whoever trains takes one out, so that several threads train at the same time, each on its own.
_idle: list[tuple[tuple[str, torch.device], RecordedStepper]] = []
_lock = threading.Lock()


@contextmanager
def stepping(
    networks: Networks, moments: Moments, config: BanditConfig, example: Inputs
) -> Iterator[Stepper]:
    """A stepper that trains these networks from these moments on; they are trained when it ends."""
    device = next(networks.parameters()).device
    if device.type != "cuda":
        stepper = Stepper(networks.train(), config)
        stepper.load_moments(moments)
        yield stepper
        return
    key = (config.digest(), device)
    bench = _taken(key) or RecordedStepper(networks, config)
    bench.begin(networks, moments, example)
    yield bench
    _copy_values(bench.networks, networks)
    with _lock:
        _idle.append((key, bench))
        del _idle[:-_BENCHES_KEPT]


@torch.no_grad()
def _copy_values(source: Networks, destination: Networks) -> None:
    values, places = source.state_dict(), destination.state_dict()
    torch._foreach_copy_(list(places.values()), [values[name] for name in places])


def _taken(key: tuple[str, torch.device]) -> RecordedStepper | None:
    with _lock:
        for index, (name, bench) in enumerate(_idle):
            if name == key:
                del _idle[index]
                return bench
    return None
