"""A strict YAML reader that knows the line of every value.

Only `true` and `false` are booleans (not `no` or `on`), `1e-3` is a number, `010` is text and not
octal, dates stay text, and duplicate keys are errors.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from marginctl.errors import RequestError
from marginctl.utils.text import shorten

TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))
MAX_VALUES = 100_000

KeyPath = tuple[str | int, ...]  # keys and indices from the top of the document


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+|[0-9]+\.[0-9]*|\.[0-9]+|\.inf)|\.nan",
        "-+0123456789.",
    ),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
    )


def _number(loader: Any, node: yaml.ScalarNode) -> float:
    return float(node.value.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def parse(text: str, where: str) -> tuple[Any, dict[KeyPath, int]]:
    """Return the document as plain Python, and the line of each value by its key path.

    Raises:
        RequestError: not YAML, duplicate keys, or tags; one line for each, with file and line.
    """
    if surrogate := re.search("[\ud800-\udfff]", text):  # a command line may have them
        raise RequestError(f"{where}: {surrogate[0]!r} is not text: write it as UTF-8")
    loader = _Loader(text.removeprefix("\ufeff"))
    builder = _Builder(loader, where)
    try:
        node = loader.get_single_node()
        document = None if node is None else builder.build(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise RequestError(f"{where}{line}: not valid YAML: {error.problem}") from None
    except RecursionError:
        reason = "nested too deeply, or an anchor that contains itself: write it out"
        raise RequestError(f"{where}: not valid YAML: {reason}") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RequestError(f"{where}: not valid YAML: {reason}") from None
    finally:
        loader.dispose()
    if builder.problems:
        raise RequestError(*builder.problems)
    return document, builder.lines


class _Builder:
    """Builds plain Python from YAML nodes; collects the lines of values, and problems."""

    def __init__(self, loader: Any, where: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[str] = []
        self._loader, self._where, self._count = loader, where, 0

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise RequestError(
                f"{self._where}: more than {MAX_VALUES} values: are anchors repeated?"
            )
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        try:
            if node.tag not in TAGS:
                raise ValueError
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, KeyError, AttributeError, IndexError, TypeError):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            value = shorten(node.value)
            self._problem(node, f"'{value}' with the tag {tag}: leave tags out")
            return None

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, "a key must be a plain word")
                continue
            key = key_node.value
            if key in mapping:
                self._problem(key_node, f"duplicate key '{shorten(key)}': keep one")
            mapping[key] = self.build(value_node, (*path, key))
            self.lines[(*path, key)] = key_node.start_mark.line + 1
        return mapping

    def _problem(self, node: yaml.Node, problem: str) -> None:
        self.problems.append(f"{self._where}:{node.start_mark.line + 1}: {problem}")


def parse_scalar(text: str, where: str) -> Any:
    """Return one value as a document would have it, for `--set key=value`."""
    try:
        return parse(text, where)[0]
    except RequestError as error:  # a line number is of no use for one value
        numbered = re.escape(where) + r":\d+:"
        raise RequestError(*(re.sub(numbered, f"{where}:", li) for li in error.lines)) from None


def read(path: Path, shown_as: str | None = None) -> tuple[Any, dict[KeyPath, int]]:
    name = shown_as or str(path)
    return parse(read_text(path, name), name)


def read_text(path: Path, name: str) -> str:
    """Return the text of a UTF-8 file."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{name}: not UTF-8 text at byte {error.start}: save it as UTF-8"
        ) from None
    except OSError as error:
        raise RequestError(f"{name}: cannot be read: {error.strerror or error}") from None
