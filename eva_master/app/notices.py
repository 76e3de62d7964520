"""Wiring of receivers of notices."""

from __future__ import annotations

from sqlalchemy import Engine

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.notices.outbox import NoticeOutbox
from eva_master.adapters.notices.receivers import require_files
from eva_master.adapters.notices.sender import NoticeSender
from eva_master.adapters.store import SqlArchive
from eva_master.app.config import MasterConfig
from eva_master.ports import Clock


def notice_sender(
    config: MasterConfig, engine: Engine, gateway: LoopGateway, clock: Clock
) -> NoticeSender:
    """The sender of notices to the receivers of the settings; it is yet to be started.

    Args:
        config: The settings.
        engine: The journal's database.
        gateway: Tells that there are events.
        clock: The loop's time.

    Raises:
        InvalidConfig: A receiver's file cannot be used.
        StorageError: The database cannot be read.
    """
    receivers = [section.receiver for section in config.notify]
    require_files(receivers)
    return NoticeSender(
        receivers,
        NoticeOutbox(engine, {receiver.name for receiver in receivers}),
        gateway=gateway,
        archive=SqlArchive(engine),
        clock=clock,
        cluster=config.cluster,
    )
