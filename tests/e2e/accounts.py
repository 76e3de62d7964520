"""What the ledger says, compared with the cloud's own books."""

from __future__ import annotations

from eva_wire.values.ids import micro_usd
from tests.e2e.cluster import Cluster


def charged(cluster: Cluster) -> dict[str, int]:
    """What the cloud charges for each instance, exactly; all of them must be gone."""
    charges = {}
    for name, record in cluster.records().items():
        assert record.gone_ms is not None
        if record.up_ms is not None:
            billed_ms = max(record.gone_ms - record.up_ms, cluster.minimum_ms)
            charges[name] = record.price * billed_ms
    return charges


def check_bill(cluster: Cluster) -> None:
    """What users are told is what the cloud charges, instance by instance and in all."""
    charges = charged(cluster)
    bill = cluster.client.cost(newest=1000)
    told = {it.id: it.price_micro_usd_per_hour * it.billed_ms for it in bill.instances}
    assert told == charges
    assert all(it.closed for it in bill.instances)
    assert all(it.cost_micro_usd == micro_usd(charges[it.id]) for it in bill.instances)
    assert bill.cost_micro_usd == micro_usd(sum(charges.values()))
    parts = sum(job.cost_micro_usd for job in bill.jobs) + bill.idle_micro_usd
    # Each part is rounded by itself.
    assert abs(parts - bill.cost_micro_usd) <= len(bill.jobs)


def check_accounts(cluster: Cluster) -> None:
    """The parts of the bill add up to it, to the last integer; once the master has ended."""
    with cluster.journal() as journal:
        books = journal.load()
    charges = charged(cluster)
    assert {it.instance: it.charged for it in books.instance_accounts} == charges
    jobs = [account.charged for account in books.job_accounts]
    idle = [account.idle for account in books.instance_accounts]
    assert all(part > 0 for part in jobs)
    assert sum(jobs) + sum(idle) == sum(charges.values())
