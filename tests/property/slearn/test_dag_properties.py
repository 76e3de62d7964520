"""DAGs whose run times are learned: what no history, no observation and no restart may break."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times.dags import DagTimes, EndedStage, Seen, StageTimes
from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.planning.estimate import LONGEST_MS
from eva_wire.values.ids import JobId
from tests.drawing import drawn

times_ms = st.one_of(st.sampled_from([1, LONGEST_MS]), st.integers(1, LONGEST_MS))
names = st.one_of(
    st.sampled_from(["a", "b", "c"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
)
dags = st.dictionaries(names, times_ms, min_size=1, max_size=20)
seen_of = st.builds(
    Seen, times_ms.map(log_ppm), st.sampled_from([0, 1, 62_500, 10**9]) | st.integers(0, 10**7)
)


def learned(history: list[dict[str, int]]) -> StageTimes:
    times = StageTimes()
    for one in history:
        times = times.plus({name: log_ppm(ms) for name, ms in one.items()})
    return times


@given(st.lists(dags, max_size=12), st.dictionaries(names, seen_of, max_size=6))
@drawn(80)
def test_every_stage_has_a_value_that_a_run_time_can_have(
    history: list[dict[str, int]], seen: dict[str, Seen]
) -> None:
    times = learned(history)
    values = times.given(seen)
    assert values.keys() == set(times.stages)
    for value in values.values():
        assert 1 <= exp_of_ppm(value.log) <= 1.001 * LONGEST_MS
        assert value.variance > 0


@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys("abcd", times_ms)), min_size=1, max_size=40),
    st.lists(st.tuples(st.sampled_from("abc"), seen_of), max_size=3),
)
@drawn(60)
def test_who_has_seen_more_is_never_less_sure(
    history: list[dict[str, int]], order: list[tuple[str, Seen]]
) -> None:
    times, seen = learned(history), dict[str, Seen]()
    before = times.given(seen)["d"].variance
    for name, one in order:
        if name not in seen:
            seen = {**seen, name: one}
            after = times.given(seen)["d"].variance
            assert after <= before + 10, "but for rounding"
            before = after


@given(
    st.lists(st.tuples(st.sampled_from(["ana", "bob"]), names, dags), max_size=6),
    st.lists(st.tuples(st.sampled_from(["ana", "bob"]), names, st.none() | times_ms), max_size=6),
)
@drawn(60)
def test_a_restart_changes_nothing(
    over: list[tuple[str, str, dict[str, int]]], open_: list[tuple[str, str, int | None]]
) -> None:
    times = DagTimes()
    for number, (owner, label, stages) in enumerate(over):
        ended = {
            JobId(f"j-{20 * number + at}"): EndedStage(label, name, log_ppm(ms), ms)
            for at, (name, ms) in enumerate(stages.items())
        }
        times = times.over(owner, ended)
    for number, (owner, name, ms) in enumerate(open_):
        log = None if ms is None else log_ppm(ms)
        stage = EndedStage(name, name, log, ms or 0, after=(JobId(name),))
        times = times.ended(owner, JobId(f"o-{number}"), stage)
    again = Knowledge.from_json(Knowledge(dags=times).to_json()).dags
    assert again == times
    more = {JobId("x-1"): EndedStage("etl", "a", 5, 5)}
    assert again.over("ana", more) == times.over("ana", more)
