"""Closes addresses of the machine's network to tasks: the metadata service and the agent's ports.

Tasks on the machine's network are told apart by their user, which nothing else runs as. The
metadata service is closed to every container that has a network of its own, too.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from eva_worker.isolation import UNPRIVILEGED

TABLE = "eva_tasks"
_METADATA = ("169.254.169.254", "169.254.170.2")
"""Of an instance, and of what EC2's container services give to their tasks."""
_METADATA_6 = ("fd00:ec2::254",)
_CHAIN = "EVA-TASKS"
_IPV6 = Path("/proc/net/if_inet6")
_TIMEOUT_S = 10

Run = Callable[[Sequence[str], str], None]


class NotClosed(Exception):
    """The addresses cannot be closed; the message says why."""


def close(ports: Sequence[int], run: Run | None = None) -> str:
    """Close the addresses; it may be repeated, and the rules stay when the worker ends.

    Args:
        ports: TCP ports of the agent on this machine.
        run: Runs a command with an input; replaced in tests.

    Returns:
        The program that did it.

    Raises:
        NotClosed: Neither nftables nor iptables can be used.
    """
    run = run or _run
    reasons = []
    for program, apply in (("nft", _with_nft), ("iptables", _with_iptables)):
        try:
            apply(ports, run)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            reasons.append(f"{program}: {said.strip()}")
        else:
            return program
    raise NotClosed("; ".join(reasons))


def ruleset(ports: Sequence[int]) -> str:
    """The rules for nftables, which replace those of an earlier worker at once."""
    ipv4, ipv6 = ", ".join(_METADATA), ", ".join(_METADATA_6)
    tasks = f"meta skuid {UNPRIVILEGED}"
    agent = [f"{tasks} fib daddr type local tcp dport {port} reject" for port in ports]
    out = "\n    ".join(
        [
            f"{tasks} ip daddr {{ {ipv4} }} reject",
            f"{tasks} ip6 daddr {{ {ipv6} }} reject",
            *agent,
        ]
    )
    return f"""\
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
  chain tasks {{
    type filter hook output priority filter; policy accept;
    {out}
  }}
  chain containers {{
    type filter hook forward priority filter - 1; policy accept;
    ip daddr {{ {ipv4} }} reject
    ip6 daddr {{ {ipv6} }} reject
  }}
}}
"""


def _with_nft(ports: Sequence[int], run: Run) -> None:
    run(["nft", "-f", "-"], ruleset(ports))


def _with_iptables(ports: Sequence[int], run: Run) -> None:
    tasks = ["-m", "owner", "--uid-owner", str(UNPRIVILEGED)]
    agent = [
        [*tasks, "-p", "tcp", "--dport", str(port), "-m", "addrtype", "--dst-type", "LOCAL"]
        for port in ports
    ]
    # A machine without IPv6 has nothing to close, and ip6tables fails there.
    families = [("iptables", _METADATA), ("ip6tables", _METADATA_6)]
    for program, addresses in families[: 1 + _IPV6.exists()]:
        metadata = [["-d", address] for address in addresses]
        rules = {"OUTPUT": [*([*tasks, *match] for match in metadata), *agent], "FORWARD": metadata}
        for hook, matches in rules.items():
            chain = f"{_CHAIN}-{hook}"
            # Restored as a whole: a chain that is named anew is emptied first.
            lines = ["*filter", f":{chain} - [0:0]"]
            lines += [f"-A {chain} {' '.join(match)} -j REJECT" for match in matches]
            run([f"{program}-restore", "--noflush"], "\n".join([*lines, "COMMIT", ""]))
            try:
                run([program, "-C", hook, "-j", chain], "")
            except subprocess.CalledProcessError:
                run([program, "-I", hook, "1", "-j", chain], "")


def _run(command: Sequence[str], given: str) -> None:
    program = shutil.which(command[0], path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise FileNotFoundError(f"{command[0]} is not there")
    subprocess.run(
        [program, *command[1:]],
        input=given,
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
