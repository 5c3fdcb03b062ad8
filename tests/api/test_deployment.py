"""The deployment files agree with the code: variables, commands, users, and dependencies."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS = [name for name, service in COMPOSE["services"].items() if service["image"].startswith("ehr-d3pm")]
# interpolated, but meant for compose itself and for Postgres' own image
MEMORY = {f"{name}_MEMORY" for name in ("API", "WORKER", "GPU_WORKER", "POSTGRES", "VALKEY")}
OF_OTHERS = {"TAG", "POSTGRES_PASSWORD", "VALKEY_PASSWORD"} | MEMORY
# read by botocore, and handed on from the environment of whoever starts the containers: none has a value in the file
OF_THE_STORE = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
}


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_read_by_the_settings(name: str) -> None:
    known = {field.upper() for field in Settings.model_fields}
    variables = COMPOSE["services"][name]["environment"]
    assert set(variables) <= known | OF_THE_STORE
    assert {variables.get(name) for name in OF_THE_STORE} == {None}


def test_every_interpolated_variable_is_known() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    used = set(re.findall(r"\${(\w+)", text))
    assert used <= {field.upper() for field in Settings.model_fields} | OF_OTHERS


def test_no_secret_has_a_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    asked = re.findall(r"\${(\w*PASSWORD\w*)([^}]*)}", text)
    assert {name for name, _ in asked} == {"POSTGRES_PASSWORD", "VALKEY_PASSWORD"}
    assert {rest for _, rest in asked} == {":?choose a password"}  # compose refuses to start without
    assert COMPOSE["services"]["api"]["environment"]["REDIS_URL"].startswith("redis://:${VALKEY_PASSWORD")


def test_the_images_variables_are_read_too() -> None:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("ENV")]
    set_last = set(re.findall(r"(\w+)=", lines[-1])) - {"PATH", "PYTHONUNBUFFERED"}
    assert set_last and set_last <= {field.upper() for field in Settings.model_fields}


def test_services() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "redis", "migrate", "api", "worker", "worker-gpu"}
    for name, service in services.items():
        assert re.fullmatch(r"(\$\{\w+_MEMORY:-)?\d+[mg]\}?", service["mem_limit"])
        assert name == "migrate" or "healthcheck" in service
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for name in ("api", "worker", "worker-gpu"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    devices = services["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["capabilities"] == ["gpu"] and services["worker-gpu"]["profiles"] == ["gpu"]
    mounted = {v.split(":")[0] for service in services.values() for v in service.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", ["worker", "worker-gpu"])
def test_workers_are_given_the_time_to_hand_their_jobs_over_and_are_looked_after(name: str) -> None:
    worker = COMPOSE["services"][name]
    assert int(worker["stop_grace_period"].removesuffix("s")) >= 2 * Settings.model_fields["stop_seconds"].default
    assert worker["healthcheck"]["test"] == ["CMD", "python", "-m", "worker.health"]
    assert find_spec("worker.health") is not None and "/tmp" in worker["tmpfs"]  # where a worker says that it lives


def test_the_broker_wants_its_password_and_shows_it_to_nobody() -> None:
    broker = COMPOSE["services"]["redis"]
    shell, flag, script = broker["command"]
    assert (shell, flag) == ("sh", "-c") and "requirepass %s" in script and "valkey-server /tmp/valkey.conf" in script
    # known inside the container only: what compose itself would fill in stands in everyone's list of processes
    for text in (script, broker["healthcheck"]["test"][1]):
        assert "$$VALKEY_PASSWORD" in text and "${" not in text


@pytest.mark.parametrize("name", OURS)
def test_containers_may_do_nothing_they_need_not(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_commands_exist() -> None:
    known = entry_points(group="ehr_d3pm.commands").names
    for name in OURS:
        program, command = COMPOSE["services"][name]["command"]
        assert program == "ehr-d3pm" and command in known


def test_the_image_does_not_run_as_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    last_stage = text[text.rindex("\nFROM") :]
    assert re.search(r"^USER 10001", last_stage, re.MULTILINE)


def test_the_image_is_built_from_what_is_sent_and_locked() -> None:
    text, sent = (ROOT / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text().splitlines()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for name in line.split()]
    assert copied and [name for name in copied if f"!{name}" not in sent or not (ROOT / name).exists()] == []
    installs = re.findall(r"pip install (.+)$", text, re.MULTILINE)
    assert len(installs) == 3  # torch from the index of its device, then the rest as locked, then ourselves
    assert "constraints.txt torch" in installs[0] and "--require-hashes" in installs[1] and "--no-deps" in installs[2]


def test_docker_compose_config() -> None:
    """By whichever of the two composes is installed."""
    for compose in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(compose[0]) and subprocess.run([*compose, "version"], capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("docker compose is not installed here")
    command = [*compose, "-f", "docker-compose.yml", "--profile", "gpu", "config", "--quiet"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"POSTGRES_PASSWORD": "x", "VALKEY_PASSWORD": "y"}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("module", ["app.main", "app.client", "app.commands.api", "ehr_d3pm.cli", "worker.embedded"])
def test_importing_does_not_load_torch(module: str) -> None:
    code = (
        f"import sys, {module}; loaded = set(sys.modules); assert not {{'torch', 'lightgbm', 'scipy'}} & loaded; "
        "assert not [name for name in loaded if name.startswith('worker.engine')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
