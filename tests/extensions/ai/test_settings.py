"""Settings of the AI engine: sections inside a section."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftboss.extensions.ai.configure import configured
from shiftboss.model.errors import ConfigError
from shiftboss.model.settings import Settings


def test_a_section_inside_a_section(tmp_path: Path) -> None:
    (tmp_path / "shiftboss.toml").write_text(
        '[ai]\nproviders = ["openai"]\n[ai.openai]\nmodel = "big"\n[ai.cache.ttl]\nclassification = 5\n'
    )
    settings = Settings.load({"SHIFTBOSS_AI_OPENAI_API_KEY": "sk-hidden"}, tmp_path)
    assert settings.ai.openai.model == settings.value_of("ai.openai.model") == "big"
    assert settings.ai.cache.ttl == {"classification": 5}
    assert settings.source_of("ai.openai.api_key") == "SHIFTBOSS_AI_OPENAI_API_KEY"
    assert Settings.is_secret("ai.openai.api_key")
    assert "sk-hidden" not in repr(settings)


def test_the_deployments_of_models_are_configured(tmp_path: Path) -> None:
    (tmp_path / "shiftboss.toml").write_text(
        '[ai]\nproviders = ["openai"]\n[[ai.models.small.deployments]]\nbase_url = "http://a/v1"\nmodel = "m"\n'
    )
    settings = Settings.load({}, tmp_path)
    assert configured(settings.ai, {}) == {"openai": False, "small/1": True}


def test_an_error_deep_inside_names_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ai\.openai\.timeout from SHIFTBOSS_AI_OPENAI_TIMEOUT"):
        Settings.load({"SHIFTBOSS_AI_OPENAI_TIMEOUT": "soon"}, tmp_path)


@pytest.mark.parametrize(
    ("lines", "key", "near"),
    [
        ("prompt_costs = 1", "prompt_costs", "prompt_cost"),
        ('[[ai.models.big.deployments]]\nprovider = "openai"\nmodle = "x"', "deployments.0.modle", "model"),
    ],
)
def test_a_typo_in_a_model_names_the_key(tmp_path: Path, lines: str, key: str, near: str) -> None:
    (tmp_path / "shiftboss.toml").write_text(f"[ai.models.big]\n{lines}\n")
    with pytest.raises(ConfigError) as refused:
        Settings.load({}, tmp_path)
    problems = [str(refused.value), refused.value.hint]
    assert f"ai.models.big.{key} from " in str(refused.value), problems
    assert refused.value.hint == f"did you mean {near!r}?"
