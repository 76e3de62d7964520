"""The example programs, run as an agent runs them: they learn, stop on SIGTERM and resume exactly.

The agent is a fake that takes the reports of the SDK.
"""

from __future__ import annotations

import re
import runpy
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.resolving.parse import parse_job
from eva_master.app.nodes.settings import owned_nodes
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.control.settings import Settings
from eva_master.model.fleet.nodes import offerings
from eva_wire.values.states import JobState
from tests.fakes.examples import EXAMPLES, JOB_FILES, SMALL, Agent, Attempt, Task, numbers

TORCH = pytest.param("digits_torch", marks=[pytest.mark.torch, pytest.mark.explore])
# What torchrun starts is tested as a gang.
NAMES = sorted(SMALL.keys() - {"digits_ddp"})
LIKE_OTHERS = ("digits_mlp", "ring_digits", "split_batch")
"""Examples that resume as another does; all of them are tried by `make explore`."""
RARE = {name: pytest.param(name, marks=pytest.mark.explore) for name in LIKE_OTHERS}
PROGRAMS = [{"digits_torch": TORCH, **RARE}.get(name, name) for name in NAMES]
NETWORKS = [RARE["digits_mlp"], "digits_cnn", RARE["ring_digits"], TORCH]


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    agent = Agent()
    yield agent
    agent.close()


@pytest.fixture(scope="module")
def uninterrupted(
    request: pytest.FixtureRequest, agent: Agent, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Task, Attempt]:
    """A task that ran from start to end without a stop."""
    task = Task(request.param, tmp_path_factory.mktemp(request.param), agent)
    attempt = task.run()
    assert attempt.code == 0, attempt.printed
    return task, attempt


@pytest.mark.parametrize("uninterrupted", PROGRAMS, indirect=True)
def test_resumes_exactly_after_sigterm(
    uninterrupted: tuple[Task, Attempt], agent: Agent, tmp_path: Path
) -> None:
    whole, expected = uninterrupted
    assert expected.report.steps == expected.report.total_steps == whole.steps
    task = Task(whole.name, tmp_path / "task", agent)

    stopped = task.run(stop_midway=True)
    # A loop over an `EvaIterator` ends the program; the shell script ends by itself.
    assert stopped.code == (0 if whole.name == "shell_wordcount" else 143), stopped.printed
    assert "done:" not in stopped.printed
    assert not task.results()
    assert 0 < stopped.report.steps < whole.steps
    assert (task.checkpoints / f"{stopped.report.generation:08d}").is_dir()

    resumed = task.run()
    assert resumed.code == 0, resumed.printed
    assert f"resumed at step {stopped.report.steps}\n" in resumed.printed
    assert resumed.report.steps == resumed.report.total_steps
    assert resumed.report.steps == whole.steps - stopped.report.steps
    assert resumed.report.metrics == expected.report.metrics != {}
    assert resumed.last_line == expected.last_line
    assert task.results() == whole.results() != {}


@pytest.mark.parametrize("uninterrupted", NETWORKS, indirect=True)
def test_networks_learn_to_read_digits(uninterrupted: tuple[Task, Attempt]) -> None:
    _, attempt = uninterrupted
    loss, accuracy = numbers(attempt.last_line)
    assert attempt.column(1)[0] > 3 * loss
    assert loss < 0.3
    assert accuracy > 0.92


@pytest.mark.parametrize("uninterrupted", ["heat2d"], indirect=True)
def test_heat_fades_as_the_exact_solution_says(uninterrupted: tuple[Task, Attempt]) -> None:
    _, attempt = uninterrupted
    energies = attempt.column(1)
    assert energies == sorted(energies, reverse=True)
    time, error = numbers(attempt.last_line)
    assert time > 0.1
    assert error < 1e-3


