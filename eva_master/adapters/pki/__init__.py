"""The cluster's certificate authority and the certificates that it issues."""

from eva_master.adapters.pki.authority import MASTER_NAME, Authority
from eva_master.adapters.pki.server import ServerIdentity

__all__ = ["MASTER_NAME", "Authority", "ServerIdentity"]
