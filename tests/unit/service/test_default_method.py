"""The default method is the same wherever an experiment can be created."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from daband_client import AsyncClient, Client
from model.config import SYSTEMS
from service import DEFAULT_METHOD
from service.cli import evaluation, remote
from service.cli.fit.command import fit
from service.codec.bodies import ExperimentBody
from service.codec.requests import ExperimentRequest
from service.experiment_spec import ExperimentSpec


def test_it_is_a_system():
    assert DEFAULT_METHOD in SYSTEMS


@pytest.mark.parametrize(
    "function",
    [
        AsyncClient.create_experiment,
        Client.create_experiment,
        evaluation.import_log,
        remote.create_experiment,
        remote.demo,
        fit,
    ],
    ids=lambda each: each.__qualname__,
)
def test_it_is_that_of_client_and_commands(function: Callable[..., Any]):
    assert inspect.signature(function).parameters["method"].default == DEFAULT_METHOD


def test_it_is_that_of_requests():
    fields = {field.name: field.default for field in msgspec.structs.fields(ExperimentBody)}
    assert fields["method"] == DEFAULT_METHOD
    assert ExperimentRequest.model_fields["method"].default == DEFAULT_METHOD
    assert inspect.signature(ExperimentSpec).parameters["method"].default == DEFAULT_METHOD