@pytest.mark.parametrize("uninterrupted", ["shell_wordcount"], indirect=True)
def test_bootstrap_brackets_the_share_in_the_text(uninterrupted: tuple[Task, Attempt]) -> None:
    task, attempt = uninterrupted
    text = (task.workdir / "declaration.txt").read_text().lower()
    words = re.sub(r"[^a-z' -]", " ", text).split()
    low, high = numbers(attempt.last_line)
    assert low < words.count("the") / len(words) < high
    assert high - low < 0.05
    draws = np.loadtxt(task.outputs / "draws.txt")
    assert len(draws) == 40 * 200
    assert abs(draws[:, 0].mean() / len(words) - 1) < 0.05


def test_rank_is_the_stationary_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODES", "300")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    program = runpy.run_path(str(EXAMPLES / "graph_rank" / "rank.py"))
    sources, targets = program["links"]()
    ranking = program["Ranking"]()
    residuals = [ranking.iterate(sources, targets) for _ in range(program["ITERATIONS_PER_TOPIC"])]

    moves = np.zeros((300, 300))
    np.add.at(moves, (targets, sources), 1 / program["LINKS_PER_NODE"])
    damping = program["DAMPING"]
    start = (1 - damping) * program["home"](0)
    expected = np.linalg.solve(np.eye(300) - damping * moves, start)
    assert residuals[0] > 0.1 > 1e-4 > residuals[-1]
    assert np.abs(ranking.rank - expected).sum() < 1e-3
    assert ranking.best.tolist() == [expected.argmax()]


@dataclass
class DataServer:
    """Serves bytes as an emulated instance does, and counts them.

    Attributes:
        url: What a task finds in ``EVA_DATA_SERVER``.
        sent: How often each byte value has been sent.
        short_by: How many bytes of every answer are held back.
    """

    url: str
    sent: np.ndarray
    short_by: int = 0


