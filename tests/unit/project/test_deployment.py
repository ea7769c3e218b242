"""The container files agree with each other, with nginx and with the service's own words."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from service.cli.main import app as command_line
from service.http.middleware import STREAMED
from service.settings import PREFIX, Settings, variable
from tests.support import dockerfile

ROOT = Path(__file__).parents[3]
COMPOSE = [ROOT / "docker-compose.yml", ROOT / "docker-compose.tls.yml"]
NGINX = {path.name: path.read_text() for path in (ROOT / "deploy" / "nginx").rglob("*.conf")}
OURS = ("migrate", "api", "trainer", "api-gpu", "trainer-gpu")


def compose(path: Path = COMPOSE[0]) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


SERVICES: dict[str, dict[str, Any]] = compose()["services"]


def tool(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def plain(value: object) -> str:
    """A value of the compose file with something in the place of every secret."""
    return re.sub(r"\$\{[A-Z_]+(:[?-][^}]*)?\}", 6 * "secret", str(value))


def our_environments() -> Iterator[dict[str, str]]:
    image = dockerfile.environment(dockerfile.stages()["final"])
    for name in OURS:
        yield image | {key: plain(value) for key, value in SERVICES[name]["environment"].items()}


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of a `daband` command line, as the command line itself reads them."""
    assert words[0] == "daband"
    context = typer.main.get_command(command_line).make_context("daband", words[1:])
    group: Any = context.command
    _, command, rest = group.resolve_command(context, words[1:])
    options: dict[str, Any] = command.make_context(words[1], rest, parent=context).params
    return options


def directive(name: str, file: str = "nginx.conf") -> list[str]:
    return re.findall(rf"^\s*{name} ([^;{{]+);", NGINX[file], re.MULTILINE)


def test_the_image_ships_the_licence_texts_of_all_that_is_in_it():
    stages = dockerfile.stages()
    (step,) = [each.rest for each in stages["build"] if "licences.py --" in each.rest]
    (notices,) = re.findall(r"--notices (\S+)", step)
    assert "daband[otel]" in step
    assert "--extra otel" in step
    (copied,) = [each.rest for each in stages["final"] if each.rest.startswith("--from=build")]
    assert notices.startswith(f"{copied.split()[-1]}/")


def test_the_linter_has_nothing_to_say_of_the_dockerfile():
    tool(str(Path(sys.executable).parent / "hadolint"), "Dockerfile")


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_the_compose_files_are_valid(path: Path):
    schema = ("--builtin-schema", "vendor.compose-spec")
    tool(sys.executable, "-m", "check_jsonschema", *schema, str(path))


def test_every_variable_is_a_setting():
    known = {variable(name) for name in Settings.model_fields}
    for environment in our_environments():
        ours = {name for name in environment if name.startswith(PREFIX)}
        assert ours <= known


def test_the_settings_fit_together(monkeypatch: pytest.MonkeyPatch):
    for environment in our_environments():
        for name, value in environment.items():
            if name.startswith(PREFIX):
                monkeypatch.setenv(name, value)
        assert not Settings(workers=2, trainer_inside=False).is_embedded


@pytest.mark.parametrize("name", OURS)
def test_every_command_exists(name: str):
    parsed(SERVICES[name]["command"])


def test_the_images_command_exists():
    options = parsed(dockerfile.command(dockerfile.stages()["final"]))
    assert (options["host"], options["port"]) == ("0.0.0.0", 8000)  # noqa: S104 - in a container


@pytest.mark.parametrize("name", ["api", "api-gpu"])
def test_nginx_finds_the_api(name: str):
    networks = SERVICES[name]["networks"]
    aliases = networks["back"]["aliases"] if isinstance(networks, dict) else [name]
    port = parsed(SERVICES[name]["command"])["port"]
    assert directive("server") == [f"{alias}:{port}" for alias in aliases]
    assert f"127.0.0.1:{port}/readyz" in str(SERVICES[name]["healthcheck"]["test"])
    assert parsed(SERVICES[name]["command"])["workers"] == 2


@pytest.mark.parametrize("name", ["trainer", "trainer-gpu"])
def test_the_trainers_health_is_asked_where_it_answers(name: str):
    port = SERVICES[name]["environment"]["DABAND_TRAINER_METRICS_PORT"]
    assert f"127.0.0.1:{port}/metrics" in str(SERVICES[name]["healthcheck"]["test"])


def test_the_published_port_is_the_one_that_nginx_listens_on():
    (port,) = directive("listen", "http.conf")
    assert [each.rpartition(":")[2] for each in SERVICES["nginx"]["ports"]] == [port]
    (tls,) = compose(COMPOSE[1])["services"]["nginx"]["ports"]
    assert directive("listen", "both.conf") == [port, f"{tls.rpartition(':')[2]} ssl"]


def test_nginx_has_the_services_limits():
    limits = Settings()
    body, upload = map(int, directive("client_max_body_size"))
    assert (body, upload) == (limits.max_body_bytes, limits.max_upload_bytes)
    assert f"default {body};" in NGINX["nginx.conf"]
    tables = r"target/contexts|(console/)?experiments/[^/]+/history|console/create/tables"
    uploads = rf"^/({tables}|(console/experiments/[^/]+/)?evaluations/file)$"
    assert f'"~{uploads}" {upload};' in NGINX["nginx.conf"]
    assert f"location ~ {uploads}" in NGINX["nginx.conf"]
    for path in (
        *("/target/contexts", "/experiments/doses/history", "/experiments/doses/state"),
        *("/evaluations/file", "/console/experiments/doses/evaluations/file", "/evaluations"),
    ):
        assert bool(re.search(uploads, path)) == bool(STREAMED.fullmatch(path))
    _, kept = directive("keepalive_timeout")
    assert int(kept.removesuffix("s")) < limits.keep_alive_seconds


