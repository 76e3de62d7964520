"""Calls about the cluster as a whole, its users, secrets and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eva_client.rpc.connection import PAGE, Connection, command_id, paged
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import (
    ClusterStub,
    NodesStub,
    NoticesStub,
    SecretsStub,
    TokensStub,
)
from eva_wire.values.errors import InvalidRequest


class ClusterCalls(Connection):
    """State and costs of the cluster, and orders of operators; see `Client`."""

    def __init__(
        self, address: str, *, authorities: bytes, token: str, timeout_s: float = 30.0
    ) -> None:
        super().__init__(address, authorities=authorities, token=token, timeout_s=timeout_s)
        self._cluster = ClusterStub(self._channel)
        self._secrets = SecretsStub(self._channel)
        self._tokens = TokensStub(self._channel)
        self._nodes = NodesStub(self._channel)
        self._notices = NoticesStub(self._channel)

    def drain(self, instance: str, *, move: bool) -> pb.Instance:
        """Have an instance take no new task and go once it is empty; it may be said again."""
        request = pb.DrainRequest(command_id=command_id(), instance=instance, move=move)
        return self._call(self._cluster.Drain, request).instance

    def describe(self) -> pb.ClusterState:
        """The cluster and its instances, less those that are gone."""
        return self._call(self._cluster.Describe, pb.DescribeRequest())

    def instances(self) -> Iterator[pb.Instance]:
        """All instances that ever were, newest first, fetched page by page."""

        def page(token: str) -> tuple[Iterable[pb.Instance], str]:
            request = pb.DescribeRequest(all=True, page_size=PAGE, page_token=token)
            answer = self._call(self._cluster.Describe, request)
            return answer.instances, answer.next_page_token

        return paged(page)

    def cost(self, *, newest: int = 100) -> pb.Bill:
        """The costs of the cluster so far, with the newest jobs and instances.

        Args:
            newest: At most so many of each, from 0 to 1,000; see `job_costs` and `instance_costs`
                for all.
        """
        return self._call(
            self._cluster.Cost,
            pb.CostRequest(page_size=newest, without_jobs=not newest, without_instances=not newest),
        )

    def cost_by(self, by: str) -> pb.Bill:
        """The sums of the bill, and its parts by a property such as `owner` or `label:KEY`.

        Raises:
            InvalidRequest: The property is none, or the master is of a release without it.
        """
        request = pb.CostRequest(without_jobs=True, without_instances=True, by=by)
        answer = self._call(self._cluster.Cost, request)
        if answer.by != by:
            raise InvalidRequest(
                f"this master does not tell costs by {by}", hint="it is an older one: upgrade it"
            )
        return answer

    def job_costs(self) -> Iterator[pb.JobCost]:
        """The cost of each job of all time, newest first, fetched page by page."""

        def page(token: str) -> tuple[Iterable[pb.JobCost], str]:
            request = pb.CostRequest(page_size=PAGE, jobs_page_token=token, without_instances=True)
            answer = self._call(self._cluster.Cost, request)
            return answer.jobs, answer.next_jobs_page_token

        return paged(page)

    def instance_costs(self) -> Iterator[pb.InstanceCost]:
        """The cost of each instance that was ever billed, newest first, fetched page by page."""

        def page(token: str) -> tuple[Iterable[pb.InstanceCost], str]:
            request = pb.CostRequest(page_size=PAGE, instances_page_token=token, without_jobs=True)
            answer = self._call(self._cluster.Cost, request)
            return answer.instances, answer.next_instances_page_token

        return paged(page)

    def tenants(self) -> pb.TenantsResponse:
        """The tenants with their jobs and costs, and the sums over all."""
        return self._call(self._cluster.Tenants, pb.TenantsRequest())

    def partitions(self) -> pb.PartitionsResponse:
        """Each partition's holdings and costs, and the sums over all."""
        return self._call(self._cluster.Partitions, pb.PartitionsRequest())

    def interference(self) -> pb.Learned:
        """Learned figures of workloads and instance types."""
        return self._call(self._cluster.Interference, pb.InterferenceRequest())

    def estimates(self, owner: str = "") -> pb.LearnedTimes:
        """Learned run times, of one owner or, if empty, of all."""
        return self._call(self._cluster.Estimates, pb.EstimatesRequest(owner=owner))

    def explain(self, subject: str = "") -> pb.Explanation:
        """Explain a job, an instance or a round; the newest round if none is named."""
        return self._call(self._cluster.Explain, pb.ExplainRequest(subject=subject))

    def config(self) -> str:
        """The master's settings in force, as JSON."""
        return self._call(self._cluster.Config, pb.ConfigRequest()).json

    def create_token(
        self, owner: str, role: str, *, lifetime_ms: int | None = None
    ) -> pb.CreateTokenResponse:
        """Create a user's token; without a lifetime it does not expire."""
        request = pb.CreateTokenRequest(owner=owner, role=role, lifetime_ms=lifetime_ms or 0)
        return self._call(self._tokens.Create, request)

    def tokens(self) -> Sequence[pb.Token]:
        """List all user tokens, oldest first."""
        return self._call(self._tokens.List, pb.ListTokensRequest()).tokens

    def revoke_token(self, key: str) -> None:
        """Revoke a token, which is then refused."""
        self._call(self._tokens.Revoke, pb.RevokeTokenRequest(id=key))

    def set_secret(self, name: str, value: bytes, tenant: str = "") -> pb.SetSecretResponse:
        """Set a secret of one's own, or of a tenant."""
        request = pb.SetSecretRequest(name=name, value=value, tenant=tenant)
        return self._call(self._secrets.Set, request)

    def secrets(self, tenant: str = "") -> Sequence[pb.Secret]:
        """List one's own secrets and those of one's tenant, or those of a tenant; by name."""
        return self._call(self._secrets.List, pb.ListSecretsRequest(tenant=tenant)).secrets

    def remove_secret(self, name: str, tenant: str = "") -> pb.RemoveSecretResponse:
        """Remove a secret of one's own, or of a tenant."""
        request = pb.RemoveSecretRequest(name=name, tenant=tenant)
        return self._call(self._secrets.Remove, request)

    def receivers(self) -> pb.ListReceiversResponse:
        """How the receivers of notices fare."""
        return self._call(self._notices.List, pb.ListReceiversRequest())

    def try_receivers(self, receiver: str = "") -> Sequence[pb.NoticeTrial]:
        """Send a notice to a receiver as a trial, or to all.

        Raises:
            NotFound: There is no such receiver.
        """
        request = pb.TestNoticeRequest(receiver=receiver)
        return self._call(self._notices.Test, request).trials

    def create_node_token(self, node: str, lifetime_ms: int) -> pb.NodeTokenResponse:
        """Make a token that one machine may join with as an owned node."""
        request = pb.NodeTokenRequest(node=node, lifetime_ms=lifetime_ms)
        return self._call(self._nodes.Token, request)

    def act_on_node(self, node: str, verb: str) -> None:
        """Drain, resume, give up or remove an owned node."""
        request = pb.NodeActRequest(command_id=command_id(), node=node, verb=verb)
        self._call(self._nodes.Act, request)

    def owned_nodes(self) -> Sequence[pb.Node]:
        """The declared owned nodes, be they here or not."""
        return self._call(self._nodes.List, pb.ListNodesRequest()).nodes

    def login(self) -> pb.LoginResponse:
        """A code with which a browser logs in to the pages, once."""
        return self._call(self._tokens.Login, pb.LoginRequest())

    def who_am_i(self) -> pb.Token:
        """The token that this client uses."""
        return self._call(self._tokens.WhoAmI, pb.WhoAmIRequest())
