"""Deployments and the objects around them."""

from deploy.kubernetes.pods import Container, Images, Manifest, labels, metadata, pod


def deployment(
    component: str, container: Container, images: Images, strategy: Manifest, **more: object
) -> Manifest:
    """Equal pods on different nodes. Without a number of replicas, for an autoscaler to choose."""
    spread = [_spread(component)]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(component, component),
        "spec": {
            "selector": {"matchLabels": labels(component)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
            "template": pod(component, container, images, topologySpreadConstraints=spread, **more),
        },
    }


def _spread(component: str) -> Manifest:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels(component)},
    }


def service(name: str, component: str, port: int) -> Manifest:
    """One address for callers, in front of all pods that are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, component),
        "spec": {
            "selector": labels(component),
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
        },
    }


def headless(component: str, port: int) -> Manifest:
    """A name with the address of each pod, ready or not: Prometheus scrapes them all."""
    made = service(component, component, port)
    made["spec"] |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return made


def disruption(component: str) -> Manifest:
    """Maintenance of nodes takes one pod at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(component, component),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(component)}},
    }