@pytest.fixture
def data_server() -> Iterator[DataServer]:
    lock = threading.Lock()
    rng = np.random.default_rng(7)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = int(parse_qs(urlparse(self.path).query)["bytes"][0])
            with lock:
                near = rng.choice(np.array([40, 200]), size=(wanted // 16, 1))
                body = (near + rng.integers(-2, 3, (wanted // 16, 16))).astype(np.uint8)
                sent = body.ravel()[: wanted - served.short_by]
                served.sent += np.bincount(sent, minlength=256)
            self.send_response(200)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent.tobytes())

        def log_message(self, *args: object) -> None:
            """Keeps the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = DataServer(f"http://127.0.0.1:{server.server_port}", np.zeros(256, np.int64))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def test_stream_counts_every_byte_of_the_data_server(
    data_server: DataServer, agent: Agent, tmp_path: Path
) -> None:
    task = Task("stream_stats", tmp_path / "task", agent, {"EVA_DATA_SERVER": data_server.url})
    assert "done:" not in task.run(stop_midway=True).printed
    assert "done:" in task.run().printed
    with np.load(task.outputs / "statistics.npz") as statistics:
        histogram, centroids = statistics["histogram"], statistics["centroids"]
    assert histogram.sum() == 200 * 128 * 1024
    np.testing.assert_array_equal(histogram, data_server.sent)
    low = centroids.mean(axis=1) < 120
    assert low.any()
    assert not low.all()
    assert np.abs(centroids[low] - 40).max() < 3
    assert np.abs(centroids[~low] - 200).max() < 3


def test_stream_fails_when_the_data_server_sends_too_little(
    data_server: DataServer, agent: Agent, tmp_path: Path
) -> None:
    data_server.short_by = 16
    task = Task("stream_stats", tmp_path / "task", agent, {"EVA_DATA_SERVER": data_server.url})
    attempt = task.run()
    assert attempt.code == 1
    assert "sent 131056 bytes of 131072" in attempt.printed


@pytest.mark.parametrize("uninterrupted", ["stream_stats"], indirect=True)
def test_stream_finds_the_clusters_that_were_generated(uninterrupted: tuple[Task, Attempt]) -> None:
    task, attempt = uninterrupted
    noise = 16 * np.arange(-16, 17).var()
    assert abs(attempt.column(1)[-1] / noise - 1) < 0.05
    with np.load(task.outputs / "statistics.npz") as statistics:
        assert statistics["weights"].sum() == 200 * 128 * 1024 / 16


def test_a_job_that_is_suspended_goes_on_at_the_step_where_it_was(
    agent: Agent, tmp_path: Path
) -> None:
    task = Task("suspend", tmp_path / "task", agent, {"STEPS": "4"}, "patient.yaml")
    stopped = task.run(stop_midway=True)
    assert stopped.code == 0, stopped.printed
    assert "done:" not in stopped.printed
    done = len(re.findall("^step ", stopped.printed, re.MULTILINE))
    assert 0 < done < task.steps
    assert stopped.report.steps == done
    resumed = task.run()
    assert resumed.code == 0, resumed.printed
    assert f"goes on at step {done}\n" in resumed.printed
    left = re.findall(r"^step (\d+)", resumed.printed, re.MULTILINE)
    assert list(map(int, left)) == list(range(done + 1, task.steps + 1))
    assert resumed.last_line == f"done: counted to {task.steps}"


@pytest.mark.parametrize("path", sorted((EXAMPLES / "suspend").glob("*.yaml")), ids=str)
def test_jobs_that_are_suspended_count_as_far_as_they_say(path: Path) -> None:
    job = parse_job(
        path.read_text(), file_name=str(path), owner="me", catalog=load_catalog(), workdir=None
    )
    source = (path.parent / "count.sh").read_text()
    env = dict(job.tasks[0].program.env)
    assert str(job.total_steps) == env.get("STEPS", "120")
    assert says_default(source, "STEPS", "120")


def test_a_fixed_node_stands_beside_launched_ones() -> None:
    """One of the example's two tasks goes to the node, an instance is launched for the other."""
    folder = EXAMPLES / "own_node"
    config = load_master_config(policies=policies(), file=folder / "master.yaml")
    nodes = owned_nodes(config.nodes)
    catalog = load_catalog()
    spec = parse_job(
        (folder / "mine.yaml").read_text(),
        file_name="mine.yaml",
        owner="me",
        catalog=(*catalog, *offerings(nodes.values())),
        workdir=None,
    )
    kind = policies()[config.policy.name]
    cluster = SimulatedCluster(catalog, kind.build(kind.config()), settings=Settings(nodes=nodes))
    cluster.submit(spec)

    def targets() -> list[str]:
        return sorted(str(run.target) for run in cluster.state.runs.values() if run.target)

    assert cluster.run(lambda: len(targets()) == len(spec.tasks) == 2)
    assert targets() == ["i00001", "rack1"]
    assert cluster.run(
        lambda: {it.state for it in cluster.state.jobs.values()} == {JobState.SUCCEEDED}
    )
    assert cluster.run(lambda: "i00001" not in cluster.state.live)
    assert list(cluster.state.live) == ["rack1"], "what was launched is given back, the node stays"
    (job,) = cluster.state.jobs.values()
    assert job.state is JobState.SUCCEEDED


def test_every_example_has_a_small_run_and_a_line_in_the_readme() -> None:
    names = {path.parent.name for path in JOB_FILES}
    assert names == set(SMALL)
    readme = (EXAMPLES / "README.md").read_text()
    assert [name for name in sorted(names) if f"`{name}/`" not in readme] == []


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_job_file_agrees_with_its_program(path: Path) -> None:
    job = parse_job(
        path.read_text(), file_name=str(path), owner="me", catalog=load_catalog(), workdir=None
    )
    task = job.tasks[0]
    words = shlex.split(task.program.run)
    (program,) = [path.parent / word for word in words if (path.parent / word).is_file()]
    env = dict(task.program.env)
    assert job.total_steps == int(env["STEPS"])
    # Started by hand, the program does what the job does.
    source = program.read_text()
    assert [name for name, value in env.items() if not says_default(source, name, value)] == []


def says_default(source: str, name: str, value: str) -> bool:
    return f'get("{name}", "{value}")' in source or f"{name}=${{{name}:-{value}}}" in source
