"""MarginClassifier: the networks of `uci-cv` as a scikit-learn classifier."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from marginctl.crossval.search_space import column_candidates
from marginctl.crossval.stack import StackTuning
from marginctl.crossval.tabular_model import TabularModel, fit_model
from marginctl.data.tabular.dataset import Column, TabularDataset
from marginctl.recipe.load import find_recipe, load_recipe
from marginctl.recipe.uci_cv import Protocol, UciCvRecipe
from marginctl.runs.base_record import parse_objective
from marginctl.runs.model_file import load_model_file


class MarginClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A small network with a margin loss, tuned by inner folds, for tables.

    Protocol and candidates are those of the recipe `own-data`. Columns of a DataFrame that are not
    numeric are categories; missing values and unknown categories are imputed.

    Args:
        objective: a preset with options, or parts, as `--objective`.
        tune: whether learning rate and options are chosen by inner folds of the training rows.
        hidden: widths of the hidden layers; None for those of the recipe.
        epochs: None for those of the recipe.
        random_state: of inner folds, weights and batches; an int gives the same network each time.

    Attributes:
        classes_: (C,) the classes, sorted.
        model_: the `TabularModel`.
        n_features_in_: number of columns.
        feature_names_in_: names of the columns of a DataFrame.
    """

    def __init__(
        self,
        objective: str = "soft",
        *,
        tune: bool = True,
        hidden: tuple[int, ...] | None = None,
        epochs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.objective, self.tune, self.hidden = objective, tune, hidden
        self.epochs, self.random_state = epochs, random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit the network.

        Args:
            X: (n, d) numbers, or a DataFrame; NaN where missing.
            y: (n,) labels.
            groups: (n,) the person or object of each row: inner folds keep its rows together.

        Raises:
            ValueError: the data cannot be used.
            RequestError: the objective or a parameter is wrong.
        """
        x, y, columns = self._training_data(X, y)
        labels, numbers = np.unique(y, return_inverse=True)
        if len(labels) < 2:
            raise ValueError(f"y has one class, {labels[0]!r}: expected at least 2 classes")
        group_numbers = None if groups is None else _group_numbers(groups, len(numbers))
        recipe = load_recipe(find_recipe("own-data"), UciCvRecipe)
        hidden = None if self.hidden is None else list(self.hidden)
        changed = {"hidden": hidden, "epochs": self.epochs}
        given = {key: value for key, value in changed.items() if value is not None}
        protocol = Protocol.model_validate({**recipe.protocol.model_dump(), **given})
        objective, tuning = parse_objective(self.objective), None
        if self.tune:
            assert recipe.tune is not None
            candidates = column_candidates(recipe.tune, protocol, objective)
            units = len(numbers) if group_numbers is None else int(group_numbers.max()) + 1
            if units < 2:
                raise ValueError("groups has one group: expected at least 2, or tune=False")
            tuning = StackTuning(candidates, min(recipe.tune.inner_folds, units))
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        classes, indices = tuple(map(str, labels)), numbers.astype(np.int64)
        dataset = TabularDataset("the table", x, indices, classes, columns, groups=group_numbers)
        self.classes_ = labels
        self.model_ = fit_model(dataset, objective, protocol, int(seed), tuning)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (n, C) probabilities in the order of `classes_`."""
        check_is_fitted(self, "model_")
        return self.model_.predict_proba(self._new_data(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return (n,) the most probable classes."""
        check_is_fitted(self, "model_")
        predicted: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(1)]
        return predicted

    def save(self, path: str | Path) -> None:
        """Write the fitted network to a file that `marginctl predict` and `load` read."""
        check_is_fitted(self, "model_")
        kind = {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(self.classes_.dtype.kind)
        record = self.model_.record.model_copy(update={"label_type": kind or "text"})
        TabularModel(record, self.model_.tensors).save(Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "MarginClassifier":
        """Return the classifier of a saved model of a table.

        Raises:
            RequestError: the file cannot be read, is corrupt, or holds no model of a table.
        """
        model = TabularModel.from_file(load_model_file(Path(path)))
        record = model.record
        classifier = cls(record.objective, tune=record.inner_accuracy is not None)
        classifier.model_ = model
        classes = np.array(record.classes)
        if record.label_type == "bool":
            classes = classes == "True"
        elif record.label_type != "text":
            classes = classes.astype(record.label_type)
        classifier.classes_ = classes
        classifier.n_features_in_ = len(record.columns)
        names = [column.name for column in record.columns]
        if names != _numbered(len(names)):
            classifier.feature_names_in_ = np.array(names, dtype=object)
        return classifier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _training_data(
        self, X: Any, y: Any
    ) -> tuple[NDArray[np.float64], NDArray[Any], tuple[Column, ...]]:
        if not isinstance(X, pd.DataFrame) or all(_is_numeric(X[name]) for name in X):
            x, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
            _check_finite(x)
            names = getattr(self, "feature_names_in_", _numbered(x.shape[1]))
            columns = tuple(Column(str(name)) for name in names)
        else:
            validate_data(self, X, skip_check_array=True)
            columns = tuple(Column(str(name), _categories(X[name])) for name in X)
            x, y = _values(X, columns), column_or_1d(y)
            if len(x) != len(y):
                raise ValueError(f"X has {len(x)} rows, and y {len(y)}: expected equal numbers")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if y.dtype.kind == "O":
            if pd.isna(y).any():
                raise ValueError("y has missing labels: expected a class for each row")
            y = y.astype(str)
        return x, y, columns

    def _new_data(self, X: Any) -> NDArray[np.float64]:
        columns = self.model_.columns
        if any(column.categories for column in columns):
            validate_data(self, X, reset=False, skip_check_array=True)
            if not isinstance(X, pd.DataFrame):
                raise ValueError("X has no names: expected a DataFrame, as in the training")
            return _values(X, columns)
        x: NDArray[np.float64] = validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
        )
        _check_finite(x)
        return x


def _group_numbers(groups: Any, rows: int) -> NDArray[np.int64]:
    """Return (rows,) the number of each row's group, from 0."""
    names = column_or_1d(groups)
    if len(names) != rows:
        raise ValueError(f"groups has {len(names)} entries, and X {rows} rows: expected one a row")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _numbered(count: int) -> list[str]:
    """Return the names of columns without names, as a file without a header has them."""
    return [str(i) for i in range(1, count + 1)]


def _is_numeric(column: "pd.Series[Any]") -> bool:
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(column.dtype) and not kinds.is_bool_dtype(column.dtype))


def _categories(column: "pd.Series[Any]") -> tuple[str, ...]:
    if _is_numeric(column):
        return ()
    present = sorted(set(column.dropna().astype(str)))
    if not present:
        raise ValueError(f"column {column.name!r} has no value: leave it out")
    return tuple(present)


def _values(frame: pd.DataFrame, columns: tuple[Column, ...]) -> NDArray[np.float64]:
    """Return (n, d) numbers and indices of categories, NaN where missing or unknown."""
    values = []
    for column in columns:
        series = frame[column.name]
        if column.categories:
            index = {category: float(i) for i, category in enumerate(column.categories)}
            texts = series.astype(str).where(series.notna(), None)
            values.append(np.array([index.get(text, np.nan) for text in texts]))
        else:
            values.append(series.to_numpy(np.float64, na_value=np.nan))
    x = np.stack(values, axis=1)
    _check_finite(x)
    return x


def _check_finite(x: NDArray[np.float64]) -> None:
    if np.isinf(x).any():
        raise ValueError("X contains infinity: expected finite numbers, or NaN where missing")
