"""The picture of a cluster is to scale, and shows every task in its room."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.pages.shown import boxes, plots
from eva_master.adapters.pages.shown.colours import colour_of
from eva_master.adapters.pages.shown.fleet import MOST_BOXES, fleet
from eva_wire.rpc.messages import ClusterState, Instance, PlacedTask, Resources

prices = st.lists(st.integers(1, 100_000_000), min_size=1, max_size=400)


@given(prices)
def test_areas_are_in_proportion_to_prices(listed: list[int]) -> None:
    scale = boxes.scale_of(listed)
    for price in listed:
        width, height = boxes.size_of(price, scale)
        assert width == pytest.approx(2 * height, abs=0.02)
        side = (price * scale / 1_000_000 / 2) ** 0.5
        assert height == pytest.approx(side, abs=0.01)
        assert width <= 27  # a telephone at 13 px an em


def test_boxes_keep_their_size_while_a_small_instance_comes_and_goes() -> None:
    fleet_prices = [12_240_000, 3_060_000, 357_000]
    assert boxes.scale_of(fleet_prices) == boxes.scale_of([*fleet_prices, 89_250])


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8_000)), max_size=6),
)
def test_spans_of_tasks_are_their_shares_and_do_not_overlap(demands: list[tuple[int, int]]) -> None:
    spans = boxes.spans(demands, (8, 8_000))
    for lane in range(2):
        used = sum(demand[lane] for demand in demands)
        room = max((8, 8_000)[lane], used)
        end = 0.0
        for demand, of_task in zip(demands, spans, strict=True):
            assert of_task[lane].start == pytest.approx(end)
            assert of_task[lane].width == pytest.approx(1_000 * demand[lane] / room)
            end += of_task[lane].width
        assert end <= 1_000.001
    for of_task in spans:
        numbers = [int(number) for number in re.findall(r"-?\d+", boxes.ribbon(of_task))]
        assert all(0 <= number <= 1_000 for number in numbers)


def test_jobs_that_follow_each_other_differ_in_colour() -> None:
    colours = [colour_of(f"job-{number}") for number in range(1, 25)]
    assert len(set(colours)) == 24
    assert colour_of("job-7") == colour_of("job-7")


def state(instances: int) -> ClusterState:
    """So many instances with a task each."""
    capacity = Resources(gpus=4, milli_cpus=32_000, memory_mib=244 << 10)
    share = Resources(gpus=1, milli_cpus=4_000, memory_mib=16 << 10)
    listed = [
        Instance(
            id=f"i-{number}",
            type="p3.8xlarge",
            state="ready",
            connected=True,
            price_micro_usd_per_hour=12_240_000,
            up_ms=1,
            capacity=capacity,
            used=share,
            tasks=[f"job-{number}/0"],
            placed=[
                PlacedTask(
                    task=f"job-{number}/0", name="job", state="running", share=share, normalised=0.9
                )
            ]
            if instances <= MOST_BOXES
            else [],
        )
        for number in range(instances)
    ]
    return ClusterState(instances=listed, now_ms=3_600_001)


def test_a_task_is_as_wide_in_each_lane_as_its_share() -> None:
    (group,) = fleet(state(1)).groups
    (box,) = group.boxes
    assert [lane.used for lane in box.lanes] == ["1 of 4 GPUs", "4 of 32 CPUs", "16 of 244 GiB"]
    assert [lane.percent for lane in box.lanes] == [25, 12, 7]
    (task,) = box.tasks
    assert task.path.startswith("M0 0H250")
    assert (task.pace, task.text, task.note) == (
        "90 %",
        "job",
        "running, at 90 % of its pace alone",
    )


def test_a_box_is_bars_when_there_are_more_instances_than_boxes_fit() -> None:
    page = fleet(state(MOST_BOXES + 1))
    assert page.compact
    assert page.tasks == f"{MOST_BOXES + 1} tasks"
    (group,) = page.groups
    assert not group.boxes
    assert {(bar.gpus, bar.cpus, bar.memory) for bar in group.bars} == {(25, 12, 7)}


def test_own_nodes_pools_and_partitions_stand_apart() -> None:
    message = state(3)
    message.instances[0].purchase, message.instances[0].price_micro_usd_per_hour = "owned", 0
    message.instances[1].pool = "short"
    message.instances[2].partition = "research"
    page = fleet(message)
    assert [group.title for group in page.groups] == [
        "Pool short",
        "Own nodes",
        "Partition research",
    ]
    assert all(box.width > 1 for group in page.groups for box in group.boxes)


def test_a_task_that_moves_is_said_to() -> None:
    message = state(2)
    message.instances[0].placed[0].target = "i-1"
    page = fleet(message)
    assert [(move.id, move.source, move.target) for move in page.moves] == [
        ("job-0/0", "i-0", "i-1")
    ]
    assert {task.state for box in page.groups[0].boxes for task in box.tasks} == {
        "moving",
        "running",
    }


def test_a_line_of_steps_has_a_gap_where_there_is_no_value() -> None:
    points = [(0, 1.0), (10, 2.0), (20, None), (30, 4.0)]
    path = plots.steps(points, (0, 0.0), (40, 4.0))
    assert path == "M0 750H250V500H500M750 0H1000"
