"""Secrets in job files."""

from __future__ import annotations

import pytest

from eva_wire.jobfile import check_job
from eva_wire.values.errors import InvalidJob
from tests.unit.formats.test_jobfile import parse

JOB = """\
name: train
run: python train.py
resources: {cpus: 1, memory: 1GiB}
"""


def only_problem(text: str, **overrides: str) -> tuple[str, str, str]:
    """Key, message and hint of the only problem of a job file, by both ends alike."""
    with pytest.raises(InvalidJob) as here:
        check_job(text, file_name="job.yaml", envs=overrides)
    with pytest.raises(InvalidJob) as at_master:
        parse(text, envs=overrides)
    (problem,) = here.value.problems
    assert (problem,) == at_master.value.problems
    return problem.key, problem.message, problem.hint


def test_names_of_secrets_are_in_the_specification() -> None:
    assert parse(JOB + "secrets: [WANDB_API_KEY, HF_TOKEN]").secrets == (
        "HF_TOKEN",
        "WANDB_API_KEY",
    )
    assert parse(JOB).secrets == ()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("EVA_TOKEN", "set by the cluster"),
        ("MASTER_ADDR", "set by the cluster"),
        ("CUDA_VISIBLE_DEVICES", "set by the cluster"),
        ("a-b", "cannot be an environment variable"),
        ("'A=B'", "cannot be an environment variable"),
        ("''", "cannot be an environment variable"),
        ("'../x'", "cannot be an environment variable"),
        ("'A\\nB'", "cannot be an environment variable"),
        ("[]", "must be text"),
    ],
)
def test_a_name_is_that_of_a_variable_that_the_cluster_does_not_set(name: str, reason: str) -> None:
    key, message, _ = only_problem(JOB + f"secrets: [{name}]")
    assert key == "secrets[0]"
    assert reason in message


def test_a_secret_has_no_other_value() -> None:
    text = JOB + "secrets: [TOKEN]\n"
    key, message, hint = only_problem(text + "envs: {TOKEN: x}")
    assert (key, hint) == ("envs.TOKEN", "remove it from `secrets`, or its value")
    assert message == "TOKEN is one of the job's secrets, and has a value here"
    assert only_problem(text + "tasks: [{name: a, envs: {TOKEN: x}}]")[0] == "tasks[0].envs.TOKEN"
    assert only_problem(text, TOKEN="x")[0] == "envs.TOKEN"


def test_a_secret_is_named_once_and_there_are_few() -> None:
    assert only_problem(JOB + "secrets: [TOKEN, TOKEN]")[:2] == (
        "secrets[1]",
        "TOKEN is named twice",
    )
    many = ", ".join(f"S{number}" for number in range(65))
    assert only_problem(JOB + f"secrets: [{many}]")[0] == "secrets"
