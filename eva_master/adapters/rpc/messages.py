"""The messages of eva.api.v1, for those who show them or make them up in tests."""

from eva_master.adapters.rpc._proto.api_pb2 import (
    Bill,
    ClusterState,
    Instance,
    InstanceCost,
    Interference,
    Job,
    JobCost,
    Learned,
    LearnedDelay,
    Placement,
    PlanResponse,
    Resources,
    StandaloneRate,
    Task,
    Token,
)

__all__ = [
    "Bill",
    "ClusterState",
    "Instance",
    "InstanceCost",
    "Interference",
    "Job",
    "JobCost",
    "Learned",
    "LearnedDelay",
    "Placement",
    "PlanResponse",
    "Resources",
    "StandaloneRate",
    "Task",
    "Token",
]
