"""Names that commands of other tools have here, and slips of the pen."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "`eva ls` lists jobs": ("ps", "list", "queue", "jobs", "squeue", "qstat", "bjobs", "history"),
    "`eva submit FILE` submits a job": (
        *("launch", "create", "apply", "add", "sbatch", "qsub", "bsub", "start-job"),
    ),
    "`eva run -- COMMAND` runs a command and shows its log": ("srun", "salloc", "qrsh", "execute"),
    "`eva get JOB --metrics` prints a row for each task": ("metrics", "results", "report", "csv"),
    "`eva logs JOB` prints what a task wrote": ("log", "tail", "output"),
    "`eva get JOB` fetches files of a job": (
        *("cp", "scp", "download", "fetch", "rsync", "sync", "outputs", "pull"),
    ),
    "`eva status JOB` tells all of a job, and `eva explain JOB` why": (
        *("describe", "info", "show", "inspect", "stat", "job", "diagnose"),
    ),
    "`eva cancel JOB` ends a job": (
        *("kill", "delete", "del", "scancel", "qdel", "bkill", "abort", "remove", "end"),
    ),
    "`eva cancel JOB` ends a job, and `eva suspend JOB` has it wait": ("stop", "halt"),
    "`eva suspend JOB` has a job wait": ("pause", "hold"),
    "`eva resume JOB` has a suspended job go on": ("unpause", "release", "continue", "unsuspend"),
    "Ctrl-C ends `eva up`, `eva teardown` removes a cluster from AWS, and `eva cancel JOB` ends a "
    "job": ("down", "destroy", "shutdown", "terminate"),
    "`eva up` runs a cluster on this machine": ("start", "serve", "server", "init", "local"),
    "`eva nodes` lists instances": (
        *("sinfo", "instances", "machines", "hosts", "instance", "workers", "clusters"),
    ),
    "`eva cost` shows what was spent": (
        "bill",
        "billing",
        "costs",
        "cost-report",
        "usage",
        "spend",
    ),
    "`eva top` shows instances, tasks and costs as they change": (*("watch", "monitor", "stats"),),
    "`eva ui` shows the cluster in a browser": ("dashboard", "web", "pages", "browser", "gui"),
    "`eva catalog ls` lists what may be bought": (
        *("offers", "offer", "gpus", "show-gpus", "prices", "types", "show"),
    ),
    "`eva exec JOB` runs a shell in a task": ("ssh", "shell", "attach", "attach-shell"),
    "`eva port-forward JOB PORT` reaches a port of a task": ("tunnel", "proxy", "forward"),
    "`eva token create` makes a token, and `eva whoami` shows yours": (
        *("login", "auth", "logout", "user", "users"),
    ),
    "`eva config` shows the settings in force": ("settings", "check", "configure", "context"),
    "`eva --version` prints it": ("version",),
    "`eva --help` lists all commands": ("help", "commands"),
    "`eva policies` lists schedulers": ("policy", "schedulers"),
    "`eva plan FILE` previews a job": ("dryrun", "dry-run", "preview", "estimate", "optimize"),
}
"""Advice, each with the names of other tools that it answers."""
_ALIKE = 0.6


def advice(word: str, commands: Sequence[str]) -> str:
    """Advice on what to write in place of an unknown command; empty if nothing is known.

    Args:
        word: Word that the user typed.
        commands: Existing commands.
    """
    for hint, words in OTHER_NAMES.items():
        if word.lower() in words:
            return hint
    close = difflib.get_close_matches(word, commands, n=3, cutoff=_ALIKE)
    # A short word that begins as a command does is meant to be it, before those that are alike.
    begun = [name for name in commands if word and name.startswith(word)]
    likely = begun[:3] if len(begun) == 1 else list(dict.fromkeys((*close, *begun)))[:3]
    if not likely:
        return ""
    return f"did you mean {' or '.join(f'`eva {name}`' for name in likely)}?"
