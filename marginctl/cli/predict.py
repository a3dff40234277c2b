"""marginctl predict."""

from pathlib import Path
from typing import Annotated

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, option, print_json


def command(
    model: Annotated[
        Path, argument("FILE", "A model that uci-cv, train or transfer --save-model has written.")
    ],
    new: Annotated[
        Path,
        argument("NEW", "A table with the columns of the training table, or a folder of images."),
    ],
    output: Annotated[
        Path | None, option("FILE", "Write the predictions as CSV (default: print them).")
    ] = None,
    no_header: common_options.NoHeader = False,
    json: common_options.Json = False,
    quiet: common_options.Quiet = False,
) -> None:
    """Predict classes and probabilities of new rows or images by a saved model.

    Columns are matched by name. A missing value is imputed as in the training, and so is a category
    that the training table does not have.
    """
    from marginctl.console.progress import log_lines, phase
    from marginctl.experiments.predict import predict_file
    from marginctl.runs.atomic_io import check_outputs, write_output

    check_outputs({"--output": output}, [model, new])
    with phase("predicting", quiet=quiet):
        predictions = predict_file(model, new, header=not no_header)
    if output is not None:
        write_output(output, predictions.csv())
    if json:
        print_json(predictions.document())
    elif output is None:
        print(predictions.csv(), end="")
    if not quiet:
        log_lines(predictions.remarks)
