"""IAM for the stand-in: policies are evaluated for every call that a role makes."""

from __future__ import annotations

from tests.fakes.aws.iam.demands import Call, demands
from tests.fakes.aws.iam.policies import Demand, Unsupported, allowed

__all__ = ["Call", "Demand", "Unsupported", "allowed", "demands"]
