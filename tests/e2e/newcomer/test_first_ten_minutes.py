"""The first ten minutes of a user: wheels in an empty environment, no checkout."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import until
from tests.fakes.installed import Installed
from tests.fakes.paths import short_tempdir
from tests.fakes.rpc.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.waits, pytest.mark.timeout(900)]

SECRET = "hf_4tXnoBodyElseWritesThis9Qz"
SCRIPT = """
import json, os, pathlib
from eva_iterator import EvaIterator, latest_checkpoint

checkpoint = latest_checkpoint()
done = int((checkpoint / "step").read_text()) if checkpoint else 0

def save(directory):
    (directory / "step").write_text(str(done))

for batch in EvaIterator(range(done, 40), checkpoint=save):
    done = batch + 1
pathlib.Path(os.environ["EVA_STORAGE"], "outputs", "model.json").write_text(json.dumps(done))
"""
TRAIN = """
name: train
workdir: .
run: python train.py
resources: {cpus: 1, memory: 512MiB}
total_steps: 40
"""
SWEEP = """
name: sweep
run: echo "lr=$LR seed=$SEED" > "$EVA_STORAGE/outputs/line"
resources: {cpus: 1, memory: 256MiB}
"""
NOTEBOOK = """
name: notebook
run: >-
  python -m jupyter_server --no-browser --port $PORT --ServerApp.token=open-sesame
  --ServerApp.root_dir="$TMPDIR" --allow-root
