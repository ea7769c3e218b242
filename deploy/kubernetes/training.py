"""The migration, and the trainers: each experiment has one of them at a time, by its lease."""

from dataclasses import replace

from deploy.kubernetes.objects import deployment, disruption, headless
from deploy.kubernetes.pods import (
    DEFAULTS,
    Container,
    Images,
    Manifest,
    gibibytes,
    metadata,
    pod,
    settings,
)

COMPONENT, MIGRATION = "trainer", "migrate"
REPLICAS = 2  # the other one takes over when a lease expires
OLD_FIRST = {"maxSurge": 0, "maxUnavailable": 1}  # a new version needs no GPU besides
PORT = 9000
GRACE_SECONDS = 60
JOB_KEPT_SECONDS = 3600
GPU = "nvidia.com/gpu"

LEARNERS = DEFAULTS.learner_memory_bytes
UPDATES = DEFAULTS.training_processes * DEFAULTS.training_memory_bytes
CONTAINER = Container(
    command=("daband", "train"),
    requests={"cpu": "2", "memory": "4Gi"},
    limits={"memory": gibibytes(LEARNERS + UPDATES)},
    port=PORT,
    alive="/metrics",
    ready="/metrics",
    environment=settings(trainer_metrics_port=PORT),
)
MIGRATE = Container(
    command=("daband", "migrate"),
    requests={"cpu": "250m", "memory": "512Mi"},
    limits={"memory": "1Gi"},
)


def manifests(images: Images) -> list[Manifest]:
    """Trainers on the CPU."""
    return _trainers(CONTAINER, images)


def on_gpus(images: Images) -> list[Manifest]:
    """The same, each with a GPU of its own; instead of those on the CPU."""
    container = replace(
        CONTAINER,
        variant="cuda",
        limits={**CONTAINER.limits, GPU: "1"},
        environment={
            **CONTAINER.environment,
            **settings(device="cuda"),
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        },
    )
    return _trainers(
        container,
        images,
        nodeSelector={f"{GPU}.present": "true"},
        tolerations=[{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
    )


def _trainers(container: Container, images: Images, **more: object) -> list[Manifest]:
    made = deployment(
        COMPONENT, container, images, OLD_FIRST, terminationGracePeriodSeconds=GRACE_SECONDS, **more
    )
    made["spec"]["replicas"] = REPLICAS
    return [made, headless(COMPONENT, PORT), disruption(COMPONENT)]


def migration(images: Images) -> list[Manifest]:
    """Run once before the pods of a new version start; it changes nothing a second time."""
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata(MIGRATION, MIGRATION),
            "spec": {
                "backoffLimit": 3,
                "ttlSecondsAfterFinished": JOB_KEPT_SECONDS,
                "template": pod(MIGRATION, MIGRATE, images, restartPolicy="Never"),
            },
        }
    ]
