"""A planted fault: one place of the shipped code, what stands there instead, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.places import REPOSITORY


class MovedError(Exception):
    """The code that a fault replaces is not there any more, or stands there more than once."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`text`, which stands exactly once in `file`, becomes `instead`; every test of `killed_by` must fail for it.

    `name` says what is wrong in words of the subject. A test is named as pytest has it, from the root of the repository; a
    parametrized one fails if one of its cases does.
    """

    name: str
    file: str
    text: str
    instead: str
    killed_by: tuple[str, ...]

    @property
    def module(self) -> str:
        """The name under which the file is imported."""
        name = self.file.removesuffix(".py").replace("/", ".")
        return name.removeprefix("src.") if name.startswith("src.") else f"marginweave.{name}"

    def planted_in(self, source: str) -> str:
        """The source with the fault in it. What numba compiles of it is not kept.

        Raises:
            MovedError: the code has changed, so that the fault has to be written anew.
        """
        found = source.count(self.text)
        if found != 1:
            raise MovedError(
                f"{self.name}: its text stands {found} times in {self.file}, not once: write the fault anew"
            )
        return source.replace(self.text, self.instead).replace(
            "from marginweave.base.compiled import", "from tests.faults.uncached import"
        )

    def planted(self) -> str:
        """The shipped source with the fault in it. Raises MovedError."""
        return self.planted_in((REPOSITORY / self.file).read_text(encoding="utf-8"))
