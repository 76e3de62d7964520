"""The files that `benchmarks.packing` reads, checked before anything is packed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from eva_lab.traces.rows import read_json, refusal
from eva_wire.text.yamlfile import dotted, wording
from eva_wire.values.errors import Problem

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Size = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]
_Normalised = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    # The files hold more than is needed here.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Kind(_Model):
    """An instance type; memory in GiB, dollars per hour."""

    name: _Name
    family: _Name
    gpu: _Count
    cpu: _Size
    ram: _Size
    price: _Size


class Item(_Model):
    """Tasks that are alike: GPUs, CPUs and GiB per family."""

    workload: _Name
    demands: Annotated[dict[_Name, tuple[_Count, _Amount, _Amount]], Field(min_length=1)]
    count: Annotated[int, Field(ge=1)] = 1


class Optimum(_Model):
    """Bounds of the best packing, in dollars per hour."""

    best_integer: _Size | None = None


class Input(_Model):
    """The tasks of a file, to pack."""

    tasks: Annotated[
        list[Item], Field(min_length=1, validation_alias=AliasChoices("tasks", "classes"))
    ]
    optimum: Optimum = Optimum()


class Inputs(_Model):
    """A file of trials to pack."""

    instance_types: Annotated[list[Kind], Field(min_length=1)]
    trials: Annotated[
        list[Input], Field(min_length=1, validation_alias=AliasChoices("trials", "inputs"))
    ]


class Pairs(_Model):
    """Normalised throughput by workload and by neighbour; null where nobody measured it."""

    throughput: dict[_Name, dict[_Name, _Normalised | None]]
    default: _Normalised = 0.95


M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M]) -> M:
    """Read a file.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names the row and field of each problem.
    """
    content = read_json(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [Problem(wording(detail), dotted(tuple(detail["loc"]))) for detail in details]
        raise refusal(path, problems) from error
