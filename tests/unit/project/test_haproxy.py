"""The shipped haproxy configuration is one that haproxy takes, and knows the service's words."""

import re
import subprocess
from pathlib import Path

from service.routes.ops import router
from tests.support.machines.haproxy import SHIPPED, adapted
from tests.support.processes.packages import program
from tests.support.processes.servers import free_port


def verdict(path: Path) -> subprocess.CompletedProcess[str]:
    command = [program("haproxy"), "-c", "-f", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_haproxy_takes_it(tmp_path: Path):
    path = tmp_path / "haproxy.cfg"
    path.write_text(adapted(free_port(), [free_port(), free_port()]))
    found = verdict(path)
    assert (found.returncode, found.stderr) == (0, ""), found.stderr


def test_haproxy_would_find_a_mistake(tmp_path: Path):
    path = tmp_path / "haproxy.cfg"
    path.write_text(adapted(free_port(), [1, 2]).replace("balance leastconn", "balance leastcon"))
    assert verdict(path).returncode != 0


def test_it_asks_for_readiness_by_a_route_of_the_service():
    (asked,) = re.findall(r"option httpchk GET (\S+)", SHIPPED.read_text())
    assert asked in {route.path for route in router.routes}  # type: ignore[attr-defined]
