"""`make kubernetes`: the manifests as the YAML that `kubectl apply` reads.

`make kubernetes ARGS="--repository registry.example/daband --version 1.0 --folder build/kubernetes"` writes
them for images of your own.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from deploy.kubernetes import archiving, network, serving, training
from deploy.kubernetes.pods import CONFIG, Images, Manifest, metadata, settings

FOLDER = Path(__file__).parent / "manifests"
HEADER = (
    "# Written by `make kubernetes` from deploy/kubernetes/*.py; docs/operations.md explains it.\n"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", default=Images.repository, help="of the images")
    parser.add_argument("--version", default=Images.version, help="of the images")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--archive", action="store_true", help="move old rounds into a volume")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    images = Images(options.repository, options.version)
    for name, manifests in files(images, has_archive=options.archive).items():
        (options.folder / name).write_text(as_yaml(manifests))


def files(images: Images, *, has_archive: bool = False) -> dict[str, list[Manifest]]:
    """The objects by the file that holds them, in the order of their use."""
    found = {
        "config.yaml": [_config()],
        "network.yaml": network.manifests(),
        "migrate.yaml": training.migration(images),
        "api.yaml": serving.manifests(images),
        "trainer.yaml": training.manifests(images),
        "trainer-gpu.yaml": training.on_gpus(images),
    }
    if not has_archive:
        return found
    found["archive.yaml"] = archiving.manifests(images)
    return {name: [*map(archiving.with_archive, some)] for name, some in found.items()}


def as_yaml(manifests: list[Manifest]) -> str:
    """The objects as documents of one file."""
    plain = json.loads(json.dumps(manifests))  # equal objects are written again, without anchors
    return HEADER + str(yaml.safe_dump_all(plain, sort_keys=False, width=120))


def _config() -> Manifest:
    """The settings of all pods; passwords are in a Secret."""
    values = settings(
        host="0.0.0.0",  # noqa: S104 - in a pod
        auth="required",
        metrics_open=True,  # the network policy and the ingress hide /metrics
        drain_delay_seconds=serving.DRAIN_DELAY,
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(CONFIG, "config"),
        "data": values,
    }


if __name__ == "__main__":
    main()
