"""The images of docker/: built with buildah from Debian's packages, without a registry, and run with podman.

A service of two containers without a network trains a job: the sockets of PostgreSQL and of the controller are in
folders that the containers share."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile

import pytest

from service_fixture import BIN, PATIENCE, ROOT, descendants, process_start_time, wait_until

BUILD = ROOT / "docker" / "build"
LACKING = [name for name in ("buildah", "mmdebstrap", "podman") if not shutil.which(name)]
UID = 65532
EPOCH = "1700000000"
COMPOSE = ROOT / "docker" / "compose.yaml"
COMPOSE_VALUES = {"POSTGRES_PASSWORD": "secret", "TRAINYARD_DATA": "/srv/data"}

waits = pytest.mark.waits
needs_tools = pytest.mark.skipif(
    bool(LACKING), reason=f"no {', '.join(LACKING)}: apt-get install buildah mmdebstrap podman runc"
)


def run(*command, status=0, **more):
    done = subprocess.run(
        [str(word) for word in command], text=True, capture_output=True, timeout=300 * PATIENCE, **more
    )
    assert (
        status is None or done.returncode == status
    ), f"{command}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


class Images:
    """A store of images of its own, which is removed with its folder."""

    def __init__(self, directory):
        self.directory = directory
        (directory / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{directory}/images"\nrunroot = "{directory}/run"\n'
        )
        self.environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "SOURCE_DATE_EPOCH": EPOCH,
            "TMPDIR": str(directory),
        }
        run("cmake", "--install", BIN.parent, "--prefix", directory / "installed", "--strip")

    def build(self, image, *options, status=0):
        return run(
            BUILD, "--programs", self.directory / "installed", *options, image, status=status, env=self.environment
        )

    def digest(self, name):
        return run("buildah", "images", "--format", "{{.Digest}} {{.ID}}", name, env=self.environment).stdout.strip()

    def podman(self, *arguments, **more):
        return run("podman", "--cgroup-manager", "cgroupfs", *self.runtime, *arguments, env=self.environment, **more)

    # No more files and processes than the tests themselves may have: raising the limits needs a right of its own.
    LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")

    def choose_runtime(self):
        """runc or crun; skips the test if neither runs a container on this kernel."""
        said = []
        for runtime in ("runc", "crun"):
            self.runtime = ("--runtime", runtime)
            tried = self.podman(
                "run", "--rm", *self.LIMITS, "--network=none", "localhost/trainyard-executor", "--version", status=None
            )
            if tried.returncode == 0:
                print(f"containers run with podman and {runtime}")
                return
            said.append(f"{runtime}: {tried.stderr.strip()[-200:]}")
        pytest.skip("podman runs no container here: " + "; ".join(said))


@pytest.fixture(scope="module")
def images():
    with tempfile.TemporaryDirectory(prefix="ty-img-") as directory:
        images = Images(pathlib.Path(directory))
        built = images.build("executor", "--root", images.directory / "root.tar", status=None)
        if "mmdebstrap cannot make" in built.stderr:
            pytest.skip("no mirror of Debian can be reached: run docker/build executor elsewhere")
        assert built.returncode == 0, built.stderr
        images.build("controller", "--root", images.directory / "root.tar")
        yield images


@waits
@needs_tools
def test_the_same_programs_and_packages_give_an_image_with_the_same_digest(images):
    images.build("executor", "--tag", "localhost/again", "--archive", images.directory / "again.tar")
    assert images.digest("localhost/again") == images.digest("localhost/trainyard-executor")
    assert (images.directory / "again.tar").stat().st_size < 100 << 20


@waits
@needs_tools
def test_the_bill_of_materials_names_what_is_installed_and_the_program_runs_as_nobody(images):
    images.choose_runtime()

    def shell(image, command):
        return images.podman(
            "run",
            "--rm",
            *images.LIMITS,
            "--network=none",
            "--entrypoint",
            "/bin/sh",
            f"localhost/trainyard-{image}",
            "-euc",
            command,
        ).stdout

    for image in ("controller", "executor"):
        bill = json.loads(shell(image, "cat /usr/share/trainyard/sbom.spdx.json"))
        listed = {(p["name"], p["versionInfo"]) for p in bill["packages"] if "versionInfo" in p}
        there = shell(image, "dpkg-query -W -f '${Package} ${Version}\\n'")
        assert listed == {tuple(line.split()) for line in there.splitlines()} and len(listed) > 50
        assert bill["spdxVersion"] == "SPDX-2.3" and bill["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
        assert shell(image, "id -u").strip() == str(UID)
        assert not shell(image, "for p in /usr/bin/trainyard*; do ldd $p | grep 'not found' || true; done")
        assert not shell(image, "find / -xdev -perm /6000 -type f -writable 2>/dev/null || true")


@waits
@needs_tools
def test_the_cuda_image_adds_the_plugin_and_nvidias_libraries(images):
    plugin, libraries = BIN.parent / "lib" / "libtrainyard_cuda.so", ROOT / "build" / "cuda" / "nvidia"
    if not plugin.exists() or not libraries.exists():
        pytest.skip(
            "no CUDA plugin or no libraries of NVIDIA: ./dev cuda and ./dev setup with nvcc, then run this test"
        )
    images.choose_runtime()
    images.build("cuda")
    listed = images.podman(
        "run",
        "--rm",
        *images.LIMITS,
        "--network=none",
        "--entrypoint",
        "/bin/sh",
        "localhost/trainyard-cuda",
        "-euc",
        "ls /usr/lib/libtrainyard_cuda.so $TRAINYARD_LIBRARY_PATH; cat /usr/share/trainyard/sbom.spdx.json",
    ).stdout
    assert "libcublasLt" in listed and "pkg:pypi/nvidia-nccl-cu13@" in listed and "pkg:deb/" in listed


@contextlib.contextmanager
def postgres(directory):
    """A server that any user of the machine reaches by a socket in directory/socket."""
    tools = pathlib.Path(run("pg_config", "--bindir").stdout.strip())
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    for name, mode in (("socket", 0o777), ("cluster", 0o700)):
        shutil.rmtree(directory / name, ignore_errors=True)  # of an earlier server
        (directory / name).mkdir()
        (directory / name).chmod(mode)
    if as_user:
        shutil.chown(directory / "cluster", "postgres")
    run(
        *as_user,
        tools / "initdb",
        "-D",
        directory / "cluster",
        "--auth=trust",
        "--username=trainyard",
        "--no-sync",
        cwd="/",
    )
    server = subprocess.Popen(
        [
            *as_user,
            tools / "postgres",
            "-D",
            directory / "cluster",
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            f"unix_socket_directories={directory}/socket",
        ],
        cwd="/",
        stderr=open(directory / "pg.log", "w"),
    )
    try:
        wait_until((directory / "socket" / ".s.PGSQL.5432").exists, 60, "PostgreSQL listens")
        yield
    finally:
        server.terminate()
        server.wait(60 * PATIENCE)


@waits
@needs_tools
def test_the_containers_train_a_job_and_a_stopped_executor_drains(images, tiny, text_file):
    images.choose_runtime()
    directory = images.directory
    directory.chmod(0o755)
    for name in ("sockets", "checkpoints", "state", "data"):
        (directory / name).mkdir(mode=0o750)
        os.chown(directory / name, UID, UID)
    shutil.copy(text_file, directory / "data" / "text.txt")
    os.chown(directory / "data" / "text.txt", UID, UID)
    common = [
        *images.LIMITS,
        "--network=none",
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        f"--volume={directory}/sockets:/run/trainyard",
        f"--volume={directory}/checkpoints:/checkpoints",
    ]
    base = [*common, f"--volume={directory}/socket:/postgres"]
    database = ("--database", "host=/postgres user=trainyard dbname=postgres")
    address = "unix:/run/trainyard/controller.sock"

    def trainyard(*arguments, **more):
        return images.podman(
            "exec",
            "--interactive",
            "--env",
            f"TRAINYARD_CONTROLLER={address}",
            "controller",
            "trainyard",
            *arguments,
            **more,
        ).stdout

    with postgres(directory), contextlib.ExitStack() as stack:
        images.podman("run", "--rm", *base, "localhost/trainyard-controller", "migrate", *database, "--wait", "60")
        stack.callback(images.podman, "rm", "--force", "--time=10", "--all", status=None)
        images.podman(
            "run",
            "--detach",
            "--name=controller",
            *base,
            "localhost/trainyard-controller",
            *database,
            "--listen",
            address,
            "--checkpoints",
            "/checkpoints",
            "--http",
            "127.0.0.1:7701",
        )
        wait_until(
            lambda: images.podman(
                "exec", "controller", "/usr/libexec/trainyard/probe", "healthz", status=None
            ).returncode
            == 0,
            60,
            "the controller leads",
        )
        images.podman(
            "run",
            "--detach",
            "--name=executor",
            *common,
            f"--volume={directory}/state:/var/lib/trainyard",
            f"--volume={directory}/data:/data:ro",
            "localhost/trainyard-executor",
            "--controller",
            address,
            "--directory",
            "/var/lib/trainyard/executor",
            "--checkpoint-root",
            "/checkpoints",
            "--data-root",
            "/data",
            "--slots",
            "2",
        )
        wait_until(lambda: "ATTACHED" in trainyard("executors"), 60, "the executor attaches")

        def submit(**more):
            spec = tiny(data=2, **more)
            spec["data"]["text"]["files"] = ["file:///data/text.txt"]
            return trainyard("submit", "-", input=json.dumps(spec)).strip()

        trainyard("watch", submit(steps=5))  # exit status 0: it SUCCEEDED

        job = submit(steps=1_000_000, every=1_000_000, train__learning_rate_schedule={"constant": {}})
        wait_until(
            lambda: int(json.loads(trainyard("get", job, "-o", "json")).get("step", 0)) > 0, 60, "the job trains"
        )
        images.podman("stop", "--time=120", "executor")
        assert images.podman("inspect", "--format={{.State.ExitCode}}", "executor").stdout.strip() == "0"
        left = json.loads(trainyard("get", job, "-o", "json"))
        assert left["state"] == "QUEUED" and left.get("restarts", 0) == 0
        stored = json.loads(trainyard("checkpoints", job, "-o", "json"))["checkpoints"]
        assert [c["state"] for c in stored] == ["COMMITTED"], "it was asked for one as it left"
        images.podman("start", "executor")
        wait_until(lambda: json.loads(trainyard("get", job, "-o", "json"))["state"] == "RUNNING", 60, "it runs again")
        trainyard("cancel", job)


def kubernetes_pods():
    """The pods of the variant for CPUs, by name, as kubectl renders them."""
    python = os.environ.get("TRAINYARD_KUBERNETES_PYTHON")
    if not python:
        pytest.skip("TRAINYARD_KUBERNETES_PYTHON is not set (tests/README.md)")
    text = run(pathlib.Path(python).parent / "kubectl", "kustomize", ROOT / "deploy" / "kubernetes" / "cpu").stdout
    program = "import json, sys, yaml\nprint(json.dumps(list(yaml.safe_load_all(sys.stdin))))"
    objects = json.loads(run(python, "-c", program, input=text).stdout)
    return {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if o["kind"] in ("Deployment", "DaemonSet")}


class Node:
    """Runs the containers of the manifests with podman, with their own arguments, mounts and security."""

    def __init__(self, images, variables):
        self.images, self.variables, self.directory = images, variables, images.directory / "node"
        self.directory.mkdir()
        (self.directory / "hosts").write_text("127.0.0.1 localhost trainyard-controller\n")

    def folder(self, volume):
        """What Kubernetes mounts for a volume: the group of the pod may write it, or read it if it is a Secret."""
        kind, more = next((kind, more) for kind, more in volume.items() if kind != "name")
        path = self.directory / (more.get("secretName") or more.get("claimName") or volume["name"])
        if not path.exists():
            path.mkdir()
        if kind == "secret":
            for file in path.iterdir():
                file.chmod(more["defaultMode"])
        path.chmod(0o777 if kind == "emptyDir" else 0o2770)
        for one in (path, *path.iterdir()):
            os.chown(one, 0, UID)
        return path

    def run(self, pod, container, *options):
        context, volumes = container["securityContext"], {v["name"]: v for v in pod["volumes"]}
        words = ["run", *options, *self.images.LIMITS]
        words += [f"--user={pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"]
        words += ["--read-only"] * context["readOnlyRootFilesystem"] + ["--security-opt=no-new-privileges"]
        words += [f"--cap-drop={name}" for name in context["capabilities"]["drop"]]
        for mount in container.get("volumeMounts", []):
            mode = ":ro" if mount.get("readOnly") else ""
            words.append(f"--volume={self.folder(volumes[mount['name']])}:{mount['mountPath']}{mode}")
        values = dict(self.variables) if "envFrom" in container else {}
        values.update({e["name"]: e.get("value", "127.0.0.1") for e in container.get("env", [])})
        words += [f"--env={name}={value}" for name, value in values.items()]
        arguments = [word.replace("$(POD_IP)", values.get("POD_IP", "")) for word in container["args"]]
        words += [f"--volume={self.images.directory}/socket:/postgres", f"--volume={self.directory}/hosts:/etc/hosts:ro"]
        return self.images.podman(*words, container["image"], *arguments)


@waits
@needs_tools
def test_the_pods_of_kubernetes_train_a_job_with_tls_and_a_token(images, tiny, text_file):
    """No cluster: podman runs each container as the manifest says, both in one network without interfaces."""
    images.choose_runtime()
    pods = kubernetes_pods()
    controller, executor = pods["trainyard-controller"], pods["trainyard-executor"]
    images.directory.chmod(0o755)
    node = Node(images, {"PGHOST": "/postgres", "PGUSER": "trainyard"})
    for name in ("trainyard-controller-tls", "trainyard-executor-tls", "trainyard-executor-token", "trainyard-data"):
        (node.directory / name).mkdir()
    shutil.copy(text_file, node.directory / "trainyard-data" / "text.txt")
    (node.directory / "trainyard-data" / "text.txt").chmod(0o644)
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    script = f"{new} -x509 -days 2 -subj /CN=ca -keyout ca.key -out ca.crt\n" + "".join(
        f"{new} -subj /CN={name} -addext subjectAltName=DNS:{name} -keyout {folder}/tls.key -out request\n"
        f"openssl x509 -req -in request -CA ca.crt -CAkey ca.key -days 2 -copy_extensions copy -out {folder}/tls.crt\n"
        f"cp ca.crt {folder}\n"
        for name, folder in (("trainyard-controller", "trainyard-controller-tls"), ("executors", "trainyard-executor-tls"))
    )
    run("bash", "-euc", script, cwd=node.directory)

    def trainyard(*arguments, **more):
        return images.podman("exec", "--interactive", "controller", "trainyard", *arguments, **more).stdout

    with postgres(images.directory), contextlib.ExitStack() as stack:
        bindir = pathlib.Path(run("pg_config", "--bindir").stdout.strip())
        run(bindir / "createdb", "--host", images.directory / "socket", "--username=trainyard", "trainyard")
        for name in ("controller", "executor"):  # the executor goes first: it is in the network of the other
            stack.callback(images.podman, "rm", "--force", "--ignore", "--time=1", name)
        node.run(controller, controller["initContainers"][0], "--rm", "--network=none")
        node.run(controller, controller["containers"][0], "--detach", "--name=controller", "--network=none")
        probes = [controller["containers"][0][f"{kind}Probe"]["exec"]["command"] for kind in ("readiness", "liveness")]
        for probe in probes:
            wait_until(lambda: images.podman("exec", "controller", *probe, status=None).returncode == 0, 60, f"{probe} answers")
        (node.directory / "trainyard-executor-token" / "token").write_text(
            trainyard("token", "create", "executors", "--role", "EXECUTOR", "--shared"))
        node.run(executor, executor["containers"][0], "--detach", "--name=executor", "--network=container:controller")
        wait_until(lambda: "ATTACHED" in trainyard("executors"), 60, "the executor attaches")
        spec = tiny(steps=5)
        spec["data"]["text"]["files"] = ["file:///data/text.txt"]
        trainyard("watch", trainyard("submit", "-", input=json.dumps(spec)).strip())  # exit status 0: it SUCCEEDED


def mounts_below(directory, process="self"):
    try:
        lines = pathlib.Path(f"/proc/{process}/mounts").read_text().splitlines()
    except OSError:  # the process has ended
        return []
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{directory}/")]


# Takes the place of mmdebstrap if it is not installed or has no mirror: mounts below TMPDIR, and runs until it is killed.
STAND_IN = """#!/bin/sh
mkdir "$TMPDIR/root" && mount -t tmpfs none "$TMPDIR/root" && exec tail -f /dev/null
"""


@waits
@pytest.mark.skipif(os.geteuid() != 0, reason="docker/build and mounts need root")
@pytest.mark.parametrize("program", ["mmdebstrap", "stand-in"])
def test_a_killed_build_leaves_no_mount_below_its_temporary_folder(tmp_path, program):
    if program == "mmdebstrap" and not shutil.which("mmdebstrap"):
        pytest.skip("no mmdebstrap: apt-get install mmdebstrap")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("the kernel permits no namespaces of mounts and processes")
    programs, tools, directory = (tmp_path / name for name in ("programs/bin", "tools", "tmp"))
    for folder in (programs, tools, directory):
        folder.mkdir(parents=True)
    shutil.copy(BIN / "trainyard-train", programs)
    tools_texts = {"buildah": "#!/bin/sh\n"} | ({"mmdebstrap": STAND_IN} if program == "stand-in" else {})
    for name, text in tools_texts.items():  # the image itself is not built
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for folder in (directory, *directory.parents):
        if folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o055)  # apt's own user downloads packages
    build = subprocess.Popen([BUILD, "--programs", programs.parent, "executor"], start_new_session=True,
                             env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(directory)},
                             stdout=subprocess.DEVNULL, stderr=open(tmp_path / "log", "w"))
    try:
        wait_until(lambda: any(mounts_below(directory, p) for p in descendants(build.pid)) or build.poll() is not None, 100,
                   "mmdebstrap mounts something")
        if build.poll() is not None and "mmdebstrap cannot make" in (tmp_path / "log").read_text():
            pytest.skip("no mirror of Debian can be reached")
        assert build.poll() is None, (tmp_path / "log").read_text()
        running = {p: process_start_time(p) for p in descendants(build.pid)}
        os.killpg(build.pid, signal.SIGKILL)
        build.wait()
        wait_until(lambda: not any(start and process_start_time(p) == start for p, start in running.items()), 60, "all have ended")
        assert mounts_below(directory) == []
    finally:
        for mount in reversed(mounts_below(directory)):  # pytest deletes the folder later
            subprocess.run(["umount", "--lazy", mount])


def test_the_compose_file_gives_only_options_that_the_programs_have():
    services = re.split(r"^  (?=\w+:$)", COMPOSE.read_text().split("\nnetworks:")[0], flags=re.M)
    commands = {text.split(":")[0]: re.findall(r"--[a-z-]+", re.sub("#.*", "", text)) for text in services[1:]}
    for service, program in {"migrate": "controller", "controller": "controller", "executor": "executor"}.items():
        known = run(BIN / f"trainyard-{program}", "--help").stdout
        assert commands[service] and all(re.search(rf"{option}\b", known) for option in commands[service]), commands[service]


def test_the_compose_file_is_valid_and_names_what_is_missing():
    if not shutil.which("docker-compose"):
        pytest.skip("no docker-compose: apt-get install docker-compose")
    done = run("docker-compose", "-f", COMPOSE, "config", env={**os.environ, **COMPOSE_VALUES})
    assert "condition: service_completed_successfully" in done.stdout and "/srv/data:/data:ro" in done.stdout
    for name in COMPOSE_VALUES:
        others = {key: value for key, value in COMPOSE_VALUES.items() if key != name}
        failed = run("docker-compose", "-f", COMPOSE, "config", env={**os.environ, **others}, status=None)
        assert failed.returncode != 0 and "set " in failed.stderr


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("executor", "controller"), "builds one image at a time"),
        (("--tag",), "--tag needs a value"),
    ],
)
def test_a_wrong_command_line_of_build_gets_one_sentence(arguments, sentence):
    assert sentence in run(BUILD, *arguments, status=1).stderr
