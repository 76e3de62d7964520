"""User data: what an instance boots with says all that it must, and cannot say anything else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.ec2.launching.userdata import MOST_BYTES, Boot, user_data
from eva_master.app.clouds.ec2.section import Ec2Section
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.resources import Resources
from eva_wire.values.errors import CloudError, InvalidConfig
from eva_wire.values.ids import Family, InstanceId, Price

CA = "-----BEGIN CERTIFICATE-----\n" + "QUJD" * 250 + "\n-----END CERTIFICATE-----\n"
DIGEST = "0123456789abcdef" * 4
SPOT, ON_DEMAND = Purchase.SPOT, Purchase.ON_DEMAND


def boot(**more: Any) -> Boot:
    usual: dict[str, Any] = {
        "region": "us-east-1",
        "bundles": {"x86_64": f"s3://lab/eva/bundles/worker.tar#sha256={DIGEST}"},
    }
    return Boot(**{**usual, **more})


def made(boot: Boot, *, purchase: Purchase = ON_DEMAND, authorities: str = CA) -> str:
    bootstrap = Bootstrap(
        workers="10.0.0.1:7412",
        join="10.0.0.1:7411",
        authorities=authorities,
        token=lambda instance, attempt: f"{instance}/{attempt}/seal",
    )
    kind = InstanceType("p3.2xlarge", Family("p3"), Resources(1, 7_500, 61 * 1024))
    offering = Offering(kind, Price(3_060_000), zone="us-east-1a", purchase=purchase)
    return user_data(boot, bootstrap, LaunchInstance(InstanceId("i00007"), offering, 3))


def variables(text: str, names: str) -> list[str]:
    """What a shell makes of the script's head, one line per variable."""
    head = text.partition("# Above:")[0]
    script = head + "".join(f'printf "%s\\0" "${name}"\n' for name in names.split())
    bash = shutil.which("bash")
    assert bash
    out = subprocess.run([bash, "-c", script], capture_output=True, check=True, env={}).stdout
    return out.decode().split("\0")[:-1]


def environment(text: str) -> dict[str, str]:
    (file,) = variables(text, "worker_env")
    return dict(line.split("=", 1) for line in file.replace('"', "").splitlines())


def test_a_worker_is_told_what_it_is_and_where_to_go() -> None:
    text = made(boot())
    told = environment(text)
    assert told["EVA_WORKER_INSTANCE_ID"] == "i00007"
    assert told["EVA_WORKER_TOKEN"] == "i00007/3/seal"
    assert told["EVA_WORKER_MASTER"] == "10.0.0.1:7412"
    assert told["EVA_WORKER_ENROL"] == "10.0.0.1:7411"
    assert (told["EVA_WORKER_GPUS"], told["EVA_WORKER_CPUS"]) == ("1", "7.5")
    assert told["EVA_WORKER_MEMORY_MIB"] == "62464"
    assert told["EVA_WORKER_MEMORY_RESERVED_MIB"] == "400"
    assert variables(text, "authorities gpus") == [CA.strip(), "1"]
    place = "s3://lab/eva/bundles/worker.tar"
    assert variables(text, "bundle bundle_sha256") == [place, DIGEST]


def test_settings_of_all_workers_arrive_but_what_is_the_instance_s_own_stays() -> None:
    section = Ec2Section(
        region="us-east-1",
        docker_image="python:3.11",
        abandoned_after="10m",
        worker_env={"AWS_ENDPOINT_URL": "http://s3", "EVA_WORKER_INSTANCE_ID": "another"},
    )
    told = environment(made(boot(worker_env=section.worker_variables()), purchase=SPOT))
    assert told["EVA_WORKER_METADATA_URL"] == "http://169.254.169.254"
    assert told["EVA_WORKER_DOCKER_IMAGE"] == "python:3.11"
    assert told["EVA_WORKER_ABANDONED_AFTER_S"] == "600"
    assert told["AWS_ENDPOINT_URL"] == "http://s3"
    assert told["EVA_WORKER_INSTANCE_ID"] == "i00007"
    assert "EVA_WORKER_STORAGE_MOUNT" not in told


def test_every_variable_is_an_option_of_the_worker() -> None:
    from eva_worker.cli import worker

    known = {variable.envvar for variable in worker.params} | {"EVA_WORKER_TOKEN"}
    section = Ec2Section(region="us-east-1", docker_image="a", storage_mount="/x")
    text = made(boot(worker_env=section.worker_variables()), purchase=SPOT)
    ours = {name for name in environment(text) if name.startswith("EVA_")}
    assert ours <= known
    assert len(ours) > 15


def test_the_same_launch_has_the_same_user_data() -> None:
    assert made(boot()) == made(boot())


def test_values_do_not_become_programs() -> None:
    hostile = '\'; touch /tmp/gone; $(touch /tmp/gone) `id` \\ "\n" #'
    text = made(boot(mount_command=hostile, s3_endpoint=hostile))
    assert variables(text, "mount_command s3_endpoint") == [hostile, hostile]


def test_what_systemd_would_read_as_another_line_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="EVA_WORKER_DOCKER_IMAGE"):
        made(boot(worker_env={"EVA_WORKER_DOCKER_IMAGE": "a\nEVA_WORKER_POWER_OFF=true"}))


def test_quotes_in_the_environment_file_are_escaped() -> None:
    told = {"EVA_WORKER_DOCKER_IMAGE": 'a"b$c\\d'}
    (file,) = variables(made(boot(worker_env=told)), "worker_env")
    assert 'EVA_WORKER_DOCKER_IMAGE="a\\"b\\$c\\\\d"' in file.splitlines()


def test_it_fits_with_three_authorities_and_what_does_not_fit_is_refused() -> None:
    assert len(made(boot(), authorities=CA * 3).encode()) < MOST_BYTES * 3 // 4
    with pytest.raises(InvalidConfig, match="EC2 takes 16384"):
        made(boot(), authorities=CA * 15)


def test_an_image_that_has_the_worker_needs_no_bundle() -> None:
    assert variables(made(boot(bundles={})), "bundle bundle_sha256") == ["", ""]


def test_another_architecture_needs_another_bundle() -> None:
    with pytest.raises(CloudError, match="no bundle for x86_64"):
        made(boot(bundles={"arm64": f"s3://lab/arm.tar#sha256={DIGEST}"}))


def test_the_script_is_one_that_bash_understands(tmp_path: Path) -> None:
    file = tmp_path / "user-data"
    file.write_text(made(boot()))
    bash = shutil.which("bash")
    assert bash
    subprocess.run([bash, "-n", str(file)], check=True)
