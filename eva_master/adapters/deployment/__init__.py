"""Deploys, changes and tears down a cluster in an AWS account with a CloudFormation template."""

from __future__ import annotations

from eva_master.adapters.deployment.account import Absent, Account
from eva_master.adapters.deployment.bucket import Bucket
from eva_master.adapters.deployment.bundles import stated_by, stated_in, unmade
from eva_master.adapters.deployment.network import network_of
from eva_master.adapters.deployment.preflight import Check, Preflight
from eva_master.adapters.deployment.stack import Change, Stack
from eva_master.adapters.deployment.teardown import Teardown, client_parameter

__all__ = [
    "Absent",
    "Account",
    "Bucket",
    "Change",
    "Check",
    "Preflight",
    "Stack",
    "Teardown",
    "client_parameter",
    "network_of",
    "stated_by",
    "stated_in",
    "unmade",
]
