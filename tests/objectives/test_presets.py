"""How objectives are written."""

import pytest

from marginctl.errors import RequestError
from marginctl.objectives.presets import PRESETS, parse


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("soft", "soft"),
        (" soft ", "soft"),
        ("soft:bias=TRUE", "soft:bias=true"),
        ("soft:bias=false", "soft"),
        ("arcgrad:scale=10", "arcgrad"),
        ("arcgrad:scale=5.0", "arcgrad:scale=5"),
        ("arcgrad:scale=1e1", "arcgrad"),
        ("arcgrad:scale=10.0000000000001", "arcgrad"),
        ("arcface:scale=64,margin=0.5", "arcface:margin=0.5,scale=64"),
        ("arcface:gradient=straight-through , scale = 20", "arcface:gradient=straight-through"),
        ("center:strength=0", "center:strength=0"),
    ],
)
def test_canonical_form(written, canonical):
    assert str(parse(written)) == canonical
    assert str(parse(canonical)) == canonical


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "unknown objective ''"),
        ("arcgrd", "Did you mean 'arcgrad'?"),
        ("arcgrad:", "'' is not option=value"),
        ("arcgrad:scale", "'scale' is not option=value"),
        ("arcgrad:scale=", "'scale=' is not option=value"),
        ("arcgrad:scale=5,scale=6", "option 'scale' is given twice"),
        ("arcgrad:scale=abc", "scale = 'abc': expected a finite number above 0"),
        ("arcgrad:scale=0", "scale = '0': expected a finite number above 0"),
        ("arcgrad:scale=inf", "scale = 'inf'"),
        ("arcgrad:scale=1e999", "scale = '1e999'"),
        ("center:alpha=1.5", "alpha = '1.5': expected a finite number at least 0 and at most 1"),
        ("arcface:gradient=none", "expected one of exact, straight-through"),
        ("soft:bias=1", "bias = '1': expected true or false"),
        ("adacos:scale=3", "unknown option 'scale': its options are none"),
    ],
)
def test_mistakes(written, message):
    with pytest.raises(RequestError) as caught:
        parse(written)
    assert message in str(caught.value)
    assert len(caught.value.lines) == 1


def test_every_preset_says_what_it_is():
    for name, preset in PRESETS.items():
        assert name == preset.name
        assert preset.title
        assert preset.formula
        assert preset.source
        assert str(parse(name)) == name
