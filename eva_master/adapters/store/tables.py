"""The schema. Databases are made and changed by the migrations; a test keeps the two equal."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()


def _checksum() -> Column[int]:
    """The CRC-32 of a row's other columns; nothing in rows that an earlier release wrote."""
    return Column("checksum", BigInteger)


JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("name", String, nullable=False),
    Column("state", String, nullable=False),
    Column("submitted_ms", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
    Column("version", Integer, nullable=False),
    # Its place in the order of submission, from the end of its id.
    Column("number", BigInteger, nullable=False, server_default="-1"),
    # When it succeeded, failed or was cancelled.
    Column("ended_ms", BigInteger),
    # The id of its submission.
    Column("command", String, nullable=False, server_default=""),
    _checksum(),
    Index("jobs_by_number", "number"),
    Index("jobs_by_end", "ended_ms"),
    Index("jobs_by_owner", "owner", "name", "number"),
    Index("jobs_by_command", "command"),
)

JOB_SPECS = Table(
    "job_specs",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("record", Text, nullable=False),
    Column("version", Integer, nullable=False),
    # Every different part of them once.
    Column("tasks", Text, nullable=False, server_default=""),
    # So many task runs, from the first on, began with the job; one without a row is as it began.
    Column("runs", Integer, nullable=False, server_default="0"),
    _checksum(),
)

TASK_RUNS = Table(
    "task_runs",
    METADATA,
    Column("id", String, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("state", String, nullable=False),
    Column("instance", String),
    Column("record", Text, nullable=False),
    Column("version", Integer, nullable=False),
    _checksum(),
    Index("task_runs_by_job", "job_id"),
)

INSTANCES = Table(
    "instances",
    METADATA,
    Column("id", String, primary_key=True),
    Column("type", String, nullable=False),
    Column("state", String, nullable=False),
    Column("up_ms", BigInteger),
    Column("gone_ms", BigInteger),
    Column("record", Text, nullable=False),
    Column("version", Integer, nullable=False),
    # Its place in the order of launches, from the end of its id.
    Column("number", BigInteger, nullable=False, server_default="-1"),
    # When the master learned that it is gone, whether the cloud ever billed it or not.
    Column("ended_ms", BigInteger),
    _checksum(),
    Index("instances_by_number", "number"),
    Index("instances_by_end", "ended_ms"),
)

# Exact money is micro-dollars per hour times milliseconds: 64 bits end at 2.56 million dollars,
# which one large instance spends in a few years, and SQLite turns larger integers (and NUMERIC)
# into floats without a word. Decimal strings stay exact everywhere.
JOB_ACCOUNTS = Table(
    "job_accounts",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("charged", String, nullable=False),
    Column("alone", String, nullable=False),
    Column("busy_ms", BigInteger, nullable=False),
    # The part of `charged` for extra runs of tasks.
    Column("replicas", String, nullable=False, server_default="0"),
    # The part for spot instances, of both, and what it would have been at prices on demand.
    Column("spot", String, nullable=False, server_default="0"),
    Column("spot_ms", BigInteger, nullable=False, server_default="0"),
    Column("listed", String, nullable=False, server_default="0"),
    Column("interruptions", BigInteger, nullable=False, server_default="0"),
    _checksum(),
)

INSTANCE_ACCOUNTS = Table(
    "instance_accounts",
    METADATA,
    Column("instance_id", String, primary_key=True),
    Column("until_ms", BigInteger, nullable=False),
    Column("charged", String, nullable=False),
    Column("idle", String, nullable=False),
    Column("closed", Boolean, nullable=False),
    # The instance's costs since it stood in each pool, as JSON; empty if it never stood in one.
    Column("standing", Text, nullable=False, server_default=""),
    _checksum(),
)

ROUNDS = Table(
    "rounds",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("planned_ms", BigInteger, nullable=False),
    Column("launches", Integer, nullable=False),
    Column("moves", Integer, nullable=False),
    Column("figures", Text, nullable=False),
    _checksum(),
)

# Of the newest rounds alone; compressed, since they name every task.
REASONS = Table(
    "reasons",
    METADATA,
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("record", LargeBinary, nullable=False),
    _checksum(),
)

FEED = Table(
    "feed",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("job", String, nullable=False),
    Column("task", String, nullable=False),
    Column("instance", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("text", Text, nullable=False),
    # Which failure of its task or gang it tells.
    Column("failure", Integer, nullable=False, server_default="0"),
    _checksum(),
    Index("feed_by_job", "job", "number"),
    Index("feed_by_instance", "instance", "number"),
    Index("feed_by_time", "at_ms"),
)

# The values of `Changes`; VALUES itself is a word of SQL.
DOCUMENTS = Table(
    "documents",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
    _checksum(),
)

# The tokens themselves are nowhere: the master derives them from its secret.
JOIN_TOKENS = Table(
    "join_tokens",
    METADATA,
    Column("instance_id", String, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("expires_ms", BigInteger, nullable=False),
    # SHA-256 of the key that the token was used for, nothing before.
    Column("public_key", String),
    Column("used_ms", BigInteger),
    _checksum(),
)

# Digests alone.
NODE_TOKENS = Table(
    "node_tokens",
    METADATA,
    Column("node", String, primary_key=True),
    Column("digest", String, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    # SHA-256 of the key of the machine that joined with it, nothing before.
    Column("public_key", String),
    Column("used_ms", BigInteger),
    _checksum(),
)

# As they were asked for, user data included; only until the instance has been seen.
LAUNCHES = Table(
    "launches",
    METADATA,
    Column("instance_id", String, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("request", Text, nullable=False),
    _checksum(),
)

USER_TOKENS = Table(
    "user_tokens",
    METADATA,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("role", String, nullable=False),
    # SHA-256 of the secret, which is nowhere.
    Column("digest", String, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    # Identity of the cloud that got it by a proof.
    Column("identity", String),
    _checksum(),
)

# Values are sealed with the key in the state directory.
SECRETS = Table(
    "secrets",
    METADATA,
    # Whether the holder is a user or a tenant.
    Column("kind", String, primary_key=True),
    Column("holder", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("set_ms", BigInteger, nullable=False),
    Column("set_by", String, nullable=False),
    # Bytes of the value.
    Column("size", Integer, nullable=False),
    # The key that it was sealed with.
    Column("key_id", String, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    _checksum(),
)

# Notices that are still to be sent.
NOTICES = Table(
    "notices",
    METADATA,
    Column("id", String, primary_key=True),
    Column("receiver", String, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("record", Text, nullable=False),
    _checksum(),
)

# How far the feed was read for notices, and how many each receiver was sent and was not.
NOTICE_MARKS = Table(
    "notice_marks",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", BigInteger, nullable=False),
    _checksum(),
)

VERSIONED = (JOBS, JOB_SPECS, TASK_RUNS, INSTANCES)
"""Tables of records, each with the version of its form."""
