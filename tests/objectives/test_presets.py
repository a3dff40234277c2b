"""How objectives are written."""

import re

import pytest

from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.objectives.presets import PRESETS


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
        ("arcface:scale=64,margin=0.5", "arcface"),
        ("arcface:scale=20,margin=0.1", "arcface:margin=0.1,scale=20"),
        ("arcface:gradient=straight-through , scale = 64", "arcface:gradient=straight-through"),
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
        ("arcgrad:scale=abc", "scale = 'abc': expected a finite number above 0, or a schedule"),
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


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("similarity=cosine", "similarity=cosine"),
        (" similarity = cosine ; scale=fixed(value=1) ", "similarity=cosine"),
        (
            "margin=additive-angle(margin=0.2);similarity=cosine;scale=fixed(value=3e+1)",
            "similarity=cosine;scale=fixed(value=30);margin=additive-angle(margin=0.2)",
        ),
        (
            "similarity=linear(bias=true);regularizers=label-smoothing+center(alpha=0.1)",
            "similarity=linear(bias=true);regularizers=center(alpha=0.1)+label-smoothing",
        ),
        ("similarity=angle;loss=dense-hinge", "similarity=angle;loss=dense-hinge"),
    ],
)
def test_canonical_form_of_compositions(written, canonical):
    assert str(parse(written)) == canonical
    assert str(parse(canonical)) == canonical


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("scale=adacos", "'similarity' is missing"),
        (
            "similarity=cosin",
            "unknown similarity 'cosin': expected one of linear, cosine, angle, gaussian.",
        ),
        ("similarity=angle;scale=adacos", "use similarity 'cosine'"),
        ("similarity=cosine;scale=fixed(value=-1)", "value = '-1': expected a finite number at"),
        ("similarity=cosine;scale=fixed(kappa=1)", "unknown option 'kappa'"),
        ("similarity=cosine;scal=fixed", "Did you mean 'scale'?"),
        ("similarity=cosine;similarity=angle", "part 'similarity' is given twice"),
        ("similarity=cosine+angle", "expected one similarity, not several"),
        ("similarity=cosine;regularizers=center+center", "duplicate regularizer: center, center"),
        ("similarity=cosine(", "unbalanced parentheses"),
        ("similarity=", "is not part=KIND"),
        ("similarity=cosine;scale=fixed(value=1", "unbalanced parentheses"),
    ],
)
def test_compositions_that_are_refused(parts, message):
    with pytest.raises(RequestError) as caught:
        parse(parts)
    assert message in str(caught.value)


def test_every_kind_of_part_makes_an_objective_with_its_defaults():
    from marginctl.objectives import compose, part
    from marginctl.objectives.parts import PARTS

    for role, registry in PARTS.items():
        for kind, entry in registry.items():
            parts = {"similarity": part(entry.similarity or "cosine"), role: part(kind)}
            if role == "regularizers":
                parts[role] = (part(kind),)
            compose(3, 4, **parts)


def test_every_preset_is_described():
    for preset in PRESETS.values():
        assert preset.title
        assert preset.formula
        assert preset.source


@pytest.mark.parametrize("name", PRESETS.builtin)
def test_every_preset_cites_authors_and_a_year(name):
    authors = r"[A-Z]\w+( et al\.|(, [A-Z]\w+)* and [A-Z]\w+)?"
    assert re.match(rf"{authors} (19|20)\d\d\b", PRESETS[name].source)
