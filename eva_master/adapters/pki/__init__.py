"""Who is who in a cluster: its certificate authority, and the certificates that come from it."""

from eva_master.adapters.pki.authority import MASTER_NAME, Authority
from eva_master.adapters.pki.server import ServerIdentity

__all__ = ["MASTER_NAME", "Authority", "ServerIdentity"]
