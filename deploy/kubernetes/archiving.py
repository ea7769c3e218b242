"""Retention: old rounds move into files each night, and the files are read each week. Only with `--archive`."""

from copy import deepcopy

from deploy.kubernetes.pods import CONFIG, Container, Images, Manifest, metadata, pod, settings

COMPONENT, POLICY = "archive", "archive-policy"
FOLDER, POLICY_FOLDER, POLICY_FILE = "/archive", "/policy", "archive.toml"
SIZE = "100Gi"
NIGHTLY, WEEKLY = "23 2 * * *", "23 4 * * 0"
STARTED_WITHIN_SECONDS = 3600
OLD = """\
[default]
older_than = "90d"
"""
NEEDS = {"cpu": "250m", "memory": "512Mi"}
JOBS = {
    COMPONENT: (
        NIGHTLY,
        ("daband", "log", "archive", "--policy", f"{POLICY_FOLDER}/{POLICY_FILE}"),
    ),
    f"{COMPONENT}-check": (WEEKLY, ("daband", "log", "check")),
}


def manifests(images: Images) -> list[Manifest]:
    """The volume, the policy and the jobs."""
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(COMPONENT, COMPONENT),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": SIZE}},
        },
    }
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(POLICY, COMPONENT),
        "data": {POLICY_FILE: OLD},
    }
    return [volume, policy, *(_job(name, images) for name in JOBS)]


def _job(name: str, images: Images) -> Manifest:
    schedule, command = JOBS[name]
    container = Container(command, requests=NEEDS, limits={"memory": "2Gi"})
    template = pod(COMPONENT, container, images, restartPolicy="Never")
    _mount(template, POLICY, POLICY_FOLDER, {"configMap": {"name": POLICY}})
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(name, COMPONENT),
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": STARTED_WITHIN_SECONDS,
            "jobTemplate": {"spec": {"backoffLimit": 1, "template": template}},
        },
    }


def with_archive(manifest: Manifest) -> Manifest:
    """The same with the volume in every pod that reads or moves rounds, and the setting that names it."""
    made = deepcopy(manifest)
    claim = {"persistentVolumeClaim": {"claimName": COMPONENT}}
    if made["kind"] == "Deployment":
        _mount(made["spec"]["template"], COMPONENT, FOLDER, claim)
    elif made["kind"] == "CronJob":
        _mount(made["spec"]["jobTemplate"]["spec"]["template"], COMPONENT, FOLDER, claim)
    elif made["kind"] == "ConfigMap" and made["metadata"]["name"] == CONFIG:
        made["data"] |= settings(archive_dir=FOLDER)
    return made


def _mount(template: Manifest, name: str, folder: str, source: Manifest) -> None:
    spec = template["spec"]
    spec["volumes"].append({"name": name, **source})
    spec["containers"][0]["volumeMounts"].append({"name": name, "mountPath": folder})
