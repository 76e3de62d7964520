"""Policies of other distributions: found, told apart, and harmless where they are broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_master.app.policy_registry import Policies, find_policies
from eva_master.app.settings import load_master_config
from eva_wire.values.errors import InvalidConfig, UnusablePolicy
from tests.fakes.plugins import distribution

BUILT_IN = {
    *("astraea", "astraea_published", "cloudcoaster", "eva", "eva_published", "fifo"),
    *("gandiva_fair", "gavel", "hadar", "hadar_published", "hived", "no_packing", "owl"),
    *("slearn", "stratus", "synergy", "tiresias", "yarn_cs"),
}
POLICY = """
from dataclasses import dataclass
from eva_master.ports import PolicyKind

@dataclass(frozen=True)
class Config:
    size: int = 3

def build(config):
    return config

POLICY = PolicyKind(name="mine", config=Config, build=build, presets={"large": {"size": 9}})
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the import path, of this test's own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def broken(site: Path, name: str, source: str) -> UnusablePolicy:
    """What is said to whoever chooses a policy whose module has this source."""
    distribution(site, "their-own", {"mine": f"{name}:POLICY"}, **{name: source})
    with pytest.raises(UnusablePolicy) as caught:
        load_master_config(policies=find_policies(), flags={"policy": {"name": "mine"}})
    assert "their-own" in caught.value.message + caught.value.hint
    assert caught.value.hint
    return caught.value


def test_a_policy_of_another_distribution_is_found_beside_those_of_eva(site: Path) -> None:
    assert set(find_policies()) == BUILT_IN
    distribution(site, "their-own", {"mine": "plain_module:POLICY"}, plain_module=POLICY)
    found = find_policies()
    assert set(found) == {*BUILT_IN, "mine"}
    assert list(found) == sorted(found)
    assert found["mine"].build(found["mine"].config(size=4)).size == 4
    assert [source.distribution for source in found.sources("mine")] == ["their-own 1.2"]
    assert found.faults() == {}


def test_a_policy_is_imported_when_it_is_chosen_and_not_before(site: Path) -> None:
    source = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n" + POLICY
    distribution(site, "their-own", {"mine": "touching:POLICY"}, touching=source)
    found = find_policies()
    load_master_config(policies=found)
    with pytest.raises(InvalidConfig):
        load_master_config(policies=found, flags={"policy": {"name": "other"}})
    assert not (site / "imported").exists()
    config = load_master_config(policies=found, flags={"policy": {"name": "mine:large"}})
    assert (config.policy.name, config.policy.preset) == ("mine", "large")
    assert (site / "imported").exists()


@pytest.mark.parametrize(
    ("module", "source", "said"),
    [
        ("raising", "raise KeyError('boo')", "cannot be imported from raising:POLICY: KeyError"),
        ("quitting", "import sys; sys.exit(3)", "cannot be imported from quitting:POLICY"),
        ("asking", "import not_installed_anywhere", "No module named 'not_installed_anywhere'"),
        ("empty", "", "has no attribute 'POLICY'"),
        ("nothing", "POLICY = None", "it is a NoneType, not a PolicyKind of eva_master.ports"),
        ("named", POLICY.replace('"mine"', '"yours"'), "its name is 'yours'"),
        ("thawed", POLICY.replace("(frozen=True)", ""), "its config is not a frozen dataclass"),
        ("bare", POLICY.replace("int = 3", "int"), "its option 'size' has no default"),
        ("listed", POLICY.replace('{"large": {"size": 9}}', '["large"]'), "presets are not a map"),
        ("strange", POLICY.replace('"size": 9', '"sice": 9'), "sets 'sice', which is no option"),
    ],
)
def test_a_broken_policy_is_an_error_for_those_who_choose_it(
    site: Path, module: str, source: str, said: str
) -> None:
    assert said in broken(site, module, source).message
    # Nobody else is harmed.
    assert load_master_config(policies=find_policies()).policy.name == "eva"


def test_a_policy_named_as_one_of_eva_s_is_an_error_and_neither_is_taken(site: Path) -> None:
    distribution(site, "their-own", {"stratus": "usurper:POLICY"}, usurper=POLICY)
    found = find_policies()
    with pytest.raises(UnusablePolicy, match="more than one policy 'stratus'") as caught:
        load_master_config(policies=found, flags={"policy": {"name": "stratus"}})
    assert "eva_policies.stratus:POLICY of eva-scheduler" in caught.value.message
    assert "usurper:POLICY of their-own 1.2" in caught.value.message
    assert caught.value.hint == "uninstall their-own 1.2, or rename its policy"
    assert set(found.faults()) == {"stratus"}
    assert load_master_config(policies=found).policy.name == "eva"


def test_what_is_gone_can_be_told_without_importing_anything(site: Path) -> None:
    distribution(site, "their-own", {"mine": "gone.altogether:POLICY", "odd": ":"})
    faults = find_policies().faults()
    assert set(faults) == {"mine", "odd"}
    assert "nothing can be imported from gone.altogether:POLICY" in faults["mine"].message


def test_looking_for_what_is_not_there_is_no_fault() -> None:
    assert Policies([]).get("eva") is None
    assert len(find_policies()) == len(BUILT_IN)
