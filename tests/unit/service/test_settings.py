"""Settings come from the environment, and a typo is noticed."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.settings import Settings, described, unknown_variable


def test_the_defaults_need_no_environment():
    settings = Settings()
    assert settings.is_embedded
    assert settings.storage_url == f"sqlite:///{Path('data/daband.db')}"
    assert settings.bus_url is None
    assert settings.trainer_inside


def test_variables_and_arguments_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DABAND_PORT", "9000")
    monkeypatch.setenv("DABAND_TRAINER_INSIDE", "false")
    assert (Settings().port, Settings().trainer_inside) == (9000, False)
    assert Settings(port=1).port == 1


def test_an_unknown_variable_fails_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DABAND_DATABSE_URL", "sqlite://")
    with pytest.raises(ValidationError, match="did you mean DABAND_DATABASE_URL"):
        Settings()


def test_other_variables_are_none_of_our_business():
    environment = {"PATH": "/bin", "DABAND_TEST_DATABASE_URL": "x", "DABAND_PORT": "1"}
    environment["DABAND_DATA"] = "benchmarks read it"
    assert unknown_variable(environment) is None


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_urls_are_never_shown():
    settings = Settings(database_url="postgresql://me:secret@host/db", redis_url="redis://:pw@host")
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings.model_dump())
    assert settings.storage_url == "postgresql://me:secret@host/db"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"redis_url": "redis://host"},
        {"database_url": "postgresql://host/db"},
        {"database_url": "sqlite:///x.db", "redis_url": "redis://host"},
    ],
)
def test_several_workers_need_postgres_and_redis(given: dict[str, Any]):
    with pytest.raises(ValidationError, match="needs Postgres and Redis"):
        Settings(workers=2, **given)


def test_several_workers_over_postgres_and_redis_are_fine():
    given: dict[str, Any] = {"database_url": "postgresql://h/db", "redis_url": "redis://h"}
    assert Settings(workers=2, **given).workers == 2


@pytest.mark.parametrize(
    "given", [{"port": 70000}, {"device": "tpu"}, {"log_level": "loud"}, {"max_in_flight": 0}]
)
def test_nonsense_is_refused(given: dict[str, Any]):
    with pytest.raises(ValidationError):
        Settings(**given)


def test_every_setting_says_what_it_is_for():
    assert all(meaning for _, _, meaning in described())
