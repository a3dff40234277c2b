"""The kinds of figures that `report --figures` draws."""

from dataclasses import dataclass
from typing import Literal

from marginctl.utils.registry import Registry


@dataclass(frozen=True)
class FigureEntry:
    # import path of a function that takes what is drawn and `Omissions`, and returns a matplotlib
    # figure, or None where it can draw nothing
    path: str
    caption: str  # what it shows, for a page
    # what is drawn: a `SeedTable`, a list of all of them, or the `TableVerdicts` of a paper's table
    content: Literal["table", "all tables", "published table"] = "table"


_HERE = "marginctl.reports.figures"
_CURVES = f"{_HERE}.learning_curves"

FIGURES = Registry(
    "figure",
    FigureEntry,
    {
        "comparison": FigureEntry(
            f"{_HERE}.dot_plot:comparison", "Mean of each method with its 95 % interval"
        ),
        "published": FigureEntry(
            f"{_HERE}.dot_plot:published_values",
            "Our numbers and the published ones",
            content="published table",
        ),
        "curves": FigureEntry(f"{_CURVES}:learning_curves", "Training loss and accuracy by epoch"),
        "rho": FigureEntry(
            f"{_CURVES}:mean_bias", "Mean bias rho by epoch (Large Margin in Softmax, eq. 7)"
        ),
        "angles": FigureEntry(
            f"{_HERE}.angle_histograms:angle_histograms",
            "Angles of test features to the target's class weight",
        ),
        "scale": FigureEntry(f"{_HERE}.optimal_scale:scale_by_epoch", "Scale by epoch"),
        "example": FigureEntry(
            f"{_HERE}.example_image:example_image",
            "Logits and softmax of one test image (Temperature, Fig. 5)",
        ),
        "grid-sweep": FigureEntry(
            f"{_HERE}.sweeps:grid_sweep", "Test accuracy by setting of the grid"
        ),
        "option-sweep": FigureEntry(
            f"{_HERE}.sweeps:option_sweep",
            "Test accuracy and calibration error by an option of an objective",
        ),
        "reliability": FigureEntry(
            f"{_HERE}.reliability_diagram:reliability_diagrams", "Reliability diagrams"
        ),
        "sample-difficulty": FigureEntry(
            f"{_CURVES}:sample_difficulty",
            "Easy and hard training images by epoch: confidence and fraction of the gradient",
        ),
        "input-gradient": FigureEntry(
            f"{_CURVES}:input_gradient_norm", "Input-gradient norm of the loss by epoch"
        ),
        "scale-by-classes": FigureEntry(
            f"{_HERE}.optimal_scale:scale_by_classes",
            "kappa* by the number of classes (Temperature, Fig. 6)",
            content="all tables",
        ),
    },
)
