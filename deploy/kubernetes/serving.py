"""The API: equal pods that hold no state but policies."""

from deploy.kubernetes.objects import deployment, disruption, headless, service
from deploy.kubernetes.pods import DEFAULTS, Container, Images, Manifest, gibibytes, metadata

COMPONENT = "api"
CALLED, CALLED_PORT = "daband", 80  # http://daband
LEAST, MOST = 3, 12  # pods
NEW_FIRST = {"maxSurge": 1, "maxUnavailable": 0}
BUSY_PERCENT = 60  # of the core that a pod asks for
DRAIN_DELAY = 5.0  # seconds until every node knows that a pod is no longer ready
GRACE_SECONDS = int(DRAIN_DELAY + 2 * DEFAULTS.drain_seconds) + 15

POLICIES = DEFAULTS.policy_memory_bytes * 9 // 8  # with their earlier versions

# One process a pod: pods are what is scaled.
CONTAINER = Container(
    command=("daband", "serve", "--port", str(DEFAULTS.port), "--no-trainer"),
    requests={"cpu": "1", "memory": "1Gi"},
    limits={"memory": gibibytes(POLICIES)},
    port=DEFAULTS.port,
    alive="/healthz",
    ready="/readyz",
)


def manifests(images: Images) -> list[Manifest]:
    """The Deployment with what finds, scales and protects its pods."""
    return [
        deployment(
            COMPONENT, CONTAINER, images, NEW_FIRST, terminationGracePeriodSeconds=GRACE_SECONDS
        ),
        service(CALLED, COMPONENT, CALLED_PORT),
        headless(COMPONENT, DEFAULTS.port),
        _scaling(),
        disruption(COMPONENT),
    ]


def _scaling() -> Manifest:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(COMPONENT, COMPONENT),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": COMPONENT},
            "minReplicas": LEAST,
            "maxReplicas": MOST,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": BUSY_PERCENT},
                    },
                }
            ],
            # A pod that goes drains for seconds: it should not come back a minute later.
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
        },
    }
