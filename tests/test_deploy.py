"""The deployment files name commands, options, settings and paths that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shiftboss.cli import main
from shiftboss.extensions.grpc.scaler import parse
from shiftboss.model.settings import Settings

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
DOCUMENTS = [
    (path.name, document)
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]


def found(document: Any, key: str) -> list[Any]:
    """All values of this key, however deep."""
    if isinstance(document, list):
        return [value for one in document for value in found(one, key)]
    if not isinstance(document, dict):
        return []
    here = [document[key]] if key in document else []
    return here + [value for one in document.values() for value in found(one, key)]


def options(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*command.split(), "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("name", "document"), DOCUMENTS)
def test_manifests_run_commands_that_exist(
    name: str, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in found(document, "args"):
        known = options(arguments[0], capsys)
        for option in arguments[1:]:
            assert not option.startswith("--") or option in known, f"{name}: {option}"


def test_the_compose_file_runs_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == {"db", "migrate", "worker", "admin"}
    for name in ("worker", "admin"):
        command = services[name]["command"]
        known = options(command[0], capsys)
        assert all(option in known for option in command if option.startswith("--")), name
        assert services[name]["read_only"]


def test_every_manifest_is_part_of_the_kustomization_or_runs_once() -> None:
    [wanted] = [document["resources"] for _, document in DOCUMENTS if document["kind"] == "Kustomization"]
    there = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert there == {*wanted, "kustomization.yaml", "migrate.yaml"}


def test_no_pod_runs_as_root_or_with_more_than_it_needs() -> None:
    pods = [spec for _, document in DOCUMENTS for spec in found(document, "spec") if "containers" in spec]
    assert len(pods) == 4
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_manifests_set_settings_that_exist() -> None:
    given = {
        one["name"]: one["value"]
        for _, document in DOCUMENTS
        for variables in found(document, "env")
        for one in variables
        if "value" in one
    }
    settings = Settings.load(given)
    assert settings.worker.grace_seconds == 100
    [grace] = [
        found(document, "terminationGracePeriodSeconds")[0]
        for _, document in DOCUMENTS
        if document["kind"] == "Deployment" and document["metadata"]["name"] == "shiftboss-worker"
    ]
    assert grace > settings.worker.grace_seconds


def test_triggers_are_understood() -> None:
    triggers = [one for _, document in DOCUMENTS for some in found(document, "triggers") for one in some]
    assert len(triggers) == 2
    for one in triggers:
        parse(one["metadata"])


def test_units_run_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for unit in (DEPLOY / "systemd").glob("*.service"):
        [command] = re.findall(r"^ExecStart=\S+/shiftboss (\S+)", unit.read_text(), re.MULTILINE)
        options(command, capsys)


def named(kind: str, name: str) -> dict[str, Any]:
    [one] = [d for _, d in DOCUMENTS if d["kind"] == kind and d["metadata"]["name"] == name]
    return dict(one)


def test_manifests_refer_to_what_exists() -> None:
    service, admin = named("Service", "shiftboss"), named("Deployment", "shiftboss-admin")
    ports = {port["name"] for port in found(admin, "ports")[0] + found(admin, "ports")[1]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports == {"http", "grpc"}
    labels = admin["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == admin["spec"]["selector"]["matchLabels"] == labels
    monitor = named("ServiceMonitor", "shiftboss")["spec"]
    assert monitor["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert [one["port"] for one in monitor["endpoints"]] == ["http"]
    target = named("ScaledObject", "shiftboss-worker")["spec"]["scaleTargetRef"]["name"]
    workers = named("Deployment", target)
    budget = named("PodDisruptionBudget", "shiftboss-worker")["spec"]["selector"]["matchLabels"]
    assert budget == workers["spec"]["template"]["metadata"]["labels"]
    accounts = {name for _, document in DOCUMENTS for name in found(document, "serviceAccountName")}
    assert all(not named("ServiceAccount", name)["automountServiceAccountToken"] for name in accounts)
    addresses = {address for _, document in DOCUMENTS for address in found(document, "scalerAddress")}
    assert addresses == {f"shiftboss:{service['spec']['ports'][1]['port']}"}


def test_workers_are_probed_and_drained(capsys: pytest.CaptureFixture[str]) -> None:
    [worker] = named("Deployment", "shiftboss-worker")["spec"]["template"]["spec"]["containers"]
    assert worker["readinessProbe"]["exec"]["command"] == ["shiftboss", "db", "status"]
    assert "Exits with 1" in options("db status", capsys), "a probe needs an exit code"
    assert 'shiftboss drain "$POD_NAME"' in worker["lifecycle"]["preStop"]["exec"]["command"][-1]
    options("drain", capsys)
    for container in named("Deployment", "shiftboss-admin")["spec"]["template"]["spec"]["containers"]:
        assert {"readinessProbe", "livenessProbe"} <= container.keys()


def test_no_secret_gets_into_the_image() -> None:
    """The compose file's password is in the directory that the container file copies."""
    assert "COPY . /app" in (DEPLOY / "Containerfile").read_text()
    assert ".env" in (DEPLOY / ".containerignore").read_text().splitlines()
    assert ".containerignore" in (DEPLOY.parent / "docs/how-to/deploy.md").read_text()
