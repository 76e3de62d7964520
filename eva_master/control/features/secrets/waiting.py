"""Jobs wait while a secret is missing that they use.

A job of which a secret is missing is in no plan, unless tasks of it run: these stay where they are,
and no other task of it is given a place. Its next attempts start once the secret is set.
"""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control import suspending
from eva_master.control.context import Context
from eva_master.control.features.secrets.memory import SecretsMemory
from eva_master.model.actions import Reply
from eva_master.model.events import SecretChanged, SecretsListed, SecretsRefused
from eva_master.model.records import Job, StopReason, TaskRun
from eva_master.model.secrets import SecretName
from eva_master.model.values import replace
from eva_wire.values.states import TERMINAL_JOB, JobState, RunState


def settle(context: Context, job: Job) -> None:
    """Note which secrets of a job are missing now."""
    needs = job.spec.needed_secrets
    if needs is None or job.state in TERMINAL_JOB:
        return
    if (present := context.memory(SecretsMemory).present) is None:
        return
    missing = tuple(name for name in needs.names if present.isdisjoint(needs.of(name)))
    if missing == job.missing_secrets:
        return
    changed = replace(job, missing_secrets=missing)
    if job.state is JobState.PENDING:
        changed = changed if missing else suspending.awake(context, changed)
        changed = suspending.at_rest(context, changed)
    context.put_job(changed)
    context.plan_wanted = True


def give_back(context: Context, job: Job, runs: Iterable[TaskRun]) -> None:
    """Have task runs give back the places that they cannot start at, since a secret is missing."""
    if not job.missing_secrets:
        return
    for run in runs:
        if run.target is None or run.target == run.instance:
            continue
        if run.state is RunState.RUNNING:
            context.turn_back(run, run.target)
        elif run.state in (RunState.WAITING, RunState.STOPPING):
            context.retarget(run, None)


def follow(context: Context, event: SecretChanged | SecretsListed | SecretsRefused) -> None:
    """Take in which secrets are set, and which could not be handed over."""
    match event:
        case SecretsListed():
            _listed(context, event)
        case SecretChanged():
            _changed(context, event)
        case SecretsRefused():
            _refused(context, event)


def _listed(context: Context, event: SecretsListed) -> None:
    """The master says which secrets are set, as it starts."""
    memory = context.memory(SecretsMemory)
    memory.present = set(event.secrets)
    for job in memory.jobs:
        context.touch_job(job)


def _changed(context: Context, event: SecretChanged) -> None:
    """A secret was set or removed."""
    memory = context.memory(SecretsMemory)
    if memory.present is None:
        memory.present = set()
    (memory.present.add if event.present else memory.present.discard)(event.secret)
    _touch_users(context, [event.secret])
    context.outbox.add(Reply(event.command, None, owner=event.owner))


def _refused(context: Context, event: SecretsRefused) -> None:
    """An attempt could not be started: the store has no such secrets, or cannot read them."""
    run, memory = context.state.runs.get(event.run), context.memory(SecretsMemory)
    if memory.present is not None:
        memory.present.difference_update(event.secrets)
    _touch_users(context, event.secrets)
    if run is not None and run.state is RunState.STARTING and run.attempt == event.attempt:
        context.stop(run, StopReason.SECRET)


def _touch_users(context: Context, secrets: Iterable[SecretName]) -> None:
    """Have jobs converged that may use any of some secrets."""
    changed = set(secrets)
    for name in context.memory(SecretsMemory).jobs:
        needs = context.state.jobs[name].spec.needed_secrets
        if needs is not None and any(changed & {*needs.of(each)} for each in needs.names):
            context.touch_job(name)
