"""The proof of an AWS identity, as client and master agree on it.

The proof is a presigned ``sts:GetCallerIdentity`` whose signature covers the cluster and the
master's nonce. Only what differs between proofs crosses the wire; the master adds the rest, so a
client cannot have it call anything else.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping

AWS = "aws"
"""The kind of identities that this page is about."""
LIFETIME_S = 60
"""How long a proof and its nonce are good."""
CLUSTER_HEADER, NONCE_HEADER = "x-eva-cluster", "x-eva-nonce"
CALL: Mapping[str, str] = {"Action": "GetCallerIdentity", "Version": "2011-06-15"}
TERMS: Mapping[str, str] = {
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Expires": str(LIFETIME_S),
    "X-Amz-SignedHeaders": f"host;{CLUSTER_HEADER};{NONCE_HEADER}",
}
"""Parameters of the signature that are the same in every proof."""
_END = "-----END CERTIFICATE-----"


def signed_headers(cluster: str, authority: str, nonce: str) -> dict[str, str]:
    """The headers that a proof is bound by.

    Args:
        cluster: Name of the cluster.
        authority: Digest of its authority, as two clusters may have one name.
        nonce: The master's.
    """
    return {CLUSTER_HEADER: f"{cluster}/{authority}", NONCE_HEADER: nonce}


def authority_digests(pem: bytes) -> list[str]:
    """SHA-256 of each certificate in a PEM file, the cluster's present authority first.

    Raises:
        ValueError: The text is no PEM file.
    """
    parts = pem.decode("ascii").split(_END)[:-1]
    ders = (ssl.PEM_cert_to_DER_cert(part[part.index("-----BEGIN") :] + _END) for part in parts)
    return [hashlib.sha256(der).hexdigest() for der in ders]
