"""Values that orders to start get just before they are written: rows of tables, and secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from eva_master.adapters.objects.tables import TaskTables
from eva_master.model.actions import StartTask, TaskOrder, WorkerAction
from eva_master.model.events import Phase, RunReport, SecretsRefused, WorkerReported
from eva_master.model.secrets import NeededSecrets
from eva_master.ports import Inbox, Secrets
from eva_wire._proto import worker_pb2 as pb
from eva_wire.values.errors import InvalidJob, NotFound, StorageError, UnreadableSecret
from eva_wire.values.ids import InstanceId

Completion = Callable[[pb.MasterMessage], Awaitable[bool]]
"""Completes a message; returns whether it is to be sent."""

log = structlog.get_logger(__name__)


class Starts:
    """Completes orders to start.

    Args:
        tables: Rows of tables; without them no order needs one.
        secrets: Opens secrets; without it no order needs any.
        inbox: Gets the failures of starts.
    """

    def __init__(self, tables: TaskTables | None, secrets: Secrets | None, inbox: Inbox) -> None:
        self._tables = tables
        self._secrets = secrets
        self._inbox = inbox

    def completion(self, action: WorkerAction, session: int) -> Completion | None:
        """The completion of an action's message; `None` if it is complete.

        Args:
            action: The action.
            session: Number of the worker's session.
        """
        if not isinstance(action, StartTask):
            return None
        order, steps = action.order, list[Completion]()
        if self._tables is not None and order.table:
            steps.append(partial(self._with_row, self._tables, action.instance, session, order))
        if order.secrets is not None:
            steps.append(partial(self._with_secrets, order, order.secrets))
        return partial(_in_turn, steps) if steps else None

    async def _with_secrets(
        self, order: TaskOrder, needs: NeededSecrets, message: pb.MasterMessage
    ) -> bool:
        """Add the values of an order's secrets.

        An order without one of them is dropped, and the control loop is told. The order is dropped
        and told again if the database cannot be read, or if a secret of another holder counts from
        now on.
        """
        if self._secrets is None:
            return False
        try:
            values = await asyncio.to_thread(self._secrets.values, needs)
        except UnreadableSecret as error:
            log.error("task not started", run=order.run, reason=error.message, hint=error.hint)
            missing = self._secrets.missing(needs)
            refused = tuple(secret for name in missing for secret in needs.of(name))
            if refused:
                self._inbox.post(SecretsRefused(order.run, order.attempt, refused))
        except StorageError as error:
            log.warning("secrets not read", run=order.run, reason=error.message)
        else:
            message.start.secrets.update(values)
            return True
        return False

    async def _with_row(
        self,
        tables: TaskTables,
        instance: InstanceId,
        session: int,
        order: TaskOrder,
        message: pb.MasterMessage,
    ) -> bool:
        """Add the variables of a task's row to its order.

        A start without its row is reported as failed. If the store cannot be reached the order is
        dropped, and the control loop repeats it.
        """
        try:
            row = await tables.row(order.table, order.index)
        except (NotFound, InvalidJob) as error:
            why = f"its row of the job's table cannot be read: {error.message}"
            failed = RunReport(
                order.run, order.attempt, Phase.EXITED, never_started=True, message=why
            )
            self._inbox.post(WorkerReported(instance, session, (failed,)))
        except StorageError as error:
            log.warning("table not read", run=order.run, reason=error.message)
        else:
            message.start.order.env.update(row)
            return True
        return False


async def _in_turn(steps: Sequence[Completion], message: pb.MasterMessage) -> bool:
    """Take steps until one fails; returns whether none did."""
    for step in steps:
        if not await step(message):
            return False
    return True
