"""Plug-ins: loading from packages and files, and the registries that take their entries."""

from importlib import metadata
from importlib.metadata import EntryPoint

import pytest

from marginctl.errors import RequestError
from marginctl.objectives import ObjectiveSpec, Option, PartEntry, Preset, part
from marginctl.objectives.parts import LOSSES
from marginctl.objectives.presets import PRESETS
from marginctl.utils import plugins
from marginctl.utils.plugins import Plugin
from marginctl.utils.registry import Registry, import_object


def linear():
    return ObjectiveSpec(part("linear"))


def losses(entry):
    return Plugin({"loss": {"cubic": entry}})


def preset(build, name="mine"):
    return Plugin({"preset": {name: Preset("", "", "", build)}})


NOT_A_PLUGIN = 3
TAKEN = preset(linear, "soft")
UPPER_CASE = preset(linear, "Soft Max")
UNKNOWN_KIND = Plugin({"logit": {"cubic": PartEntry("a:b")}})
MAPPING = losses({})
BARE_OPTION = losses(PartEntry("a:b", {"m": 1.0}))
NO_DEFAULT = losses(PartEntry("a:b", {"m": Option(None, "m")}))
RAISES = preset(lambda: 1 / 0)
BUILDS_A_NUMBER = preset(lambda: 5)
UNKNOWN_PART = preset(lambda: ObjectiveSpec(part("linear"), loss=part("nonesuch")))


def __getattr__(name):
    if name == "EXITS":
        raise SystemExit("bye")
    raise AttributeError(name)


@pytest.fixture
def install(monkeypatch):
    """Return a function that registers `module:name` as the entry point `bad`."""

    def install(value):
        point = EntryPoint("bad", value, plugins.GROUP)
        monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
        plugins._load.cache_clear()

    yield install
    monkeypatch.undo()
    plugins._load.cache_clear()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:X", "cannot be loaded: ModuleNotFoundError: No module named"),
        (f"{__name__}:NO_SUCH", "cannot be loaded: AttributeError"),
        (f"{__name__}:NOT_A_PLUGIN", "expected a Plugin, got int"),
        (f"{__name__}:EXITS", "cannot be loaded: SystemExit"),
        (f"{__name__}:MAPPING", "loss 'cubic': expected PartEntry, got {}"),
        (f"{__name__}:BARE_OPTION", "loss 'cubic': option 'm': expected Option, got 1.0"),
        (f"{__name__}:NO_DEFAULT", "loss 'cubic': option 'm': expected a default"),
        (f"{__name__}:RAISES", "preset 'mine' cannot be loaded: ZeroDivisionError"),
        (f"{__name__}:BUILDS_A_NUMBER", "preset 'mine': build: expected an ObjectiveSpec, got 5"),
        (f"{__name__}:UNKNOWN_PART", "preset 'mine': unknown loss 'nonesuch': expected one of"),
        (f"{__name__}:TAKEN", "preset 'soft': the name is taken"),
        (f"{__name__}:UPPER_CASE", "'Soft Max': expected a name of small letters"),
        (f"{__name__}:UNKNOWN_KIND", "kind 'logit': expected one of similarity"),
    ],
)
def test_error_names_plugin_and_reason(install, value, message):
    install(value)
    with pytest.raises(RequestError) as caught:
        [list(registry) for registry in (LOSSES, PRESETS)]
    assert "plug-in 'bad'" in str(caught.value)
    assert message in str(caught.value)
    assert len(caught.value.lines) == 1


GOOD = losses(PartEntry("a:b"))


def test_registry_lists_builtins_then_plugins(install):
    install(f"{__name__}:GOOD")
    assert list(LOSSES)[-2:] == ["max-softplus", "cubic"]
    assert LOSSES.origin("cubic") == f"{__name__}:GOOD"
    assert LOSSES.origin("hinge") is None


def test_find_suggests_a_name():
    registry = Registry("metric", int, {"accuracy": 1, "ece": 2}, label="measure", also="a path")
    assert registry.find("ece") == 2
    with pytest.raises(RequestError) as caught:
        registry.find("acuracy")
    assert str(caught.value) == (
        "unknown measure 'acuracy': expected one of accuracy, ece, or a path. "
        "Did you mean 'accuracy'?"
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:X", "loss 'odd': cannot import no_such_module:X: ModuleNotFoundError"),
        ("math:no_such", "loss 'odd': cannot import math:no_such: AttributeError"),
        ("fractions:Fraction", "loss 'odd': fractions:Fraction: expected a subclass of Plugin"),
    ],
)
def test_import_path_errors(path, message):
    with pytest.raises(RequestError, match=message):
        import_object(path, "loss 'odd'", Plugin)
