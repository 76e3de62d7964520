"""Names of things in job files of other tools, and what Eva has in place of these things."""

from __future__ import annotations

from collections.abc import Mapping

from eva_wire.text.yamlfile import Path

_RUN = "put it into `run`"
_TASKS = "it is `tasks`"
_MAX_DURATION = "it is `max_duration`"
_IMAGE = "it is `image`"
_ENVS = "it is `envs`"
_AFTER = "it is `after`, with names or ids of jobs"
_RETRIES = "it is `retries`"
_LOGS = "the output of every task is stored, and `eva logs` shows it"
_WORKDIR = "it is `workdir`"
_INPUTS = "files beside the job file are uploaded by `workdir`; others are `storage.inputs`"
_GPUS = "write `resources: {gpus: 1}`"
_CPUS = "write `resources: {cpus: 4}`"
_MEMORY = "write `resources: {memory: 16GiB}`"
_SPOT = "write `spot: allowed`"
_TYPES = "what may be bought is the catalog's; `resources_by_family` says what runs on which family"
_PLACE = "where instances run is the master's setting; `partition` names a part of the cluster"
_PORTS = "nothing is like it: no port of a task is reached from outside the cluster"
_USERS = "leave it out: users are told by their tokens"
_NOTHING = "nothing is like it: leave it out"
_GRACE = "it is `grace_period`"

_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("setup", "commands", "command", "cmd", "script", "entrypoint", "wrap", "args"),
            *("init", "before_script", "steps", "exec", "prolog", "epilog"),
        ),
        _RUN,
    ),
    **dict.fromkeys(
        (
            *("num_nodes", "nodes", "ntasks", "num_tasks", "replicas", "completions", "instances"),
            *("count", "n", "num_workers", "workers"),
        ),
        _TASKS,
    ),
    **dict.fromkeys(
        ("array", "array_size", "job_array"),
        "write `tasks: 30` and `kind: array`; or `eva submit --array FILE.csv`",
    ),
    **dict.fromkeys(("parallelism", "max_parallel"), "it is `concurrency`"),
    **dict.fromkeys(
        (
            *("time", "timeout", "walltime", "time_limit", "timelimit", "max_time", "time_min"),
            *("max_runtime", "active_deadline_seconds", "activedeadlineseconds", "max_run_time"),
        ),
        _MAX_DURATION,
    ),
    **dict.fromkeys(("image_id", "docker", "docker_image", "container", "container_image"), _IMAGE),
    **dict.fromkeys(("env", "environment", "variables", "export", "env_vars"), _ENVS),
    **dict.fromkeys(("depends_on", "dependency", "dependencies", "needs", "requires"), _AFTER),
    **dict.fromkeys(
        ("retry", "max_restarts", "max_retries", "backofflimit", "requeue", "restartpolicy"),
        _RETRIES,
    ),
    **dict.fromkeys(
        ("stdout", "stderr", "output", "error", "log", "logs", "log_file", "open_mode"), _LOGS
    ),
    **dict.fromkeys(("chdir", "working_dir", "workingdir", "work_dir", "cwd", "repos"), _WORKDIR),
    **dict.fromkeys(
        ("file_mounts", "files", "mounts", "volumes", "inputs", "data", "datasets"), _INPUTS
    ),
    "outputs": "what the program writes to $EVA_STORAGE/outputs is stored",
    **dict.fromkeys(("accelerators", "gpu", "gpus", "gres", "num_gpus", "gpus_per_node"), _GPUS),
    **dict.fromkeys(("cpu", "cpus", "vcpus", "ncpus", "cpus_per_task", "cores", "num_cpus"), _CPUS),
    **dict.fromkeys(("mem", "memory", "ram", "mem_per_cpu", "mem_per_node"), _MEMORY),
    **dict.fromkeys(("use_spot", "spot_policy", "preemptible", "spot_instance"), _SPOT),
    **dict.fromkeys(("instance_type", "instance_types", "machine_type", "constraint"), _TYPES),
    **dict.fromkeys(("region", "regions", "zone", "cloud", "infra", "backends", "backend"), _PLACE),
    **dict.fromkeys(("queue", "fleet", "fleets"), "it is `partition`"),
    **dict.fromkeys(("max_price", "max_hourly_cost", "budget"), "nothing is like it in a job file"),
    **dict.fromkeys(("ports", "port", "service", "gateway", "expose"), _PORTS),
    **dict.fromkeys(("account", "qos", "user", "owner", "project"), _USERS),
    **dict.fromkeys(("stop_duration", "terminationgraceperiodseconds", "signal"), _GRACE),
    **dict.fromkeys(("job_name", "jobname", "title", "job"), "it is `name`"),
    **dict.fromkeys(("nice", "priority_class"), "it is `priority`"),
    **dict.fromkeys(
        (
            *("autostop", "idle_duration", "creation_policy", "apiversion", "metadata", "type"),
            *("mail_type", "mail_user", "python", "config", "labels", "tags", "exclusive"),
        ),
        _NOTHING,
    ),
    "spec": "write its keys at the top of the file",
    "containers": "a job has one `image` and one `run`; `tasks` lists different ones",
    "template": "write its keys at the top of the file",
    **dict.fromkeys(("disk", "disk_size", "disk_tier", "shm_size"), _NOTHING),
    **dict.fromkeys(("requests", "limits"), "write `resources: {cpus: 4, memory: 16GiB}`"),
    "schedule": "nothing is like it: have cron call `eva submit`",
    "<<": "merge keys are no part of YAML 1.2: write its entries out",
}
_UNDER_RESOURCES: Mapping[str, str] = {
    **dict.fromkeys(("accelerators", "gpu", "gres", "nvidia_com/gpu"), "it is `gpus`, a number"),
    **dict.fromkeys(("cpu", "vcpus", "cores", "cpus_per_task"), "it is `cpus`"),
    **dict.fromkeys(("mem", "ram"), "it is `memory`"),
    **dict.fromkeys(("use_spot", "spot"), "write `spot: allowed` at the top of the file"),
    "image_id": "it is `image`, at the top of the file",
}


def advice(path: Path) -> str:
    """Eva's counterpart of a key of another tool's job file; empty if nothing is known.

    Args:
        path: Of the key, which job files do not have.
    """
    key = str(path[-1]).lower().replace("-", "_").replace(".", "_")
    counterpart = _KEYS.get(key, "")
    if "resources" in path[:-1]:
        counterpart = _UNDER_RESOURCES.get(key, counterpart)
    elif len(path) > 1 and not (path[0] == "tasks" and len(path) <= 3):
        counterpart = counterpart if key == "<<" else ""
    return f"Eva has no `{path[-1]}`: {counterpart}" if counterpart else ""
