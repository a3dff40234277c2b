"""YAML without its traps, and with the line of every value.

Only `true` and `false` are booleans (not `no` or `on`), `1e-3` is a number, `010` is text rather
than an octal, dates stay text, and a key that stands twice is an error.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from marginctl.errors import RequestError
from marginctl.utils.text import short

TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))
MOST_VALUES = 100_000

KeyPath = tuple[str | int, ...]  # a place in the document: keys and indices from the top


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
    """The document as plain Python, and the line of each value by its place.

    Raises:
        RequestError: not YAML, or a key stands twice; one line for each, with file and line.
    """
    if strange := re.search("[\ud800-\udfff]", text):  # of a command line: no file that is UTF-8
        raise RequestError(f"{where}: {strange[0]!r} is no text: write it as UTF-8")
    loader = _Loader(text.removeprefix("\ufeff"))
    lines: dict[KeyPath, int] = {}
    problems: list[str] = []

    built = 0

    def build(node: yaml.Node, place: KeyPath) -> Any:
        nonlocal built
        built += 1
        if built > MOST_VALUES:
            raise RequestError(f"{where}: more than {MOST_VALUES} values: are anchors repeated?")
        lines[place] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            mapping: dict[Hashable, Any] = {}
            for key_node, value_node in node.value:
                line = key_node.start_mark.line + 1
                if not isinstance(key_node, yaml.ScalarNode):
                    problems.append(f"{where}:{line}: a key must be a plain word")
                    continue
                key = key_node.value
                if key in mapping:
                    problems.append(f"{where}:{line}: key '{short(key)}' stands twice: keep one")
                mapping[key] = build(value_node, (*place, key))
                lines[(*place, key)] = line
            return mapping
        if isinstance(node, yaml.SequenceNode):
            return [build(item, (*place, i)) for i, item in enumerate(node.value)]
        try:
            if node.tag not in TAGS:
                raise ValueError
            return loader.construct_object(node)
        except (yaml.YAMLError, ValueError, KeyError, AttributeError, IndexError, TypeError):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            line = node.start_mark.line + 1
            problems.append(
                f"{where}:{line}: '{short(node.value)}' with the tag {tag}: leave tags out"
            )
            return None

    try:
        node = loader.get_single_node()
        document = None if node is None else build(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise RequestError(f"{where}{line}: not valid YAML: {error.problem}") from None
    except RecursionError:
        reason = "nested too deeply, or an anchor that holds itself: write it out"
        raise RequestError(f"{where}: not valid YAML: {reason}") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RequestError(f"{where}: not valid YAML: {reason}") from None
    finally:
        loader.dispose()
    if problems:
        raise RequestError(*problems)
    return document, lines


def parse_scalar(text: str, where: str) -> Any:
    """One value as it would be read in a document, for `--set key=value`."""
    try:
        return parse(text, where)[0]
    except RequestError as error:  # a line number says nothing about one value
        numbered = re.escape(where) + r":\d+:"
        raise RequestError(*(re.sub(numbered, f"{where}:", li) for li in error.lines)) from None


def read(path: Path, shown_as: str | None = None) -> tuple[Any, dict[KeyPath, int]]:
    """`parse` of a file.

    Raises:
        RequestError: also where the file cannot be read or is not UTF-8.
    """
    name = shown_as or str(path)
    return parse(read_text(path, name), name)


def read_text(path: Path, name: str) -> str:
    """A UTF-8 file's text, or one clear line."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{name}: not UTF-8 text at byte {error.start}: save it as UTF-8"
        ) from None
    except OSError as error:
        raise RequestError(f"{name}: cannot be read: {error.strerror or error}") from None
