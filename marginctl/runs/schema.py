"""What the schemas of records have in common."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from marginctl.errors import RequestError

READ = ConfigDict(extra="allow", strict=True)
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


def fits(model: type[BaseModel], document: Any) -> bool:
    """Whether a document is one of a schema."""
    try:
        model.model_validate(document)
    except (ValidationError, RequestError):
        return False
    return True
