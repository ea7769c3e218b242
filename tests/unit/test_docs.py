"""Documentation that cannot drift."""

from pathlib import Path

from benchmarks.config_table import config_table
from model.systems import SYSTEMS

ROOT = Path(__file__).parents[2]


def test_every_configuration_field_is_documented_as_it_is():
    assert config_table() in (ROOT / "docs/algorithm.md").read_text()


def test_every_system_is_documented():
    text = (ROOT / "docs/algorithm.md").read_text()
    assert all(f"`{name}`" in text for name in SYSTEMS)


def test_nothing_is_pickled():
    sources = [*ROOT.glob("model/**/*.py"), *ROOT.glob("service/**/*.py")]
    assert sources
    for path in sources:
        text = path.read_text()
        assert "pickle" not in text, path
        assert "torch.load" not in text, path
        assert "torch.save" not in text, path
