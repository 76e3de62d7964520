"""`eva run` against a real cluster: the directory, the log, the exit code, Ctrl-C."""

from __future__ import annotations

import signal
import subprocess

from tests.e2e.arrays.test_array_jobs import BOX
from tests.e2e.cluster import EVA, until
from tests.e2e.conftest import Clusters
from tests.fakes.patience import DEADLINE_S

LONG = """
trap 'echo stopping; exit 0' TERM
echo begun
while :; do sleep 0.1; done
"""


def test_a_command_runs_in_a_copy_of_this_directory(make_cluster: Clusters) -> None:
    cluster = make_cluster(catalog={"types": BOX, "only": ["e2e"]})
    here = cluster.home / "record" / "work"
    here.mkdir()
    (here / "say.sh").write_text('echo "$1 from $WHERE"; exit 7\n')
    (here / "vars").write_text("WHERE='a file'\n")

    def process(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*EVA, "run", "--memory", "64MiB", *arguments],
            cwd=here,
            env=cluster.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    quick = process("--env-file", "vars", "bash", "say.sh", "hello you")
    out, err = quick.communicate(timeout=DEADLINE_S)
    assert (quick.returncode, out) == (7, "hello you from a file\n"), err
    (job,) = cluster.client.jobs(ended=True)
    assert (job.name, job.state, job.failures) == ("say", "failed", 1)

    (here / "out").mkdir()
    (here / "out" / "mine").write_text("kept")
    writes = 'mkdir "$EVA_STORAGE/outputs/d"; echo 1 >"$EVA_STORAGE/outputs/d/a"'
    fetched = process("--name", "writes", "--out", "out", writes)
    out, err = fetched.communicate(timeout=DEADLINE_S)
    assert (fetched.returncode, out) == (0, ""), err
    assert "writes-2: fetched 1 file (2 bytes) to out" in err
    assert [(here / "out" / name).read_text() for name in ("d/a", "mine")] == ["1\n", "kept"]
    again = process("--name", "writes", "--out", "out", writes.replace("1", "2"))
    _, err = again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 1, err
    assert "`eva get writes-3 --to DIR` fetches the outputs later" in err
    assert (here / "out" / "d" / "a").read_text() == "1\n"
    assert cluster.eva("get", "writes-3", "--to", str(here / "out"), "--force").returncode == 0
    assert (here / "out" / "d" / "a").read_text() == "2\n"

    # Ctrl-C of a terminal, while the command runs.
    long = process("--name", "long", LONG)
    assert long.stdout is not None
    assert long.stdout.readline() == "begun\n"
    long.send_signal(signal.SIGINT)
    out, err = long.communicate(timeout=DEADLINE_S)
    assert long.returncode == 130, err
    assert out.endswith("stopping\n")
    assert "begun" not in out
    assert "cancelling long-4 and waiting for its end" in err
    assert cluster.client.job("long-4").state == "cancelled"
    waited = cluster.eva("wait", "long", job.id)
    assert waited.returncode == 130, waited.stderr
    until(lambda: not list(cluster.client.jobs()), "nothing is left")
