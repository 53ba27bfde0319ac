"""Public names, commands and options that executed examples of the pages use: by syntax, not by text.

A name in a comment, a string or a sentence counts for nothing. An attribute counts for the class of its object: the classes of
variables follow from calls of public names, and from the annotations of what these return.
"""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import typer.main

import marginweave
import marginweave.inference
from marginweave.flows.cli.app import app

Command = tuple[str, ...]  # the words of a command: ("ledger", "open")


def commands(group: Any, path: Command = ()) -> Iterator[tuple[Command, Any]]:
    """Yield every command of a group of Typer with its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS: Mapping[Command, Any] = MappingProxyType(dict(commands(typer.main.get_command(app))))


def _members(owner: type) -> dict[str, Any]:
    """Return what a class itself defines without an underscore, and its fields: methods and properties by name."""
    defined = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    if is_dataclass(owner):
        defined |= {field.name: None for field in fields(owner)}
    return defined


def _module_names(module: Any, names: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """Return the public names of a module and, of its classes, the members, with the object of each."""
    objects: dict[str, Any] = {}
    for name in names:
        value = getattr(module, name)
        objects[f"{prefix}{name}"] = value
        if inspect.isclass(value) and not issubclass(value, Exception):
            for member, content in _members(value).items():
                objects[f"{prefix}{name}.{member}"] = content
    return objects


def public_names(errors: Iterable[str]) -> dict[str, Any]:
    """Return every public name of the package with its object: `Release.query`, `inference.regression`, `errors.InputError`."""
    return {
        **_module_names(marginweave, marginweave.__all__),
        **_module_names(marginweave.inference, marginweave.inference.__all__, "inference."),
        **_module_names(marginweave.errors, errors, "errors."),
    }


class Uses(ast.NodeVisitor):
    """Collects the public names that blocks of Python use, read in the order in which they run."""

    def __init__(self, public: Mapping[str, Any]) -> None:
        self.public = public
        self.used: set[str] = set()
        self._modules: dict[str, str] = {}  # a variable and the prefix of the module's names
        self._names: dict[str, str] = {}  # a variable and the public name that it is
        self._kinds: dict[str, str] = {}  # a variable and the public class of its object

    @cached_property
    def _classes(self) -> dict[str, str]:
        return {
            name.rpartition(".")[2]: name
            for name, value in self.public.items()
            if inspect.isclass(value)
        }

    def read(self, block: str) -> None:
        """Read a block of Python."""
        self.visit(ast.parse(block))

    def _public_name(self, node: ast.expr) -> str:
        """Return the public name that an expression is, or an empty text."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, "")
        if not isinstance(node, ast.Attribute):
            return ""
        if isinstance(node.value, ast.Name) and node.value.id in self._modules:
            name = self._modules[node.value.id] + node.attr
        else:
            owner = self._public_name(node.value) or self._kind(node.value)
            name = f"{owner}.{node.attr}"
        return name if name in self.public else ""

    def _kind(self, node: ast.expr) -> str:
        """Return the public class of an expression's object, or an empty text."""
        if isinstance(node, ast.Name):
            return self._kinds.get(node.id, "")
        if isinstance(node, ast.BinOp):
            return self._kind(node.left)  # of `configuration | changes`
        if isinstance(node, ast.Call):
            called = self._public_name(node.func)
            return called if inspect.isclass(self.public.get(called)) else self._returned(called)
        return self._returned(self._public_name(node)) if isinstance(node, ast.Attribute) else ""

    def _returned(self, name: str) -> str:
        """Return the public class that a function returns or a property is, or an empty text."""
        value = self.public.get(name)
        function = getattr(value, "fget", None) or getattr(value, "func", None) or value
        function = getattr(function, "__func__", function)
        annotation = getattr(function, "__annotations__", {}).get("return", "")
        if annotation == "Self":
            return name.rpartition(".")[0]
        kind = self._classes.get(annotation, "")
        imported = getattr(function, "__globals__", {}).get(
            annotation
        )  # another class can have the same name
        return kind if kind and imported in (None, self.public[kind]) else ""

    def visit_Import(self, node: ast.Import) -> None:
        """Note what the package and its modules are called."""
        prefixes = {"marginweave": "", "marginweave.inference": "inference."}
        for alias in node.names:
            if alias.name in prefixes and alias.asname:
                self._modules[alias.asname] = prefixes[alias.name]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note what public names are called."""
        prefix = {"marginweave": "", "marginweave.inference": "inference."}.get(node.module or "")
        for alias in node.names if prefix is not None else ():
            self._names[alias.asname or alias.name] = f"{prefix}{alias.name}"

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note the classes of variables, after what the value uses."""
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, node.value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._kinds[target.id] = self._kind(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, content in zip(target.elts, value.elts, strict=True):
                self._bind(part, content)
        else:
            self.visit(target)

    def visit_Name(self, node: ast.Name) -> None:
        """Note the use of an imported name."""
        self._use(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note the use of an attribute."""
        self._use(node)
        self.generic_visit(node)

    def _use(self, node: ast.expr) -> None:
        name = self._public_name(node)
        if name:
            self.used.add(name)
            module = name.partition(".")[0]
            if module in self.public:
                self.used.add(module)


_ENDS = "();<>|&\n"  # what ends a command of the shell


class _Lines(io.StringIO):
    """A text whose end of line is still there when `shlex` has skipped a comment."""

    def readline(self, size: int = -1, /) -> str:
        """Read to the end of the line, and leave its mark."""
        line = super().readline(size)
        if line.endswith("\n"):
            self.seek(self.tell() - 1)
        return line


def shell_uses(block: str) -> set[tuple[Command, str]]:
    """Return the commands of `marginweave` that a block of shell runs, each with an empty option and with each option.

    What is quoted is a word like any other, so a command in quotes or in a comment counts for nothing.
    """
    lexer = shlex.shlex(_Lines(block.replace("\\\n", " ")), posix=True, punctuation_chars=_ENDS)
    lexer.whitespace = " \t\r"
    used: set[tuple[Command, str]] = set()
    words: list[str] = []
    for token in [*lexer, ";"]:
        if not token or not {*token} <= {*_ENDS}:
            words.append(token)
            continue
        used |= _command_uses(words)
        words = []
    return used


def _command_uses(words: list[str]) -> set[tuple[Command, str]]:
    """Return the command that words run, after what they set, with an empty option and with each option among them."""
    words = list(itertools.dropwhile(lambda word: "=" in word, words))
    command = next(
        (path for path in COMMANDS if words[: len(path) + 1] == ["marginweave", *path]), ()
    )
    if not command:
        return set()
    options = {word.partition("=")[0] for word in words}
    return {(command, "")} | {(command, option) for option in options & options_of(command)}


def options_of(command: Command) -> set[str]:
    """Return the options that a command has."""
    return {
        option
        for parameter in COMMANDS[command].params
        for option in parameter.opts
        if option.startswith("--")
    }


_SPAN = re.compile(r"`([^`]+)`")


def shown_options(page: str) -> set[tuple[Command, str]]:
    """Return the commands of the page of commands, each with an empty option and with each option that is shown for it.

    An option belongs to the commands in the same line, or else to the command in the heading above.
    """
    shown: set[tuple[Command, str]] = set()
    prefix: Command = ()
    headed: set[Command] = set()
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    for line in _SPAN.sub(lambda span: span[0].replace("\n", " "), prose).splitlines():
        if line.startswith("#"):
            heading = line.strip("# ").lower().split()
            headed = {(heading[0],)} & {*COMMANDS} if heading else set()
            if line.startswith("## "):
                prefix = ("ledger",) if heading == ["ledger"] else ()
        spans = _SPAN.findall(line)
        named = {path for span in spans if (path := _command_of(span, prefix))} or headed
        options = {option for span in spans for option in re.findall(r"--[a-z-]+", span)}
        for path in named:
            shown.add((path, ""))
            shown |= {(path, option) for option in options & options_of(path)}
    return shown


def _command_of(span: str, prefix: Command) -> Command:
    """Return the command that a piece of code begins with, as on a page below the heading of a group; or nothing."""
    words = tuple(span.removeprefix("marginweave ").split())
    for length in (2, 1):
        for path in (words[:length], (*prefix, *words[:length])):
            if path in COMMANDS:
                return path
    return ()
