"""The client of daband: decisions by domain-adaptive contextual bandits, over HTTP."""

from daband_client.async_client import AsyncClient as AsyncClient
from daband_client.client import Client as Client
from daband_client.contexts import Round as Round
from daband_client.errors import (
    AnswerError as AnswerError,
    ContextError as ContextError,
    DabandError as DabandError,
    NotTrainedError as NotTrainedError,
    ProblemError as ProblemError,
    UnreachableError as UnreachableError,
)
from daband_client.retries import Retries as Retries
from daband_client.settings import (
    DEFAULT_URL as DEFAULT_URL,
    Limits as Limits,
    __version__ as __version__,
)

__all__ = [
    "DEFAULT_URL",
    "AnswerError",
    "AsyncClient",
    "Client",
    "ContextError",
    "DabandError",
    "Limits",
    "NotTrainedError",
    "ProblemError",
    "Retries",
    "Round",
    "UnreachableError",
    "__version__",
]
