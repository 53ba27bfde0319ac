"""Where the facts that a configuration states about a column come from: published, or read from the data."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, field_validator, model_validator

from marginweave.schemas.configuration.numbers import FROZEN

_FACTS = ("separator", "max_values", "decimals", "format")


def _published(text: str) -> str:
    if not text.strip():
        raise ValueError("must say where the facts of the column are published")
    return text.strip()


class Confirmation(BaseModel):
    """`public` says where the facts of a column are published; privacy.json prints it as an assumption of the guarantee.

    `confirm: true` marks a column that `marginweave init` drafted from the data. Such a column is refused until it carries
    `public` instead, or is private: then its values or bounds are bought under the budget, and nothing else of the draft
    may be left in it.
    """

    model_config = FROZEN
    confirm: bool | None = None
    public: Annotated[str, AfterValidator(_published)] | None = None

    @field_validator("confirm")
    @classmethod
    def _confirm(cls, value: bool | None) -> bool | None:
        return value or None

    @model_validator(mode="after")
    def _check_confirmed(self) -> Self:
        if self.confirm and self.public is not None:
            raise ValueError("has confirm and public; a column that is confirmed has public alone")
        if self.confirm and "private" not in (getattr(self, "domain", None), getattr(self, "bounds", None)):
            raise ValueError(
                'was drafted from the data and waits for confirmation: write public: "where this is published" instead of '
                "confirm: true, or make it private"
            )
        kept = self._drafted_facts() if self.confirm else []
        if kept:
            raise ValueError(
                f"is private, and still has {', '.join(kept)} as drafted from the data: delete what is not published, or write "
                'public: "where this is published" instead of confirm: true'
            )
        return self

    def _drafted_facts(self) -> list[str]:
        """The keys of a private column that hold more than its kind; a text for the empty cell tells nothing."""
        facts = [key for key in _FACTS if getattr(self, key, None) is not None and key in self.model_fields_set]
        missing: tuple[str, ...] | None = getattr(self, "missing", None)
        told = missing is not None and {text.strip() for text in missing} != {""}
        return [*(["missing"] if told else []), *facts]
