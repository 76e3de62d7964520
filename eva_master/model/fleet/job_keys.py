"""Keys of job files that only some policies read, and the jobs that state one in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from eva_master.model.job import UNKNOWN_TRAINING, JobSpec, Latency, Training

LATENCY, SIZES, DAG = "latency", "tasks", "dag"


def _trains(spec: JobSpec) -> Training:
    """Training of a job, so far as policies alone go by it: forks go by it under all of them."""
    return UNKNOWN_TRAINING if spec.forked else spec.training


OPTIONAL: Mapping[str, Callable[[JobSpec], bool]] = {
    "pilots": lambda spec: spec.array.pilots is not None,
    "value": lambda spec: spec.worth is not None,
    "ps": lambda spec: spec.training.ps is not None,
    "batch_size": lambda spec: _trains(spec).batch_size != UNKNOWN_TRAINING.batch_size,
    "model_size": lambda spec: _trains(spec).model is not UNKNOWN_TRAINING.model,
    "dataset_size": lambda spec: _trains(spec).dataset is not UNKNOWN_TRAINING.dataset,
    DAG: lambda spec: bool(spec.stage.dag),
    LATENCY: lambda spec: spec.latency is not Latency.AUTO,
    SIZES: lambda spec: spec.elastic.least is not None,
}
"""The keys that not every policy reads, and whether a job states one. All others are read by the
control loop, whatever the policy. `LATENCY` is read where a policy for short jobs stands in front,
`SIZES`, the bounds of an elastic gang, by policies that choose its size while it runs."""
DECLARED = frozenset(OPTIONAL) - {LATENCY, SIZES}
"""Optional keys of which a policy declares by ``reads`` whether it reads them."""


def reads_none(_config: object) -> tuple[str, ...]:
    """The declaration of a policy that reads none of the optional keys."""
    return ()


@dataclass(frozen=True, slots=True)
class KeysRead:
    """The optional keys that the policies of a partition read.

    Attributes:
        policy: Names of the policies, for users.
        keys: The keys, of `OPTIONAL`.
    """

    policy: str
    keys: frozenset[str]

    def notes(self, spec: JobSpec) -> Iterator[str]:
        """Tell a user of keys that a job states and that these policies do not read."""
        unread = [key for key, states in OPTIONAL.items() if key not in self.keys and states(spec)]
        if plain := [f"`{key}`" for key in unread if key not in (DAG, LATENCY, SIZES)]:
            named, what = ", ".join(plain), "these keys" if len(plain) > 1 else "this key"
            yield (
                f"{named}: the policy {self.policy} does not read {what}: nothing runs earlier, "
                "later or elsewhere for it"
            )
        if DAG in unread:
            yield (
                f"`dag`: the policy {self.policy} does not look at DAGs; for this label the run "
                "times of stages are learned together, and no more"
            )
        if LATENCY in unread:
            yield f"`latency`: no policy for short jobs stands in front of {self.policy} here"
        if SIZES in unread:
            yield (
                f"`tasks`: the policy {self.policy} does not resize gangs: it runs as many tasks "
                f"from {spec.elastic.least:,} to {len(spec.tasks):,} as suit the cluster when it "
                "starts"
            )
