"""The Kubernetes manifests are those of the code, valid, and agree with the service's own words."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from deploy.kubernetes import archiving, serving, write
from deploy.kubernetes.pods import Images
from service.cli.main import app as command_line
from service.settings import PREFIX, Settings, variable
from service.storage.archive.policy import read_policy
from tests.unit.project.test_deployment import SERVICES, parsed

ROOT = Path(__file__).parents[3]
OLDEST, NEWEST = "1.29", "1.37"
Manifest = dict[str, Any]
FILES = write.files(Images())
ALL = [each for manifests in FILES.values() for each in manifests]
ARCHIVED = write.files(Images(), has_archive=True)
WITH_ARCHIVE = [each for manifests in ARCHIVED.values() for each in manifests]


def kinds(kind: str) -> list[Manifest]:
    return [each for each in ALL if each["kind"] == kind]


def templates() -> Iterator[Manifest]:
    for each in (*kinds("Deployment"), *kinds("Job")):
        yield each["spec"]["template"]


def container(template: Manifest) -> Manifest:
    (found,) = template["spec"]["containers"]
    return dict(found)


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def matches(selector: Manifest, template: Manifest) -> bool:
    return bool(selector.items() <= template["metadata"]["labels"].items())


TEMPLATES = pytest.mark.parametrize(
    "template", list(templates()), ids=lambda each: container(each)["image"]
)


def test_the_stored_manifests_are_those_of_the_code():
    stored = {path.name: path.read_text() for path in write.FOLDER.iterdir()}
    made = {name: write.as_yaml(manifests) for name, manifests in FILES.items()}
    assert stored == made, "run `make kubernetes`"
    assert [list(yaml.safe_load_all(text)) for text in made.values()] == list(FILES.values())


def test_images_of_ones_own_are_written_elsewhere(tmp_path: Path):
    images = ["--repository", "registry.example/bandits", "--version", "7"]
    write.main([*images, "--folder", str(tmp_path / "mine")])
    text = "".join(path.read_text() for path in (tmp_path / "mine").iterdir())
    assert "image: registry.example/bandits:7-cpu\n" in text
    assert "image: registry.example/bandits:7-cuda\n" in text
    assert "image: daband" not in text


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_manifest_is_valid(version: str):
    for manifest in (*ALL, *WITH_ARCHIVE):
        assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_a_broken_manifest_is_refused():
    (broken,) = (deepcopy(each) for each in kinds("HorizontalPodAutoscaler"))
    broken["spec"]["minReplicas"] = "three"
    with pytest.raises(kubernetes_validate.ValidationError, match="three"):
        kubernetes_validate.validate(broken, NEWEST, strict=True)
    misspelt = deepcopy(kinds("Deployment")[0])
    misspelt["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate(misspelt, NEWEST, strict=True)


def environment(template: Manifest) -> dict[str, str]:
    """A container's variables, with something in the place of every secret."""
    (config,) = kinds("ConfigMap")
    (source,) = container(template)["envFrom"]
    assert source["configMapRef"]["name"] == config["metadata"]["name"]
    found = dict(config["data"])
    for each in container(template)["env"]:
        found[each["name"]] = each.get("value", "postgresql://" + 32 * "s")
    return found


@TEMPLATES
def test_every_variable_is_a_setting_and_they_fit_together(
    template: Manifest, monkeypatch: pytest.MonkeyPatch
):
    found = environment(template)
    ours = {name for name in found if name.startswith(PREFIX)}
    assert ours <= {variable(name) for name in Settings.model_fields}
    for name in ours:
        monkeypatch.setenv(name, found[name])
    settings = Settings()
    assert not settings.is_embedded
    assert settings.needs_keys
    assert settings.device == ("cuda" if container(template)["image"].endswith("cuda") else "cpu")


@TEMPLATES
def test_every_command_exists_and_listens_where_it_is_asked(template: Manifest):
    words = container(template)["command"]
    options = parsed(words)
    ports = [each["containerPort"] for each in container(template).get("ports", [])]
    if words[1] == "serve":
        assert ports == [options["port"]]
    elif words[1] == "train":
        assert ports == [int(environment(template)["DABAND_TRAINER_METRICS_PORT"])]
    else:
        assert (words, ports) == (SERVICES["migrate"]["command"], [])


@TEMPLATES
def test_no_variable_of_a_kubernetes_service_is_taken_for_a_setting(template: Manifest):
    assert f"{serving.CALLED}_PORT".upper() == variable("port")
    assert template["spec"]["enableServiceLinks"] is False


