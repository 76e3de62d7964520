"""The methods of the users' port: who may call each, and who repeats a call that got no answer.

A method is added with a row here. One without a row is refused by the server, whoever calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from eva_wire.values.users import Role


class RetryRule(Enum):
    """Reactions of the client's channel when the master is not reached, or goes away meanwhile."""

    READ = "read"
    """Asks again, but not for long: somebody waits."""
    COMMAND = "command"
    """Asks again until a restarted master is back: a command is carried out once, by its id."""
    NEVER = "never"
    """Reports the failure: a repetition might be carried out too, or has to be made anew."""


class CallLine(Enum):
    """Where calls of one user wait for each other; those in different lines never do."""

    CALLS = "calls"
    FILES = "files"
    """Methods that have a job file parsed, which takes time."""
    UPLOADS = "uploads"
    DOWNLOADS = "downloads"
    """Methods that list files of tasks and send them."""
    TOKENS = "tokens"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table.

    Attributes:
        role: The least role that may call it; `None` for callers without a token.
        retry: Whether a call may be repeated.
        line: Which calls of the same user it may have to wait for.
    """

    role: Role | None
    retry: RetryRule
    line: CallLine = CallLine.CALLS


METHODS: Mapping[str, Method] = {
    "/eva.api.v1.Jobs/Submit": Method(Role.USER, RetryRule.COMMAND, CallLine.FILES),
    "/eva.api.v1.Jobs/Check": Method(Role.USER, RetryRule.READ, CallLine.FILES),
    "/eva.api.v1.Jobs/Get": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Jobs/List": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Jobs/Cancel": Method(Role.USER, RetryRule.COMMAND),
    "/eva.api.v1.Jobs/Suspend": Method(Role.USER, RetryRule.COMMAND),
    "/eva.api.v1.Jobs/Resume": Method(Role.USER, RetryRule.COMMAND),
    "/eva.api.v1.Jobs/Retry": Method(Role.USER, RetryRule.COMMAND),
    "/eva.api.v1.Jobs/Move": Method(Role.USER, RetryRule.COMMAND),
    "/eva.api.v1.Jobs/Watch": Method(Role.VIEWER, RetryRule.READ, CallLine.STREAMS),
    "/eva.api.v1.Jobs/Logs": Method(Role.VIEWER, RetryRule.READ, CallLine.STREAMS),
    # A command must not be carried out twice. Pages are for viewers, tasks for users.
    "/eva.api.v1.Jobs/Attach": Method(Role.VIEWER, RetryRule.NEVER, CallLine.STREAMS),
    "/eva.api.v1.Jobs/Plan": Method(Role.VIEWER, RetryRule.READ, CallLine.FILES),
    "/eva.api.v1.Jobs/MissingBlobs": Method(Role.USER, RetryRule.READ),
    # The client repeats it with new chunks.
    "/eva.api.v1.Jobs/PutBlob": Method(Role.USER, RetryRule.NEVER, CallLine.UPLOADS),
    # A file of another user's is refused, unless it is a log.
    "/eva.api.v1.Files/List": Method(Role.VIEWER, RetryRule.READ, CallLine.DOWNLOADS),
    "/eva.api.v1.Files/Get": Method(Role.VIEWER, RetryRule.READ, CallLine.DOWNLOADS),
    "/eva.api.v1.Files/Table": Method(Role.VIEWER, RetryRule.READ, CallLine.DOWNLOADS),
    "/eva.api.v1.Files/Collect": Method(Role.OPERATOR, RetryRule.READ, CallLine.DOWNLOADS),
    "/eva.api.v1.Files/Remove": Method(Role.USER, RetryRule.COMMAND),
    "/eva.api.v1.Cluster/Describe": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Cost": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Tenants": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Partitions": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Config": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Interference": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Estimates": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Explain": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Overview": Method(Role.VIEWER, RetryRule.READ),
    "/eva.api.v1.Cluster/Events": Method(Role.VIEWER, RetryRule.READ, CallLine.STREAMS),
    "/eva.api.v1.Cluster/Drain": Method(Role.OPERATOR, RetryRule.COMMAND),
    "/eva.api.v1.Secrets/Set": Method(Role.USER, RetryRule.COMMAND, CallLine.TOKENS),
    "/eva.api.v1.Secrets/List": Method(Role.USER, RetryRule.READ, CallLine.TOKENS),
    "/eva.api.v1.Secrets/Remove": Method(Role.USER, RetryRule.COMMAND, CallLine.TOKENS),
    "/eva.api.v1.Notices/List": Method(Role.OPERATOR, RetryRule.READ, CallLine.TOKENS),
    # Each call sends another notice.
    "/eva.api.v1.Notices/Test": Method(Role.OPERATOR, RetryRule.NEVER, CallLine.TOKENS),
    # Each call makes another token.
    "/eva.api.v1.Tokens/Create": Method(Role.OPERATOR, RetryRule.NEVER, CallLine.TOKENS),
    "/eva.api.v1.Tokens/List": Method(Role.OPERATOR, RetryRule.READ, CallLine.TOKENS),
    "/eva.api.v1.Tokens/Revoke": Method(Role.OPERATOR, RetryRule.COMMAND, CallLine.TOKENS),
    "/eva.api.v1.Tokens/WhoAmI": Method(Role.VIEWER, RetryRule.READ, CallLine.TOKENS),
    # Each call makes another code.
    "/eva.api.v1.Tokens/Login": Method(Role.VIEWER, RetryRule.NEVER, CallLine.TOKENS),
    # A proof is good once; the client makes another.
    "/eva.api.v1.Identities/Challenge": Method(None, RetryRule.READ),
    "/eva.api.v1.Identities/Prove": Method(None, RetryRule.NEVER),
    # Each call makes another token.
    "/eva.api.v1.Nodes/Token": Method(Role.OPERATOR, RetryRule.NEVER, CallLine.TOKENS),
    "/eva.api.v1.Nodes/Act": Method(Role.OPERATOR, RetryRule.COMMAND),
    "/eva.api.v1.Nodes/List": Method(Role.VIEWER, RetryRule.READ),
    "/eva.worker.v1.Enrolment/JoinNode": Method(None, RetryRule.NEVER),
    # An instance that joins brings a proof of its own, and asks again by itself.
    "/eva.worker.v1.Enrolment/Join": Method(None, RetryRule.NEVER),
}
