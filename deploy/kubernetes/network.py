"""Network policies: connections that are not listed here are refused."""

from deploy.kubernetes import serving, training
from deploy.kubernetes.pods import APP, DEFAULTS, Manifest, metadata

CALLERS = {"daband.io/calls": "true"}  # on a namespace: that of an ingress controller, for example
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}  # on pods, in any namespace
POSTGRES, REDIS, DNS, TRACES = 5432, 6379, 53, 4318


def manifests() -> list[Manifest]:
    """What comes in, by component, and what goes out, of all."""
    prometheus: Manifest = {"namespaceSelector": {}, "podSelector": {"matchLabels": PROMETHEUS}}
    callers: list[Manifest] = [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": CALLERS}}]
    return [
        _incoming(serving.COMPONENT, [*callers, prometheus], DEFAULTS.port),
        _incoming(training.COMPONENT, [prometheus], training.PORT),
        _outgoing(),
    ]


def _incoming(component: str, sources: list[Manifest], port: int) -> Manifest:
    named = metadata(f"{component}-incoming", component)
    return _policy(
        named,
        named["labels"],
        {"policyTypes": ["Ingress"], "ingress": [{"from": sources, "ports": [_tcp(port)]}]},
    )


def _outgoing() -> Manifest:
    """The stores may be outside the cluster, so they are known by their ports alone."""
    names = [{"protocol": protocol, "port": DNS} for protocol in ("UDP", "TCP")]
    stores = [_tcp(port) for port in (POSTGRES, REDIS, TRACES)]
    rules = {"policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [*names, *stores]}]}
    return _policy({"name": "daband-outgoing", "labels": APP}, APP, rules)


def _policy(named: Manifest, selected: dict[str, str], rules: Manifest) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": named,
        "spec": {"podSelector": {"matchLabels": selected}, **rules},
    }


def _tcp(port: int) -> Manifest:
    return {"protocol": "TCP", "port": port}
