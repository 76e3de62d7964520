"""Checks of an account before anything is bought in it: quotas, zones, images, permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from eva_master.adapters.deployment.account import Absent, Clients, ahead_s, off
from eva_master.adapters.ec2.client import Aws
from eva_master.adapters.ec2.launching.images import MachineImages, narrowest
from eva_master.adapters.ec2.offerings import PRICE_LIST_REGION, zones_of
from eva_master.adapters.ec2.quotas import VcpuQuota, quota_of, standing
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.identities.principals import principal_of
from eva_master.adapters.resolving.placement import vcpus_needed
from eva_master.model.catalog import Catalog, Offering, Purchase, base_family
from eva_master.model.job import JobSpec
from eva_wire.values.errors import CloudDenied, CloudError

_SPOT_ROLE = "AWSServiceRoleForEC2Spot"
_ACTIONS = (
    *("cloudformation:CreateChangeSet", "cloudformation:ExecuteChangeSet", "iam:CreateRole"),
    *("iam:PutRolePolicy", "iam:CreateInstanceProfile", "iam:PassRole", "s3:CreateBucket"),
    *("s3:PutObject", "ssm:GetParameter", "ec2:RunInstances", "ec2:CreateSecurityGroup"),
    *("ec2:CreateVpc", "ec2:CreateVolume", "ec2:CreateLaunchTemplate", "ec2:AllocateAddress"),
)
"""Permissions that a deployment takes; a stack without one of them is rolled back."""


@dataclass(frozen=True, slots=True)
class Check:
    """A fact about an account.

    Attributes:
        name: Kind of the check.
        ok: Whether all is well; `None` if that could not be found out.
        says: The fact.
        hint: Advice.
        stops: Whether no cluster can be made as long as it is so.
    """

    name: str
    ok: bool | None
    says: str
    hint: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Preflight:
    """Makes all checks of a deployment. None of them changes anything.

    Attributes:
        clients: See `Account.clients`.
        aws: Makes calls by these clients.
        machine: Instance type of the master.
        image: Id of the master's image.
        zones: Zones of the cluster's subnets, the master's first.
        settings: How workers are launched.
        types: An offering of each type that may be bought.
        spot: Whether spot instances may be bought.
        job: A job that is to run; `None` for none in particular.
    """

    clients: Clients
    aws: Aws
    machine: str
    image: str
    zones: Sequence[str]
    settings: Ec2Settings
    types: Catalog
    spot: bool
    job: JobSpec | None

    def checks(self) -> list[Check]:
        """The results, in the order in which they matter."""
        looks: dict[str, Callable[[], Iterator[Check]]] = {
            "clock": self._clock,
            "plan": self._plan,
            "zones": self._zones,
            "image": self._image,
            "images": self._worker_images,
            "quota": self._quotas,
            "spot role": self._spot_role,
            "launches": self._launches,
            "permissions": self._permissions,
        }
        results: list[Check] = []
        for name, look in looks.items():
            try:
                results += look()
            except CloudError as error:
                results.append(Check(name, None, f"not checked: {error}"))
        return [replace(check, hint="") if check.ok else check for check in results]

    def _clock(self) -> Iterator[Check]:
        caller = self.clients("sts").get_caller_identity()
        yield Check("clock", True, f"{off(ahead_s(caller))}; the caller is {caller['Arn']}")

    def _plan(self) -> Iterator[Check]:
        plan = self.clients("freetier", PRICE_LIST_REGION).get_account_plan_state()
        if plan["accountPlanType"] != "FREE":
            yield Check("plan", True, "the account may buy every type")
            return
        request = {"Filters": [{"Name": "free-tier-eligible", "Values": ["true"]}]}
        pages = self.aws.pages("ec2", "describe_instance_types", request)
        eligible = {entry["InstanceType"] for page in pages for entry in page["InstanceTypes"]}
        wanted = {offering.type.name for offering in self.types}
        yield Check(
            "plan",
            bool(eligible & wanted) and self.machine in eligible,
            f"the account is on AWS's free plan, which launches {', '.join(sorted(eligible))} alone"
            + ("" if eligible & wanted else ": no worker can be bought"),
            "upgrade it: aws freetier upgrade-account-plan --account-plan-type PAID "
            "--region us-east-1",
            stops=self.machine not in eligible,
        )

    def _zones(self) -> Iterator[Check]:
        machine, master_zone = self.machine, self.zones[0]
        names = sorted({offering.type.name for offering in self.types} | {machine})
        sold = zones_of(self.aws, names)
        here = sold.get(machine, set())
        yield Check(
            "zones",
            master_zone in here,
            f"{machine} is sold in {', '.join(sorted(here)) or 'no zone'}; the master is to be in "
            f"{master_zone}",
            "choose another type (--set MasterType=t3a.small), or a subnet elsewhere (--subnet)",
            stops=True,
        )
        families: dict[str, set[str]] = {}
        for name in names:
            families.setdefault(name.partition(".")[0], set()).update(sold.get(name, ()))
        families.pop(machine.partition(".")[0], None)
        for family, everywhere in sorted(families.items()):
            yield Check(
                "zones",
                bool(everywhere & {*self.zones}),
                f"{family} is sold in {', '.join(sorted(everywhere)) or 'no zone of the region'}; "
                f"the cluster's are {', '.join(self.zones)}",
                "add a zone (--set ThirdZone=..., or --subnet), or leave it out in catalog.only",
            )

    def _image(self) -> Iterator[Check]:
        ec2 = self.clients("ec2")
        (image,) = ec2.describe_images(ImageIds=[self.image])["Images"]
        (machine,) = ec2.describe_instance_types(InstanceTypes=[self.machine])["InstanceTypes"]
        supported = machine["ProcessorInfo"]["SupportedArchitectures"]
        yield Check(
            "image",
            image["Architecture"] in supported,
            f"{self.image} is for {image['Architecture']}, and {self.machine} runs "
            f"{', '.join(supported)}",
            "choose a MasterType for x86_64",
            stops=True,
        )

    def _worker_images(self) -> Iterator[Check]:
        settings = self.settings
        by_image: dict[str, list[Offering]] = {}
        for offering in self.types:
            if (name := narrowest(settings.images, offering.type)) is not None:
                by_image.setdefault(name, []).append(offering)
        images = MachineImages(settings.images, self.aws.call, lambda: 0.0)
        for name, offerings in sorted(by_image.items()):
            first = offerings[0].type
            image = images.of(first)
            gib, wanted = image.root_gib, first.architecture
            least = min(offering.attached.root_gib for offering in offerings)
            fits = image.architecture == wanted and gib <= least
            yield Check(
                "images",
                fits,
                f"{name} is for {image.architecture}, with a root volume of {gib} GiB; "
                f"{first.family} runs {wanted}, with {least} GiB",
                f"see ec2.images.{first.family} and ec2.root_volume in the settings",
            )

    def _quotas(self) -> Iterator[Check]:
        """Whether quotas have room; a job needs room in one of them."""
        what = f"the job {self.job.name}" if self.job else "the smallest type that may be bought"
        rooms: list[tuple[float, Check]] = []
        for purchase in [Purchase.ON_DEMAND, *([Purchase.SPOT] if self.spot else [])]:
            quotas: dict[VcpuQuota, list[Offering]] = {}
            for offering in self.types:
                if (quota := quota_of(offering.type.name, purchase)) is not None:
                    quotas.setdefault(quota, []).append(offering)
            for quota, offerings in sorted(quotas.items(), key=lambda pair: pair[0].code):
                needed = vcpus_needed(self.job, offerings)
                if needed is None:
                    continue
                name, value, used = standing(quota, self.types, self.aws)
                check = Check(
                    "quota",
                    value - used >= needed,
                    f"{name} ({quota.code}) has room for {max(value - used, 0):g} vCPUs, and "
                    f"{what} needs {needed}",
                    "aws service-quotas request-service-quota-increase --service-code ec2 "
                    f"--quota-code {quota.code} --desired-value N",
                )
                rooms.append((value - used - needed, check))
        if self.job is None:
            yield from (check for _, check in rooms)
        elif rooms:
            yield max(rooms, key=lambda room: room[0])[1]
        else:
            says = f"no type that may be bought holds the tasks of {self.job.name}"
            yield Check("quota", False, says, "see catalog.only and the job's resources")

    def _spot_role(self) -> Iterator[Check]:
        if not self.spot:
            return
        hint = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
        try:
            self.clients("iam").get_role(RoleName=_SPOT_ROLE)
        except Absent:
            says = f"the account has no {_SPOT_ROLE}, which the first spot instance makes"
            yield Check("spot role", False, says, f"make it ahead: {hint}")
        else:
            yield Check("spot role", True, f"the account has {_SPOT_ROLE}")

    def _launches(self) -> Iterator[Check]:
        """Launches that are only asked for: a policy of the organization may forbid types."""
        ec2 = self.clients("ec2")
        smallest: dict[str, str] = {"": self.machine}
        for offering in sorted(self.types, key=lambda o: o.type.capacity.milli_cpus):
            if offering.type.architecture == "x86_64":
                smallest.setdefault(base_family(offering.type.family), offering.type.name)
        for name in smallest.values():
            launch = {"ImageId": self.image, "InstanceType": name, "DryRun": True}
            try:
                ec2.run_instances(**launch, MinCount=1, MaxCount=1)
            except CloudError as error:
                allowed, says = None, f"not checked: {error.message}"
                if error.message.startswith("DryRunOperation"):
                    allowed, says = True, "may be launched"
                elif isinstance(error, CloudDenied):
                    allowed, says = False, error.message
                hint = "ask who administers the account about its policies (SCP)"
                stops = name == self.machine
                yield Check("launches", allowed, f"{name}: {says}", hint, stops=stops)

    def _permissions(self) -> Iterator[Check]:
        arn = self.clients("sts").get_caller_identity()["Arn"]
        role = principal_of(arn)[0].arn
        answer = self.clients("iam").simulate_principal_policy(
            PolicySourceArn=role, ActionNames=list(_ACTIONS)
        )
        denied = [
            result["EvalActionName"]
            for result in answer["EvaluationResults"]
            if result["EvalDecision"] != "allowed"
        ]
        yield Check(
            "permissions",
            not denied,
            f"{role} may not: {', '.join(denied)}" if denied else f"{role} may make a cluster",
            "use credentials of an administrator of the account",
            stops=True,
        )
