"""The manifests for Kubernetes agree with the code, with each other, and with what `restricted` pods may do."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.settings import Settings
from tests.api.test_deployment import OF_THE_STORE

FOLDER = Path(__file__).parents[2] / "ops/kubernetes"
FILES = {path.name: [doc for doc in yaml.safe_load_all(path.read_text()) if doc] for path in FOLDER.glob("*.yaml")}
DOCUMENTS = [document for name, found in FILES.items() if name != "kustomization.yaml" for document in found]
SETTINGS = {field.upper() for field in Settings.model_fields} | OF_THE_STORE
MANUAL = (FOLDER.parents[1] / "docs/operations.md").read_text()


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in DOCUMENTS if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return dict(found)


PODS = {each["metadata"]["name"]: each["spec"]["template"] for each in DOCUMENTS if "template" in each.get("spec", {})}
WORKERS = ("worker", "worker-gpu")


def test_all_files_are_applied_but_the_one_for_gpus() -> None:
    (applied,) = FILES["kustomization.yaml"]
    assert set(applied["resources"]) | {"worker-gpu.yaml", "kustomization.yaml"} == set(FILES)
    assert applied["namespace"] == named("Namespace", "ehr-d3pm")["metadata"]["name"]
    assert {image["name"] for image in applied["images"]} == {"ehr-d3pm"}


def test_there_are_no_secrets_in_it() -> None:
    assert not [each for each in DOCUMENTS if each["kind"] == "Secret"]
    settings = named("ConfigMap", "ehr-d3pm")["data"]
    assert not [name for name in settings if "SECRET" in name or name in ("DATABASE_URL", "REDIS_URL")]
    for name in ("DATABASE_URL", "REDIS_URL"):
        assert f"--from-literal={name}=" in MANUAL  # how the secret is made


@pytest.mark.parametrize("name", PODS)
def test_variables_and_commands_are_known(name: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    given = {each["name"] for each in container.get("env", [])} | set(named("ConfigMap", "ehr-d3pm")["data"])
    assert given <= SETTINGS
    assert container["envFrom"] == [{"configMapRef": {"name": "ehr-d3pm"}}, {"secretRef": {"name": "ehr-d3pm"}}]
    program, command = container["command"]
    assert program == "ehr-d3pm" and command in entry_points(group="ehr_d3pm.commands").names


@pytest.mark.parametrize("name", PODS)
def test_pods_may_do_nothing_they_need_not(name: str) -> None:
    """What the namespace enforces (`restricted`), and a file system that only `data` and `tmp` are written in."""
    pod, (container,) = PODS[name]["spec"], PODS[name]["spec"]["containers"]
    allowed = pod["securityContext"]
    assert allowed["runAsNonRoot"] and allowed["runAsUser"] == 10001  # of the image
    assert allowed["seccompProfile"] == {"type": "RuntimeDefault"} and pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {"data": named("ConfigMap", "ehr-d3pm")["data"]["DATA_DIR"], "tmp": "/tmp"}
    assert {each["name"] for each in pod["volumes"]} == set(mounted) and all("emptyDir" in v for v in pod["volumes"])
    assert container["resources"]["limits"]["memory"].endswith("Gi")


def test_labels_lead_to_what_is_meant() -> None:
    for each in DOCUMENTS:
        if each["kind"] == "Deployment":
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert each["spec"]["selector"]["matchLabels"] == labels == each["metadata"]["labels"]
    of_the_api = PODS["api"]["metadata"]["labels"]
    assert named("Service", "api")["spec"]["selector"] == of_the_api
    assert named("PodDisruptionBudget", "api")["spec"]["selector"]["matchLabels"] == of_the_api
    assert named("NetworkPolicy", "to-the-api")["spec"]["podSelector"]["matchLabels"] == of_the_api
    (port,) = PODS["api"]["spec"]["containers"][0]["ports"]
    assert port["containerPort"] == 8000 and named("Service", "api")["spec"]["ports"][0]["targetPort"] == port["name"]
    backend = named("Ingress", "api")["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "api", "port": {"name": "http"}} and named("Ingress", "api")["spec"]["tls"]


def test_deploys_lose_nothing() -> None:
    stop = int(named("ConfigMap", "ehr-d3pm")["data"]["STOP_SECONDS"])
    for name in WORKERS:
        assert PODS[name]["spec"]["terminationGracePeriodSeconds"] >= 2 * stop
        probe = PODS[name]["spec"]["containers"][0]["livenessProbe"]
        assert probe["exec"]["command"] == ["python", "-m", "worker.health"]
    api = PODS["api"]["spec"]["containers"][0]
    assert [api[f"{probe}Probe"]["httpGet"]["path"] for probe in ("readiness", "liveness")] == ["/readyz", "/healthz"]
    assert named("Deployment", "api")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    gpu = named("Deployment", "worker-gpu")["spec"]
    assert gpu["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert gpu["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_the_proxy_lets_through_what_the_service_takes() -> None:
    told = named("Ingress", "api")["metadata"]["annotations"]
    name = "nginx.ingress.kubernetes.io/"
    assert told[f"{name}proxy-body-size"] == f"{Settings().max_upload_bytes >> 30}g"
    assert told[f"{name}proxy-buffering"] == told[f"{name}proxy-request-buffering"] == "off"
