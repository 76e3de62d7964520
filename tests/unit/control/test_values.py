"""Changed copies are those of the standard library, made faster."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.snapshot import RunView
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.values import Views, by_id, once, quick, replace
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload

BOX = Offering(InstanceType("c.2", Family("c"), Resources(0, 2_000, 4_096)), Price(1))
TASK = TaskSpec(Workload("a"), Program("true"), ())
CHANGES: list[tuple[Any, dict[str, Any]]] = [
    (Progress(3, 9, (("loss", 0.5),)), {"rate": 2.0}),
    (TaskRun(RunId("a/0"), JobId("a"), 0, (("waiting", 1),)), {"moves": 2, "places": ()}),
    (Instance(InstanceId("i1"), BOX, (("up", 1),), Millis(1)), {"paid": (), "at_risk": True}),
    (Job(JobId("a-1"), JobSpec("a", "me", ()), Millis(1), (("pending", 1),)), {"attempt": 1}),
    (BOX, {}),
]


@pytest.mark.parametrize(("value", "changes"), CHANGES)
def test_a_changed_copy_is_the_librarys(value: Any, changes: dict[str, Any]) -> None:
    before = dataclasses.replace(value)
    assert replace(value, **changes) == dataclasses.replace(value, **changes)
    assert value == before, "the value itself stays"


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Progress has no field 'pace'"):
        replace(Progress(), pace=1)  # type: ignore[call-arg]


def test_a_value_that_stays_as_it_is_is_no_copy() -> None:
    progress = Progress(3, 9)
    assert replace(progress, rate=progress.rate) is progress
    assert replace(progress, rate=progress.rate, total_steps=7) == Progress(3, 7)


def test_what_may_change_in_place_is_refused() -> None:
    @dataclasses.dataclass
    class Changing:
        low: int

    with pytest.raises(AssertionError, match="Changing is not frozen"):
        replace(Changing(1), low=2)


def test_fields_by_name_alone_and_properties_kept_are_as_the_librarys() -> None:
    @dataclasses.dataclass(frozen=True)
    class Sum:
        low: int
        _: dataclasses.KW_ONLY
        high: int = 4
        total: int = dataclasses.field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.low + self.high)

    assert replace(Sum(1, high=2), low=3) == dataclasses.replace(Sum(1, high=2), low=3)
    assert replace(Sum(1, high=2), low=3).total == 5


def test_each_class_has_its_own_fields() -> None:
    @dataclasses.dataclass(frozen=True)
    class Checked:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("upside down")

    assert replace(Checked(1, 5), high=3) == Checked(1, 3)
    with pytest.raises(ValueError, match="upside down"):
        replace(Checked(1, 5), high=0)


@dataclasses.dataclass(frozen=True, slots=True)
class Usual:
    low: int
    high: int = 4
    names: list[str] = dataclasses.field(default_factory=list)
    _: dataclasses.KW_ONLY
    step: int = 1
    seen: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("upside down")


@quick
@dataclasses.dataclass(frozen=True, slots=True)
class Quick:
    low: int
    high: int = 4
    names: list[str] = dataclasses.field(default_factory=list)
    _: dataclasses.KW_ONLY
    step: int = 1
    seen: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("upside down")


@pytest.mark.parametrize(
    ("given", "named"),
    [((1,), {}), ((1, 2, ["a"]), {"step": 3, "seen": [1]}), ((), {"low": 0, "high": 9})],
)
def test_a_quick_value_is_as_usual(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    made = Quick(*given, **named)
    assert dataclasses.asdict(made) == dataclasses.asdict(Usual(*given, **named))
    assert made.names is not Quick(0).names, "each has a list of its own"
    assert pickle.loads(pickle.dumps(made)) == made


class Narrower(Quick):
    __slots__ = ()


def test_a_value_of_a_subclass_stays_one() -> None:
    made = Narrower(1, step=3)
    assert type(made) is Narrower
    assert dataclasses.asdict(made) == dataclasses.asdict(Usual(1, step=3))
    with pytest.raises(ValueError, match="upside down"):
        Narrower(5)


def test_a_quick_value_stays_as_it_is_and_checks_itself() -> None:
    made = Quick(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.low = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="upside down"):
        Quick(5)
    with pytest.raises(TypeError, match="low"):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="wide"):
        Quick(1, wide=2)  # type: ignore[call-arg]


def test_a_class_without_slots_cannot_be_made_quickly() -> None:
    with pytest.raises(AssertionError, match="Loose has no slots"):

        @quick
        @dataclasses.dataclass(frozen=True)
        class Loose:
            low: int


def test_views_have_one_index_for_all() -> None:
    views = Views([RunView(RunId(name), JobId("a"), TASK, None, False, False) for name in "ba"])
    assert by_id(views) is by_id(views)
    assert list(by_id(views)) == ["b", "a"], "in order"
    assert by_id(tuple(views)) == by_id(views) == {"b": views[0], "a": views[1]}
    sent = pickle.loads(pickle.dumps(views))
    assert sent == views
    assert not vars(sent), "the index is not sent"


def test_a_result_of_views_is_made_once() -> None:
    asked: list[int] = []

    def count(views: tuple[RunView, ...]) -> int:
        asked.append(len(views))
        return len(views)

    views = Views([RunView(RunId("b"), JobId("a"), TASK, None, False, False)])
    assert once(count, views) == once(count, views) == 1
    assert asked == [1]
    assert once(count, tuple(views)) == once(count, tuple(views)) == 1
    assert asked == [1, 1, 1], "a plain tuple remembers nothing"
    assert by_id(views) == {"b": views[0]}, "each function has a result of its own"
