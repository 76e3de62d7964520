"""Carries out launches, from the action to EC2's answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from eva_master.adapters.ec2 import quotas
from eva_master.adapters.ec2.client import Aws
from eva_master.adapters.ec2.faults import CloudUnsettled
from eva_master.adapters.ec2.launching.images import MachineImages
from eva_master.adapters.ec2.launching.run_instances_request import launch_request
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import Catalog
from eva_master.ports.launch_records import LaunchRecords
from eva_wire.values.errors import CloudError, EvaError, QuotaExceeded, StorageError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Launched:
    """The result of a launch. Without an error there is an instance."""

    action: LaunchInstance
    error: CloudError | None = None


class LaunchExecutor:
    """Carries out launches, in any number of threads.

    Args:
        aws: Makes the calls.
        settings: Where to launch, and how.
        launch_records: Where each launch is recorded first.
        images: Finds the image to boot.
        user_data: Creates the user data of a launch.
        catalog: Returns the offerings on sale.
    """

    def __init__(
        self,
        aws: Aws,
        settings: Ec2Settings,
        launch_records: LaunchRecords,
        *,
        images: MachineImages,
        user_data: Callable[[LaunchInstance], str],
        catalog: Callable[[], Catalog],
    ) -> None:
        self._aws = aws
        self._settings = settings
        self._launch_records = launch_records
        self._images = images
        self._user_data = user_data
        self._catalog = catalog

    def launch(self, action: LaunchInstance) -> Launched:
        """Carry out one launch, or find the instance that it made earlier."""
        try:
            ec2_id = self._run(action)
        except QuotaExceeded as error:
            words = quotas.in_words(action.offering, self._catalog(), self._aws)
            return Launched(action, QuotaExceeded(words, hint=error.hint))
        except CloudError as error:
            return Launched(action, error)
        except StorageError as error:
            return Launched(action, CloudUnsettled(error.message))
        except EvaError as error:
            return Launched(action, CloudError(error.message, hint=error.hint))
        except Exception as error:
            _log.exception("EC2: a launch broke down", instance=action.instance)
            return Launched(action, CloudError(f"{error!r}"))
        _log.info("launched", instance=action.instance, ec2_id=ec2_id)
        return Launched(action)

    def _run(self, action: LaunchInstance) -> str:
        request = self._launch_records.remembered(action.instance, action.attempt)
        if request is None:
            image = self._images.of(action.offering.type)
            made = launch_request(self._settings, action, image, self._user_data(action))
            request = self._launch_records.remember(action.instance, action.attempt, made)
        # The request's client token makes it safe to repeat.
        answer = self._aws.call("ec2", "run_instances", request)
        return str(answer["Instances"][0]["InstanceId"])
