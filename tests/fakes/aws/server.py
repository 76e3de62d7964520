"""moto's server with what it lacks: client tokens, launches that take time, faults on order,
capacity that runs out, prices, quotas, and types that it does not know.

One liberty is taken: LaunchTime of a launch that takes time is when it is up, because the suite for
all clouds reads the delay off the record.
"""

from __future__ import annotations

import io
import json
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

from tests.fakes.aws.herd import Herd
from tests.fakes.aws.iam import signatures
from tests.fakes.aws.iam.guard import Guard
from tests.fakes.aws.iam.roles import Made
from tests.fakes.aws.instances import volumes
from tests.fakes.aws.instances.consoles import Consoles
from tests.fakes.aws.instances.sold import ON_DEMAND, add_missing_types, products
from tests.fakes.aws.launch_rules import FORBIDDEN_TYPE, refusal
from tests.fakes.aws.one_at_a_time import OneAtATime
from tests.fakes.aws.resources import Account
from tests.fakes.aws.service import LOST, REGION
from tests.fakes.aws.stacks import Refused, Stacks

STATUS = {
    "AccessDenied": 403,
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "UnauthorizedOperation": 403,
}
"""HTTP status of codes whose status is not 400."""
MESSAGES = {
    "InvalidParameterCombination": "The specified instance type is not eligible for Free Tier. For "
    "a list of Free Tier instance types, run 'describe-instance-types' with the filter "
    "'free-tier-eligible=true'.",
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
    FORBIDDEN_TYPE: "You are not authorized to perform: ec2:RunInstances with an explicit deny in "
    "a service control policy.",
}
LATE_S = 1.0
ENDS_S = 0.5
"""How long a launch that fails after it succeeded is pending."""
_CLOUDFORMATION = "2010-05-15"
"""Version of its API."""
MOST_SKEW_S = 300
QUOTA_CALL = "ServiceQuotasV20190624.GetServiceQuota"
PLAN_CALL = "AWSFreeTierService.GetAccountPlanState"
QUOTA_VCPUS = 64.0
"""Of every quota."""

StartResponse = Callable[..., Any]


