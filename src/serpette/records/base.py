"""What all records share: frozen, JSON both ways, a content hash, one clear line when a file is wrong."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serpette.errors import RecordError
from serpette.files import write_text

SCHEMA_VERSION = 1


class Frozen(BaseModel):
    """A value inside a record: immutable, and strict about unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class Record(Frozen):
    """One stage's result, which the next stage, a file or a person can read.

    `kind` names the record in its JSON, so that a plan is never read as a profile.
    """

    kind: ClassVar[str]
    schema_version: int = Field(default=SCHEMA_VERSION)

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        found = data.get("kind", cls.kind)
        if found != cls.kind:
            raise ValueError(f"this is a {found}, not a {cls.kind}")
        version = data.get("schema_version", SCHEMA_VERSION)
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise ValueError(f"written by a newer serpette (schema {version}, this one reads up to {SCHEMA_VERSION})")
        return {key: value for key, value in data.items() if key != "kind"}

    def to_json(self) -> str:
        """The record as indented JSON, `kind` first."""
        return json.dumps({"kind": self.kind, **self.model_dump(mode="json")}, indent=1, allow_nan=False)

    @property
    def content_hash(self) -> str:
        """SHA-256 over the canonical JSON without the time of its making, first 16 hexadecimal digits."""
        content = self.model_dump(mode="json", exclude={"provenance": {"created"}})
        canonical = json.dumps({"kind": self.kind, **content}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the JSON to `path`, to a temporary name first."""
        return write_text(Path(path), self.to_json() + "\n")

    @classmethod
    def from_json(cls, text: str, name: str = "the input") -> Self:
        """Read a record from JSON.

        Raises:
            RecordError: `text` is not JSON, or not a record of this kind.
        """
        try:
            return cls.model_validate(json.loads(text))
        except json.JSONDecodeError as error:
            raise RecordError(f"{name} is not JSON ({error}); expected a {cls.kind} written by serpette.") from error
        except ValidationError as error:
            raise RecordError(f"{name} is not a valid {cls.kind}: {first_problem(error)}.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a record from a file.

        Raises:
            RecordError: the file is missing, not JSON, or another kind of record.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            raise RecordError(f"cannot read {path} ({reason}); expected a {cls.kind} written by serpette.") from error
        return cls.from_json(text, str(path))


def first_problem(error: ValidationError) -> str:
    """The first validation problem on one line, with the place where it is."""
    problem = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
