from __future__ import annotations

from pathlib import Path

import pytest

from shiftboss.model.errors import ConfigError
from shiftboss.model.settings import Settings


def test_defaults(tmp_path: Path) -> None:
    settings = Settings.load({}, tmp_path)
    assert (settings.database.url, settings.source_of("database.url")) == (None, "default")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shiftboss.toml"
    file.write_text('[database]\nurl = "postgresql://file"\npool_size = 7\n')
    settings = Settings.load({"SHIFTBOSS_DATABASE_URL": "postgresql://env"}, tmp_path)
    assert (settings.database.url, settings.database.pool_size) == ("postgresql://env", 7)
    assert settings.source_of("database.url") == "SHIFTBOSS_DATABASE_URL"
    assert settings.source_of("database.pool_size") == str(file)


def test_pyproject_is_read_from_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.shiftboss.database]\npool_size = 3\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert Settings.load({}, below).database.pool_size == 3


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "shiftboss.toml").write_text('data_dir = "data"')
    assert Settings.load({}, tmp_path).data_dir == tmp_path / "data"


def test_options_of_a_command_change_a_section() -> None:
    settings = Settings.load({})
    changed = settings.changed("worker", concurrency=3, engine=None)
    assert (changed.worker.concurrency, changed.worker.batch) == (3, settings.worker.batch)
    with pytest.raises(ConfigError, match=r"worker\.concurrency: .*greater"):
        settings.changed("worker", concurrency=0)
    with pytest.raises(ConfigError, match=r"no setting 'worker\.speeed'"):
        settings.changed("worker", speeed="fast")


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ('[database]\nurll = "x"', "database.url"),
        ('data_dri = "x"', "data_dir"),
        ("[databse]\npool_size = 1", "database"),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path: Path, text: str, nearest: str) -> None:
    (tmp_path / "shiftboss.toml").write_text(text)
    with pytest.raises(ConfigError, match="unknown setting") as caught:
        Settings.load({}, tmp_path)
    assert nearest in (caught.value.hint or "")


def test_a_misspelt_variable_is_an_error_and_a_stranger_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.load({"SHIFTBOSS_DATABSE_URL": "x"}, tmp_path)
    assert caught.value.hint == "did you mean SHIFTBOSS_DATABASE_URL?"
    Settings.load({"SHIFTBOSS_SERVICE_HOST": "10.0.0.1"}, tmp_path)


def test_a_bad_value_names_key_and_source(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"database.pool_size from SHIFTBOSS_DATABASE_POOL_SIZE: .*integer"):
        Settings.load({"SHIFTBOSS_DATABASE_POOL_SIZE": "many"}, tmp_path)


@pytest.mark.parametrize("text", ["[database", "database = 1"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "shiftboss.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"shiftboss\.toml"):
        Settings.load({}, tmp_path)


def test_a_named_file_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no settings file"):
        Settings.load({"SHIFTBOSS_CONFIG": str(tmp_path / "none.toml")}, tmp_path)


def test_secrets_do_not_show(tmp_path: Path) -> None:
    settings = Settings.load({"SHIFTBOSS_DATABASE_URL": "postgresql://me:hush@host/db"}, tmp_path)
    assert "hush" not in repr(settings)
    assert Settings.is_secret("database.url")