@TEMPLATES
def test_every_pod_is_hardened_and_writes_only_where_it_may(template: Manifest):
    spec, own = template["spec"], container(template)["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    mounts = {each["name"]: each["mountPath"] for each in container(template)["volumeMounts"]}
    assert {each["name"] for each in spec["volumes"]} == set(mounts)
    assert set(mounts.values()) == {"/tmp", "/spool", "/data"}  # noqa: S108 - in a container
    assert "memory" in container(template)["resources"]["limits"]


@pytest.mark.parametrize("deployment", kinds("Deployment"), ids=name_of)
def test_stopping_has_the_time_that_draining_takes(
    deployment: Manifest, monkeypatch: pytest.MonkeyPatch
):
    template = deployment["spec"]["template"]
    for name, value in environment(template).items():
        if name.startswith(PREFIX):
            monkeypatch.setenv(name, value)
    settings = Settings()
    needed = settings.drain_delay_seconds + 2 * settings.drain_seconds
    assert template["spec"]["terminationGracePeriodSeconds"] > needed


@pytest.mark.parametrize("deployment", kinds("Deployment"), ids=name_of)
def test_a_deployment_and_its_budget_select_its_own_pods(deployment: Manifest):
    component = deployment["metadata"]["name"]
    budgets = [e for e in kinds("PodDisruptionBudget") if e["metadata"]["name"] == component]
    selectors = [each["spec"]["selector"]["matchLabels"] for each in (deployment, *budgets)]
    assert len(selectors) > 1
    for template in templates():
        is_own = container(template)["name"] == component
        assert [matches(each, template) for each in selectors] == [is_own] * len(selectors)


def test_the_autoscaler_alone_chooses_the_number_of_its_pods():
    (scaling,) = kinds("HorizontalPodAutoscaler")
    target = scaling["spec"]["scaleTargetRef"]["name"]
    (deployment,) = [each for each in kinds("Deployment") if each["metadata"]["name"] == target]
    assert "replicas" not in deployment["spec"]
    assert "cpu" in container(deployment["spec"]["template"])["resources"]["requests"]
    assert 1 < scaling["spec"]["minReplicas"] < scaling["spec"]["maxReplicas"]


def test_prometheus_finds_every_pod_by_the_shipped_configuration():
    config = yaml.safe_load((ROOT / "monitoring" / "prometheus" / "prometheus.yml").read_text())
    asked = {
        (name, found["port"])
        for job in config["scrape_configs"]
        for found in job["dns_sd_configs"]
        for name in found["names"]
    }
    headless = [each for each in kinds("Service") if each["spec"].get("clusterIP") == "None"]
    assert {
        (each["metadata"]["name"], each["spec"]["ports"][0]["port"]) for each in headless
    } == asked
    for each in headless:
        assert each["spec"]["publishNotReadyAddresses"] is True
        ports = {
            port["containerPort"]
            for template in templates()
            if matches(each["spec"]["selector"], template)
            for port in container(template)["ports"]
        }
        assert ports == {each["spec"]["ports"][0]["port"]}


def test_only_listed_ports_of_listed_pods_are_reached():
    policies = kinds("NetworkPolicy")
    for template in templates():
        found = [p for p in policies if matches(p["spec"]["podSelector"]["matchLabels"], template)]
        types = {each for policy in found for each in policy["spec"]["policyTypes"]}
        assert types == {"Ingress", "Egress"}
        reached = {
            port["port"]
            for policy in found
            for rule in policy["spec"].get("ingress", [])
            for port in rule["ports"]
        }
        assert reached == {each["containerPort"] for each in container(template).get("ports", [])}


def test_a_trainer_on_a_gpu_differs_in_nothing_but_the_gpu():
    plain, gpu = (
        FILES[name][0]["spec"]["template"] for name in ("trainer.yaml", "trainer-gpu.yaml")
    )
    assert FILES["trainer.yaml"][1:] == FILES["trainer-gpu.yaml"][1:]
    assert container(gpu)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert gpu["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    compose = SERVICES["trainer-gpu"]["environment"]
    changed = environment(gpu).items() - environment(plain).items()
    assert dict(changed) == {
        name: compose[name] for name in ("DABAND_DEVICE", "PYTORCH_CUDA_ALLOC_CONF")
    }


def test_without_an_archive_nothing_names_its_volume():
    assert "archive" not in "".join(map(write.as_yaml, FILES.values()))
    assert list(ARCHIVED) == [*FILES, "archive.yaml"]


def test_every_pod_that_reads_rounds_has_the_archive(tmp_path: Path):
    write.main(["--archive", "--folder", str(tmp_path)])
    written = yaml.safe_load_all((tmp_path / "archive.yaml").read_text())
    assert list(written) == ARCHIVED["archive.yaml"]
    pods = [each["spec"]["template"] for each in WITH_ARCHIVE if each["kind"] == "Deployment"]
    jobs = [each for each in WITH_ARCHIVE if each["kind"] == "CronJob"]
    pods += [each["spec"]["jobTemplate"]["spec"]["template"] for each in jobs]
    assert len(pods) == 5
    for each in pods:
        (claim,) = (each for each in each["spec"]["volumes"] if "persistentVolumeClaim" in each)
        (folder,) = (
            mount["mountPath"]
            for mount in container(each)["volumeMounts"]
            if mount["name"] == claim["name"]
        )
        assert folder == archiving.FOLDER
    (config,) = ARCHIVED["config.yaml"]
    assert Settings(archive_dir=config["data"]["DABAND_ARCHIVE_DIR"]).archive_place == folder


def test_the_jobs_of_the_archive_are_commands_and_read_a_policy(tmp_path: Path):
    for _, words in archiving.JOBS.values():
        # The options are read before the help is shown.
        outcome = CliRunner().invoke(command_line, [*words[1:], "--help"])
        assert outcome.exit_code == 0, outcome.output
    file = tmp_path / archiving.POLICY_FILE
    file.write_text(archiving.OLD)
    assert read_policy(file).default.older_than == "90d"
    _, words = archiving.JOBS[archiving.COMPONENT]
    assert words[-1] == f"{archiving.POLICY_FOLDER}/{archiving.POLICY_FILE}"
