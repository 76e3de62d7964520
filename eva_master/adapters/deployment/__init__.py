"""Deploys, changes and tears down a cluster in an AWS account with a CloudFormation template."""

from __future__ import annotations

from eva_master.adapters.deployment.bundles import Bundles, find_bundles
from eva_master.adapters.deployment.network import ExistingNetwork, address_of, find_network
from eva_master.adapters.deployment.stack import Change, Stack
from eva_master.adapters.deployment.teardown import Teardown, client_parameter

__all__ = [
    "Bundles",
    "Change",
    "ExistingNetwork",
    "Stack",
    "Teardown",
    "address_of",
    "client_parameter",
    "find_bundles",
    "find_network",
]