resources: {cpus: 1, memory: 1GiB}
envs: {PORT: "%d"}
grace_period: 5s
"""
SAFE = """
name: safe
run: printf %s "$HF_TOKEN" | sha256sum
secrets: [HF_TOKEN]
resources: {cpus: 1, memory: 256MiB}
"""


class User:
    """A user at a shell with an environment of wheels, and a cluster of their own."""

    def __init__(self, home: Path, installed: Installed) -> None:
        self.home, self.installed = home, installed
        self.state = home / "cluster"
        self.project = home / "project"
        self.project.mkdir()
        self._up: subprocess.Popen[bytes] | None = None

    def variables(self) -> dict[str, str]:
        return self.installed.environment(
            HOME=str(self.home),
            XDG_CONFIG_HOME=str(self.home / "config"),
            TMPDIR=str(self.home),
            EVA_CONFIG=str(self.state / "client.yaml"),
            DOCKER_HOST="unix:///nowhere/docker.sock",
        )

    def up(self) -> None:
        """Start a cluster as the quick start says, but on ports that are free."""
        ports = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        with (self.home / "up.log").open("wb") as log:
            self._up = subprocess.Popen(
                [
                    *(self.installed.eva, "up", "--state-dir", self.state),
                    *("--listen", ports[0], "--worker-listen", ports[1], "--metrics-port", "0"),
                ],
                cwd=self.home,
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until(lambda: "Eva is up" in (self.home / "up.log").read_text(), "the cluster is up")

    def down(self) -> None:
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            self._up.wait(120)

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.write_text(text.lstrip())
        return path

    def eva(self, *command: str | Path, stdin: str | None = None) -> str:
        """Run a command that succeeds; its output."""
        answer = self.start(*command, stdin=stdin)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def start(
        self, *command: str | Path, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.installed.eva, *command],
            cwd=self.project,
            env=self.variables(),
            input=stdin or "",
            capture_output=True,
            text=True,
            check=False,
        )

    @contextlib.contextmanager
    def beside(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command until the block is left."""
        process = subprocess.Popen(
            [self.installed.eva, *command],
            cwd=self.project,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.fixture
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    installed = Installed(tmp_path_factory.mktemp("installed") / "venv")
    home = Path(short_tempdir()) / f"first-{os.getpid()}"
    home.mkdir(mode=0o700)
    newcomer = User(home, installed)
    newcomer.up()
    try:
        yield newcomer
    finally:
        newcomer.down()
        subprocess.run(["rm", "-rf", home], check=True)


def own_script(user: User) -> None:
    """An own script is wrapped, and its outputs are fetched."""
    user.write("train.py", SCRIPT)
    user.eva("submit", "--wait", user.write("train.yaml", TRAIN))
    status = json.loads(user.eva("status", "train", "--json"))
    assert status["state"] == "succeeded"
    assert status["tasks"][0]["steps"] == 40
    user.eva("get", "train", "--to", "results")
    (model,) = (user.project / "results").rglob("model.json")
    assert json.loads(model.read_text()) == 40


def array_from_a_table(user: User) -> None:
    """An array comes from a table, and so do its metrics."""
    table = user.write("grid.csv", "name,LR,SEED\nslow,0.1,1\nfast,0.5,2\n")
    user.eva("submit", "--wait", "--array", table, user.write("sweep.yaml", SWEEP))
    user.eva("get", "sweep", "--to", "grid")
    lines = {path.read_text().strip() for path in (user.project / "grid").rglob("line")}
    assert lines == {"lr=0.1 seed=1", "lr=0.5 seed=2"}
    metrics = list(csv.DictReader(io.StringIO(user.eva("get", "--metrics", "sweep"))))
    assert [(row["name"], row["LR"], row["state"]) for row in metrics] == [
        ("slow", "0.1", "succeeded"),
        ("fast", "0.5", "succeeded"),
    ]


def shell_and_notebook(user: User) -> None:
    """A shell and a notebook in a task are reached."""
    port = free_port()
    user.eva("submit", user.write("notebook.yaml", NOTEBOOK % port))

    def runs() -> bool:
        (task,) = json.loads(user.eva("status", "notebook", "--json"))["tasks"]
        return bool(task["state"] == "running")

    until(runs, "the notebook runs")
    assert user.eva("exec", "notebook", "--", "sh", "-c", "echo $PORT").strip() == str(port)
    assert user.start("exec", "notebook", "--", "sh", "-c", "exit 7").returncode == 7
    knock = f"import socket; socket.create_connection(('127.0.0.1', {port})).close()"

    def listens() -> bool:
        return user.start("exec", "notebook", "--", "python", "-c", knock).returncode == 0

    until(listens, "the notebook listens")
    local = free_port()
    with user.beside("port-forward", "notebook", f"{port}:{local}"):

        def answers() -> dict[str, object] | None:
            url = f"http://127.0.0.1:{local}/api/status?token=open-sesame"
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    status: dict[str, object] = json.load(answer)
                    return status
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return None

        status = until(answers, "the notebook answers")
        assert status is not None
        assert "kernels" in status
    user.eva("cancel", "notebook", "-y")


def secret(user: User) -> None:
    """A secret is used, and nowhere to be found."""
    user.eva("secret", "set", "HF_TOKEN", stdin=SECRET)
    user.eva("submit", "--wait", user.write("safe.yaml", SAFE))
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert user.eva("logs", "safe").split()[0] == digest
    forms = [
        SECRET.encode(),
        base64.b64encode(SECRET.encode())[:-4],
        SECRET.encode().hex().encode(),
    ]
    files = [path for path in user.home.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if any(form in path.read_bytes() for form in forms)] == []


def bill(user: User) -> None:
    """The bill and the feed have all of it."""
    bill = json.loads(user.eva("cost", "--json"))
    assert {job["name"] for job in bill["jobs"]} >= {"train", "sweep", "safe"}
    assert "without packing" in user.eva("cost")
    kinds = {
        json.loads(line)["kind"] for line in user.eva("events", "--json", "-n", "0").splitlines()
    }
    assert kinds >= {"submitted", "placed", "succeeded", "launching", "up"}


def test_the_first_ten_minutes(user: User) -> None:
    for step in (own_script, array_from_a_table, shell_and_notebook, secret, bill):
        step(user)