class Endpoint:
    """WSGI around moto's application."""

    def __init__(self, moto: OneAtATime) -> None:
        self._moto = moto
        self._lock = moto.lock
        self._ours: dict[str, Callable[[dict[str, Any]], Any]] = {
            "orders": self._take_order,
            "terminated": lambda order: self._herds[order["cluster"]].terminated,
            "purchases": lambda order: self._purchases,
            "calls": lambda order: self._calls[order["cluster"]],
            "populate": self._populate,
            "spot": self._quote,
            "quotes": lambda order: self._quotes,
            "sell": _sell,
            "outage": self._set_outage,
            "publish": self._publish,
            "fail": self._fail,
            "slow": self._slow,
            "preflight": self._change_account,
            "identities": self._know,
            "snapshots": lambda order: volumes.take_snapshots(self.resources()),
            "console": lambda order: self._consoles.write(**order),
            "forget": lambda order: self._begin(),
        }
        self._begin()

    def _begin(self) -> None:
        """Nothing has been ordered or called; moto forgets by an address of its own."""
        self._faults: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._launch_ms: dict[str, int] = {}
        self._sold_out: dict[str, list[str]] = {}
        self._calls: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._launches: dict[str, tuple[dict[str, Any], bytes]] = {}
        self._pending: dict[str, datetime] = {}
        self._ends: dict[str, list[str]] = {}
        self._failing: dict[str, tuple[float, str]] = {}
        self._purchases: list[dict[str, Any]] = []
        self._spot: dict[str, str] = {}
        self._quotes: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._herds: dict[str, Herd] = {}
        self._consoles = Consoles()
        self._outage = False
        self._stacks = Stacks()
        self._published: dict[str, str] = {}
        self._account: Account | None = None
        self._facts: dict[str, Any] = {}
        self._identities: dict[str, dict[str, str]] = {**signatures.USUAL}

    @property
    def skew_s(self) -> float:
        """Seconds that the server's clock is behind that of its callers."""
        return float(self._facts.get("skew_s", 0))

    def resources(self) -> list[Made]:
        """The resources of all stacks."""
        return self._stacks.resources()

    def _quote(self, order: dict[str, Any]) -> None:
        self._spot.update(order)
        for place, price in order.items():
            self._quotes[place].append((time.time(), price))

    def _publish(self, order: dict[str, Any]) -> None:
        self._published.update(order)

    def __call__(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/eva/"):
            order = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            with self._lock:
                return _answer(start, self._ours[path.removeprefix("/eva/")](order))
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        # "Signature expired": the time of a request must be within five minutes of AWS's.
        # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
        if abs(self.skew_s) > MOST_SKEW_S:
            return _refuse(start, "SignatureDoesNotMatch")
        if target in (QUOTA_CALL, PLAN_CALL):
            request = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            return self._account_fact(target, request, start)
        if target == "AmazonSSM.GetParameter" and self._published:
            return self._parameter(environ, start)
        if (answers := _JSON_CALLS.get(target)) is not None:
            length = int(environ["CONTENT_LENGTH"])
            return _answer(start, answers(json.loads(environ["wsgi.input"].read(length))))
        if "Action=GetCallerIdentity" in environ.get("QUERY_STRING", ""):
            return self._caller(environ, b"", start)
        form_type = "application/x-www-form-urlencoded"
        if target or not environ.get("CONTENT_TYPE", "").startswith(form_type):
            if self._outage and not target:
                return _refuse(start, "ServiceUnavailable")
            return self._moto(environ, start)
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = io.BytesIO(body)
        pairs = parse_qs(body.decode(), keep_blank_values=True).items()
        form = {key: values[0] for key, values in pairs}
        if form.get("Action") == "GetCallerIdentity":
            return self._caller(environ, body, start)
        if form.get("Version") == _CLOUDFORMATION:
            return self._stack_call(form, environ, start)
        return self._query(form, environ, start)

    def _caller(
        self, environ: dict[str, Any], body: bytes, start: StartResponse
    ) -> Iterable[bytes]:
        """The answer of STS about who has signed a request."""
        try:
            arn = signatures.caller(environ, body, self._identities)
            status, answer = "200 OK", signatures.answer(arn)
        except signatures.Unsigned as error:
            status, answer = "403 Forbidden", signatures.refusal(error)
        start(status, [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _account_fact(
        self, target: str, request: dict[str, Any], start: StartResponse
    ) -> Iterable[bytes]:
        if target in self._facts.get("denied", ()):
            return _answer(start, {"__type": "AccessDeniedException"}, "400 Bad Request")
        if target == PLAN_CALL:
            # https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/free-tier-plans.html
            plan = "FREE" if self._facts.get("free") else "PAID"
            return _answer(start, {"accountId": "123456789012", "accountPlanType": plan})
        value = self._facts.get("quotas", {}).get(request["QuotaCode"], QUOTA_VCPUS)
        return _answer(start, _quota(request, value))

    def _query(
        self, form: dict[str, str], environ: dict[str, Any], start: StartResponse
    ) -> Iterable[bytes]:
        """A call of EC2; nothing of moto changes between its parts."""
        with self._lock:
            fault = self._fault(form)
            if fault and fault != LOST:
                return _refuse(start, fault)
            answer = self._answered(form, environ, start)
        if fault == LOST:
            time.sleep(LATE_S)
        return answer

    def _fault(self, form: dict[str, str]) -> str:
        """The fault with which a call meets, empty if none; notes the call."""
        action = form.get("Action", "")
        self._come_up()
        cluster = self._cluster(form)
        faults = self._faults[cluster, action]
        fault = faults.pop(0) if faults else ""
        if not fault and action == "RunInstances":
            if self._is_sold_out(cluster, form):
                fault = "InsufficientInstanceCapacity"
            elif form.get("ClientToken") not in self._launches:
                fault = refusal(form, self._facts)
        fault = fault or volumes.refusal(form)
        call = {"action": action, "outcome": fault, "at": time.time()}
        self._calls[cluster].append(call)
        return fault

    def _answered(
        self, form: dict[str, str], environ: dict[str, Any], start: StartResponse
    ) -> Iterable[bytes]:
        action, cluster = form.get("Action", ""), self._cluster(form)
        if cluster in self._herds:
            answer = self._herds[cluster].answer(form)
            start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
            return [answer]
        if action == "SimulatePrincipalPolicy":
            return self._simulated(form, start)
        if action == "GetConsoleOutput":
            return self._console(form, start)
        if action == "RunInstances" and form.get("DryRun") != "true":
            return self._run_instances(cluster, form, environ, start)
        if action == "DescribeSpotPriceHistory":
            return self._priced(environ, start)
        return self._followed(form, environ, start)

    def _followed(
        self, form: dict[str, str], environ: dict[str, Any], start: StartResponse
    ) -> Iterable[bytes]:
        """moto's answer, once what it means for volumes is noted."""
        heads: list[Any] = []
        answer = b"".join(self._moto(environ, lambda *head: heads.append(head)))
        if heads[0][0] == "200 OK":
            answer = volumes.follow(form, answer)
        status, headers, *_ = heads[0]
        rest = [pair for pair in headers if pair[0].lower() != "content-length"]
        start(status, [*rest, ("Content-Length", str(len(answer)))])
        return [answer]

    def _console(self, form: dict[str, str], start: StartResponse) -> Iterable[bytes]:
        from moto.ec2.models.instance_types import INSTANCE_TYPES

        kind = INSTANCE_TYPES[_instances()[form["InstanceId"]].instance_type]
        answer = self._consoles.answer(form, kind.get("Hypervisor", ""))
        if not answer:
            return _refuse(start, "UnsupportedOperation")
        start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _simulated(self, form: dict[str, str], start: StartResponse) -> Iterable[bytes]:
        """The answer of IAM about a role's permissions; a role is named by its own ARN."""
        if "SimulatePrincipalPolicy" in self._facts.get("denied", ()):
            return _refuse(start, "AccessDenied")
        assert ":assumed-role/" not in form["PolicySourceArn"], form
        actions = [form[key] for key in form if key.startswith("ActionNames.member.")]
        forbidden = self._facts.get("forbidden", ())
        members = "".join(
            f"<member><EvalActionName>{action}</EvalActionName><EvalDecision>"
            f"{'implicitDeny' if action in forbidden else 'allowed'}</EvalDecision></member>"
            for action in actions
        )
        answer = (
            "<SimulatePrincipalPolicyResponse xmlns='https://iam.amazonaws.com/doc/2010-05-08/'>"
            f"<SimulatePrincipalPolicyResult><EvaluationResults>{members}</EvaluationResults>"
            "</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
        ).encode()
        start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _cluster(self, form: dict[str, str]) -> str:
        """Cluster of the call, empty if that cannot be told."""
        if named := _tag(form, "eva:cluster"):
            return named
        for key, value in form.items():
            if value == "tag:eva:cluster" and key.endswith(".Name"):
                return form[key.replace(".Name", ".Value.1")]
        ec2_id = form.get("InstanceId.1") or form.get("ResourceId.1") or ""
        if ec2_id.startswith(Herd.PREFIX):
            return next(reversed(self._herds))
        instance = _instances().get(ec2_id) if ec2_id else None
        tags = {} if instance is None else {tag["key"]: tag["value"] for tag in instance.get_tags()}
        return str(tags.get("eva:cluster", ""))

    # -- orders ----------------------------------------------------------------------------------

    def _take_order(self, order: dict[str, Any]) -> None:
        for action, codes in order["calls"].items():
            faults = self._faults[order["cluster"], action]
            if codes:
                faults.extend(codes)
            else:
                faults.clear()
        self._launch_ms[order["cluster"]] = order["launch_ms"]
        self._sold_out[order["cluster"]] = order["sold_out"]
        self._ends[order["cluster"]] = order["ends"]

    def _set_outage(self, order: dict[str, Any]) -> None:
        self._outage = order["s3"]

    def _populate(self, order: dict[str, Any]) -> None:
        self._herds[order["cluster"]] = Herd(order["cluster"], order["count"])

    def _fail(self, order: dict[str, Any]) -> None:
        self._stacks.failing = dict(order)

    def _change_account(self, order: dict[str, Any]) -> None:
        self._facts = order

    def _know(self, order: dict[str, Any]) -> None:
        self._identities.update(order)

    def _slow(self, order: dict[str, Any]) -> None:
        self._stacks.looks = order["looks"]

    # -- stacks ----------------------------------------------------------------------------------

    def _stack_call(
        self, form: dict[str, str], environ: dict[str, Any], start: StartResponse
    ) -> Iterable[bytes]:
        if self._account is None:
            self._account = Account(f"http://{environ['HTTP_HOST']}", self._published)
        try:
            answer = self._stacks.answer(form, self._account)
        except Refused as refusal:
            answer = (
                "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code>"
                f"<Message>{refusal}</Message></Error></ErrorResponse>"
            ).encode()
            start("400 Bad Request", [("Content-Type", "text/xml")])
            return [answer]
        start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _parameter(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        """A public parameter whose value has changed since moto wrote it down."""
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        name = json.loads(body)["Name"]
        if name in self._published:
            found = {"Name": name, "Type": "String", "Value": self._published[name], "Version": 2}
            return _answer(start, {"Parameter": found})
        environ["wsgi.input"] = io.BytesIO(body)
        return self._moto(environ, start)

    # -- launches --------------------------------------------------------------------------------

    def _is_sold_out(self, cluster: str, form: dict[str, str]) -> bool:
        name = _offering(form)
        names = {name} if name.endswith("/spot") else {name, form["InstanceType"]}
        return not names.isdisjoint(self._sold_out.get(cluster, ()))

    def _run_instances(
        self,
        cluster: str,
        form: dict[str, str],
        environ: dict[str, Any],
        start: StartResponse,
    ) -> Iterable[bytes]:
        token = form.pop("ClientToken")
        if token not in self._launches:
            status, answer = self._launch(cluster, environ)
            if status != "200 OK":
                start(status, [("Content-Type", "text/xml")])
                return [answer]
            self._launches[token] = form, answer
            ec2_id = _made(answer)
            self._purchases.append(
                {
                    "at": time.time(),
                    "cluster": cluster,
                    "instance": _tag(form, "eva:instance"),
                    "offering": _offering(form),
                    "ec2_id": ec2_id,
                    "gib": int(form.get("BlockDeviceMapping.1.Ebs.VolumeSize", 8)),
                    # Given where the subnet says so: MapPublicIpOnLaunch.
                    "address": bool(_instances()[ec2_id].public_ip),
                }
            )
        parameters, answer = self._launches[token]
        if parameters != form:
            return _refuse(start, "IdempotentParameterMismatch")
        instance = _instances().get(_made(answer))
        if instance is not None and instance.state == "terminated":
            return _refuse(start, "IdempotentInstanceTerminated")
        start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _launch(self, cluster: str, environ: dict[str, Any]) -> tuple[str, bytes]:
        heads: list[Any] = []
        answer = b"".join(self._moto(environ, lambda *head: heads.append(head)))
        status: str = heads[0][0]
        if status != "200 OK":
            return status, answer
        instance = _instances()[_made(answer)]
        if ends := self._ends.get(cluster):
            self._failing[instance.id] = time.time() + ENDS_S, ends.pop(0)
            _set_state(instance, "pending", 0)
        elif delay_ms := self._launch_ms.get(cluster, 0):
            _set_state(instance, "pending", 0)
            # A delay is read off the record: LaunchTime, which EC2 keeps in whole seconds.
            late = instance.launch_time + timedelta(milliseconds=delay_ms, microseconds=999_999)
            instance.launch_time = late.replace(microsecond=0)
            self._pending[instance.id] = instance.launch_time
        return status, answer

    def _come_up(self) -> None:
        from moto.core.utils import utcnow
        from moto.ec2.models.instances import StateReason

        for ec2_id, (at, code) in list(self._failing.items()):
            if at <= time.time():
                instance = _instances()[ec2_id]
                if instance.state == "pending":
                    instance.terminate()
                    instance.state_reason = StateReason(f"{code}: {code} on order", code)
                del self._failing[ec2_id]
        for ec2_id, due in list(self._pending.items()):
            instance = _instances()[ec2_id]
            if instance.state != "pending":
                del self._pending[ec2_id]
            elif due <= utcnow():
                _set_state(instance, "running", 16)
                del self._pending[ec2_id]

    # -- prices ----------------------------------------------------------------------------------

    def _priced(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        """moto's answer about the spot market, with the prices that were ordered."""
        heads: list[Any] = []
        answer = b"".join(self._moto(environ, lambda *head: heads.append(head)))

        def item(found: re.Match[bytes]) -> bytes:
            text = found[0].decode()
            place = "@".join(
                re.search(rf"<{key}>(.*?)</{key}>", text)[1]  # type: ignore[index]
                for key in ("instanceType", "availabilityZone")
            )
            price = self._spot.get(place, "0.00001")
            return re.sub(r"(?<=<spotPrice>).*?(?=</spotPrice>)", price, text).encode()

        answer = re.sub(rb"<item>.*?</item>", item, answer, flags=re.DOTALL)
        start(heads[0][0], [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]


def _sell(order: dict[str, Any]) -> None:
    from moto.ec2.models.instance_types import InstanceTypeBackend

    ON_DEMAND.update(order["prices"])
    for kind in InstanceTypeBackend.instance_types:
        if kind.name in order["gone"]:
            kind["SupportedUsageClasses"] = []


def _quota(request: dict[str, Any], value: float) -> dict[str, Any]:
    code = request["QuotaCode"]
    name = {"L-417A185B": "Running On-Demand P instances"}.get(code, f"Quota {code}")
    return {"Quota": {"QuotaCode": code, "QuotaName": name, "Value": value}}


_JSON_CALLS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "AWSPriceListService.GetProducts": products,
}


def _instances() -> dict[str, Any]:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.ec2 import ec2_backends

    backend = ec2_backends[DEFAULT_ACCOUNT_ID][REGION]
    return {
        instance.id: instance
        for reservation in backend.reservations.values()
        for instance in reservation.instances
    }


def _made(answer: bytes) -> str:
    """The instance that an answer to RunInstances names."""
    made = re.search(rb"<instanceId>(.+?)</instanceId>", answer)
    assert made is not None, answer
    return made[1].decode()


def _offering(form: dict[str, str]) -> str:
    """The offering of a launch: type, zone and, if so, that it is a spot instance."""
    place = f"{form['InstanceType']}@{form.get('Placement.AvailabilityZone', '')}"
    spot = form.get("InstanceMarketOptions.MarketType") == "spot"
    return f"{place}/spot" if spot else place


def _tag(form: dict[str, str], wanted: str) -> str:
    """The value of a tag in a call's form; empty if it is not there."""
    keys = (key for key, value in form.items() if value == wanted and key.endswith(".Key"))
    return next((form[key.replace(".Key", ".Value")] for key in keys), "")


def _set_state(instance: Any, name: str, code: int) -> None:
    instance._state.name, instance._state.code = name, code


def _answer(start: StartResponse, document: Any, status: str = "200 OK") -> Iterable[bytes]:
    body = json.dumps(document).encode()
    start(
        status,
        [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))],
    )
    return [body]


def _refuse(start: StartResponse, code: str) -> Iterable[bytes]:
    message, code = MESSAGES.get(code, code), code.partition("/")[0]
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message} on order"
        "</Message></Error></Errors><RequestID>0</RequestID></Response>"
    ).encode()
    start(
        f"{STATUS.get(code, 400)} Refused",
        [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))],
    )
    return [body]


def main() -> None:
    """Serve until standard input ends, as it does when the tests' process dies."""
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    add_missing_types()
    volumes.install()
    moto = OneAtATime(DomainDispatcherApplication(create_backend_app))
    endpoint = Endpoint(moto)
    guard = Guard(endpoint, endpoint.resources, moto.lock)

    class Handler(MotoRequestHandler):  # type: ignore[misc]
        def date_time_string(self, timestamp: float | None = None) -> str:
            return str(super().date_time_string((timestamp or time.time()) - endpoint.skew_s))

    server = make_server(sys.argv[1], 0, guard, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://{sys.argv[1]}:{server.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