def test_the_configuration_is_mounted_where_nginx_looks_for_it():
    nginx = SERVICES["nginx"]
    assert nginx["volumes"] == ["./deploy/nginx:/etc/nginx/daband:ro"]
    assert "/etc/nginx/daband/nginx.conf" in nginx["entrypoint"]
    (over,) = compose(COMPOSE[1])["services"]["nginx"]["volumes"]
    source, target, _ = over.split(":")
    assert (ROOT / source / "both.conf").exists()
    assert target == "/etc/nginx/daband/listeners"
    assert (ROOT / "deploy" / "nginx" / "listeners").is_dir()  # a mount needs its place


def test_prometheus_scrapes_what_the_services_answer():
    (mount, _) = SERVICES["prometheus"]["volumes"]
    folder = ROOT / mount.split(":")[0]
    scraped = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    # By name: each replica of a service has an address of its own.
    found = [each for job in scraped for each in job["dns_sd_configs"]]
    assert {each["type"] for each in found} == {"A"}
    targets = {f"{name}:{each['port']}" for each in found for name in each["names"]}
    api = parsed(SERVICES["api"]["command"])["port"]
    trainer = SERVICES["trainer"]["environment"]["DABAND_TRAINER_METRICS_PORT"]
    assert targets == {f"api:{api}", f"trainer:{trainer}"}


def test_grafana_finds_its_dashboards_and_prometheus():
    mounts = dict(each.split(":")[:2] for each in SERVICES["grafana"]["volumes"][:2])
    there = {target: ROOT / source for source, target in mounts.items()}
    provisioning = there["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "daband.yml").read_text())[
        "providers"
    ]
    assert list(there[provider["options"]["path"]].glob("*.json"))
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == f"http://prometheus:{SERVICES['prometheus']['ports'][0].split(':')[-1]}"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_hardened(name: str):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    assert service["restart"].startswith("on-failure" if name == "migrate" else "unless-stopped")
    assert service["healthcheck"] == {"disable": True} or "test" in service["healthcheck"]
    assert ("disable" in service["healthcheck"]) is (name == "migrate")


def test_every_image_has_an_exact_version():
    images = [each["image"] for name, each in SERVICES.items() if name not in OURS]
    before_all = dockerfile.stages()[""]
    images += [each.rest.partition("=")[2] for each in before_all if each.word == "ARG"]
    assert len(images) == 6
    assert all(re.search(r":v?\d+\.\d+(\.\d+)?", image) for image in images)


def test_no_secret_has_a_default():
    text = "".join(path.read_text() for path in COMPOSE)
    example = (ROOT / ".env.example").read_text()
    asked = set(re.findall(r"\$\{([A-Z_]+)", text))
    assert asked
    for name in asked:
        assert f"\n{name}=" in example
        if name.endswith(("PASSWORD", "FILE")):
            assert f"\n{name}=\n" in example
            assert f"${{{name}:?" in text
            assert f"${{{name}:-" not in text


def test_stopping_has_the_time_that_draining_takes():
    settings = Settings()
    requests = settings.drain_delay_seconds + settings.drain_seconds
    log = settings.drain_seconds  # in which what was answered is written
    for name, needed in (("api", requests + log), ("api-gpu", requests + log), ("nginx", requests)):
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > needed


@pytest.mark.parametrize("name", ["api-gpu", "trainer-gpu"])
def test_the_gpu_profile_has_the_gpu_and_its_image(name: str):
    service = SERVICES[name]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (service["profiles"], device["capabilities"]) == (["gpu"], ["gpu"])
    assert service["build"]["args"] == {"VARIANT": "cuda"}
    assert service["image"] != SERVICES["api"]["image"]
    assert service["environment"]["DABAND_DEVICE"] == "cuda"
    assert service["environment"]["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"


def test_only_nginx_and_the_pages_for_operators_are_published():
    published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}
    assert set(published) == {"nginx", "prometheus", "grafana"}
    for name in ("prometheus", "grafana"):
        assert all(port.startswith("127.0.0.1:") for port in published[name])
    assert compose()["networks"]["back"] == {"internal": True}


def test_the_image_writes_only_where_it_may():
    final = dockerfile.stages()["final"]
    environment = dockerfile.environment(final)
    (user,) = [each.rest for each in final if each.word == "USER"]
    assert user == "10001:10001"
    mounted = {each.split(":")[1] for each in SERVICES["api"]["volumes"]}
    assert environment["TMPDIR"] in mounted
    assert environment["HOME"] == "/tmp"  # noqa: S108 - in a container
    assert any(each.startswith("/tmp:") for each in SERVICES["api"]["tmpfs"])  # noqa: S108


def test_what_the_image_is_built_from_is_sent_and_nothing_else():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert sent == set(dockerfile.copied(dockerfile.stages()["build"]))
