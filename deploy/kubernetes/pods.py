"""What all pods of the service have in common: image, settings, limits of what they may do."""

import math
from dataclasses import dataclass, field
from typing import Any

from daband_client.settings import __version__
from service.settings import Settings, variable

Manifest = dict[str, Any]

DEFAULTS = Settings.model_construct()  # whatever the environment says
GIBIBYTE = 1 << 30
APP = {"app.kubernetes.io/name": "daband"}  # all our pods
CONFIG, SECRET = "daband", "daband"
SECRETS = ("database_url", "redis_url", "console_signing_key")
FIRST_RUN_SECONDS = 120  # until a new pod must have answered once
USER = 10001  # the image's
# Uploads on their way are files in /spool; Triton keeps the kernel that it has built in /data.
VOLUMES = (("tmp", "/tmp", "64Mi"), ("spool", "/spool", "16Gi"), ("data", "/data", "1Gi"))  # noqa: S108


@dataclass(frozen=True)
class Images:
    """Where the images of this version are."""

    repository: str = "daband"
    version: str = __version__

    def of(self, variant: str) -> str:
        """The image for `cpu` or `cuda`."""
        return f"{self.repository}:{self.version}-{variant}"


@dataclass(frozen=True, slots=True)
class Container:
    """One of our containers: its command, its needs, and where its health is asked."""

    command: tuple[str, ...]
    requests: dict[str, str]
    limits: dict[str, str]
    variant: str = "cpu"
    port: int | None = None
    alive: str = ""
    ready: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def metadata(name: str, component: str) -> Manifest:
    """Name and labels of an object."""
    return {"name": name, "labels": labels(component)}


def labels(component: str) -> dict[str, str]:
    """The labels that select a component's pods."""
    return {**APP, "app.kubernetes.io/component": component}


def settings(**values: object) -> dict[str, str]:
    """Settings as environment variables."""
    return {variable(name): str(value).lower() for name, value in values.items()}


def gibibytes(used: int) -> str:
    """A limit of memory: what the settings allow, and at least half a GiB for the rest of the process."""
    return f"{math.ceil(used / GIBIBYTE + 0.5)}Gi"


def pod(component: str, container: Container, images: Images, **more: Any) -> Manifest:
    """The template of a component's pods."""
    return {
        "metadata": {"labels": labels(component)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,  # its variables would begin with DABAND_
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **more,
            "containers": [_container(component, container, images)],
            "volumes": [
                {"name": name, "emptyDir": {"sizeLimit": size}} for name, _, size in VOLUMES
            ],
        },
    }


def _container(component: str, container: Container, images: Images) -> Manifest:
    made: Manifest = {
        "name": component,
        "image": images.of(container.variant),
        "command": list(container.command),
        "envFrom": [{"configMapRef": {"name": CONFIG}}],
        "env": [
            *(_secret(variable(name)) for name in SECRETS),
            *({"name": name, "value": value} for name, value in container.environment.items()),
        ],
        "resources": {"requests": container.requests, "limits": container.limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": name, "mountPath": path} for name, path, _ in VOLUMES],
    }
    if container.port is not None:
        made["ports"] = [{"name": "http", "containerPort": container.port}]
        made |= _probes(container)
    return made


def _secret(name: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": name}}}


def _probes(container: Container) -> Manifest:
    """A pod that starts has minutes; one that does not answer for half a minute is replaced."""
    alive = {"httpGet": {"path": container.alive, "port": "http"}, "timeoutSeconds": 5}
    ready = {"httpGet": {"path": container.ready, "port": "http"}, "timeoutSeconds": 5}
    return {
        "startupProbe": {
            **alive,
            "periodSeconds": 2,
            "failureThreshold": FIRST_RUN_SECONDS // 2,
        },
        "livenessProbe": {**alive, "periodSeconds": 10, "failureThreshold": 3},
        "readinessProbe": {**ready, "periodSeconds": 5, "failureThreshold": 2},
    }
