"""Tables of a protocol search: the leaderboard while it runs, and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.text import Text

from marginctl.console.progress import CostProgress
from marginctl.crossval.search_space import Setting, column_alternatives
from marginctl.experiments.records import CVResult
from marginctl.experiments.uci_cv_trial import CVTrial
from marginctl.papers import PublishedMean
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.reports.tables.table import Report, Table, flat_record, table_of_texts
from marginctl.search.distance import Distance, distance, row_medians
from marginctl.search.successive_halving import Match, RoundPart, SearchResult, evaluate, match
from marginctl.utils.text import count_noun

LEADERS = 10
UNITS = {"points": "points", "effects": "points (effects)", "stds": "points (stds)"}


class Leaderboard(CostProgress):
    """Shows the nearest settings so far, and the estimated remaining time.

    A setting enters the board when all its trials are done.

    Args:
        costs: of the planned rounds.
    """

    def __init__(
        self,
        recipe: UciCvRecipe,
        published: Mapping[tuple[str, str], PublishedMean],
        costs: Sequence[float],
        *,
        quiet: bool,
    ) -> None:
        super().__init__("trials", self._nearest, quiet=quiet)
        self._costs = costs
        self._published, self._quiet = published, quiet
        assert recipe.search is not None
        self._criterion = recipe.search.nearest_by
        self._alternatives = column_alternatives(recipe)
        self._title = ""
        self._settings: Mapping[CVTrial, Setting] = {}
        self._by_id: dict[str, CVTrial] = {}
        self._by_setting: dict[int, list[CVTrial]] = {}
        self._records: dict[CVTrial, CVResult] = {}
        self._matches: list[Match] = []
        self._settings_done = 0

    def begin(self, part: RoundPart, trials: Mapping[CVTrial, Setting], cost: float) -> None:
        """Begin a part of a round, as `SearchProgress.begin`."""
        self._settings, self._records = trials, {}
        self._by_id = {trial.id: trial for trial in trials}
        self._by_setting = {}
        for trial, setting in trials.items():
            self._by_setting.setdefault(setting.number, []).append(trial)
        repeats = next(iter(trials.values())).protocol.repeats
        number = f"round {part.round}"
        number += f", part {part.part} of {part.parts}" if part.parts > 1 else ""
        settings = count_noun(len(self._by_setting), "setting")
        self._title = f"{number}: {settings}, {count_noun(repeats, 'repeat')}"
        if part.part == 1:
            self._matches = []
        self._settings_done = 0
        rest = self._costs[part.round - 1] * (part.parts - part.part) / part.parts
        self.begin_trials(cost + rest + sum(self._costs[part.round :]), len(trials))
        if not self._quiet:
            self.message(f"{self._title}, {count_noun(len(trials), 'trial')}")

    def done(self, record: CVResult, *, reused: bool) -> None:
        trial = self._by_id[record.trial]
        self._records[trial] = record
        self.count_trial(reused=reused)
        setting = self._settings[trial]
        trials = {t: self._settings[t] for t in self._by_setting[setting.number]}
        if not all(t in self._records for t in trials):
            return
        datasets = list(dict.fromkeys(t.dataset.name for t in trials))
        measured = evaluate(trials, self._records)[setting.number]
        nearest = match(setting, measured, self._alternatives, self._published, datasets)
        self._settings_done += 1
        ranked = sorted([*self._matches, nearest], key=lambda m: m.sort_key(self._criterion))
        self._matches = ranked[:LEADERS]
        if not reused:
            self.log(
                f"{self._settings_done}/{len(self._by_setting)} settings, {self.time_text}; "
                f"nearest: {self._match_text(self._matches[0])}"
            )

    def _nearest(self) -> Text:
        return Text("\n".join([self._title, *map(self._match_text, self._matches)]))

    def _match_text(self, match: Match) -> str:
        number, unit = match.sort_key(self._criterion)[0], UNITS[self._criterion]
        return f"{number:.2f} {unit} with {match.setting}"


def _held_out_mean(result: SearchResult) -> dict[str, float] | None:
    """Return the mean distances over all held-out cells."""
    if not result.held_out:
        return None
    cells = sum(m.distance.cells for _, m in result.held_out)
    return {
        key: sum(getattr(m.distance, key) * m.distance.cells for _, m in result.held_out) / cells
        for key in ("mean_absolute", "effects_mean_absolute", "std_mean_absolute")
    }


REFERENCE = "each row at its own median"  # a table that ignores the methods
HEADINGS = ("points", "rms", "z", "effects", "stds", "rank corr.", "same best", "setting")


def search_report(
    recipe: UciCvRecipe,
    result: SearchResult,
    published: Mapping[tuple[str, str], PublishedMean],
    datasets: Sequence[str],
    skipped: Sequence[tuple[str, str]],
) -> Report:
    """Return the settings of the last round, the held-out scores and the reference distances."""
    rows = {key: cell for key, cell in published.items() if key[0] in datasets}
    reference = distance(row_medians(rows), rows)
    document = {
        "schema": 1,
        "command": "uci-cv --search",
        "protocol": recipe.protocol.model_dump(),
        "search": recipe.search.model_dump() if recipe.search else None,
        "rounds": result.rounds,
        "networks": result.networks,
        "leaderboard": [m.as_json() for m in result.matches],
        # the nearest setting's differences may suggest the next space
        "residuals": [
            {
                "dataset": place[0],
                "objective": place[1],
                "mean": round(cell.mean, 3),
                "std": round(cell.std, 3),
                "n": cell.n,
                "difference": round(cell.mean - published[place].mean, 3),
            }
            for place, cell in sorted(result.matches[0].cells.items())
            if place in published
        ],
        "held_out": [{"datasets": names, **m.as_json()} for names, m in result.held_out],
        "held_out_mean": _held_out_mean(result),
        "compared_with": {REFERENCE: asdict(reference)},
        "skipped": [{"dataset": d, "reason": r} for d, r in skipped],
    }
    records = [flat_record(m.as_json()) for m in result.matches]
    return Report([_table(result, reference)], records, document, "marginctl uci-cv --search")


def _table(result: SearchResult, reference: Distance) -> Table:
    rows = [(*_texts(m.distance), str(m.setting)) for m in result.matches]
    texts = _texts(reference)
    texts[HEADINGS.index("stds")] = ""  # they are the paper's
    rows.append((*texts, f"({REFERENCE})"))
    best = result.matches[0]
    changed = {c: n for c, n in best.objectives.items() if c != n}
    notes = []
    if changed:
        notes.append("nearest: " + ", ".join(f"{c} as {n}" for c, n in changed.items()))
    scores = "{mean_absolute:.2f} points, effects {effects_mean_absolute:.2f}"
    for names, m in result.held_out:
        score = scores.format_map(vars(m.distance))
        notes.append(
            f"held out {', '.join(names)}: {score}; selected on the other data sets: {m.setting}"
        )
    if mean := _held_out_mean(result):
        notes.append(f"held out, mean: {scores.format_map(mean)}")
    notes.append(
        f"{count_noun(result.networks, 'network')}; two runs of one protocol differ by about "
        f"{best.distance.noise:.2f} points"
    )
    caption = (
        "points: mean absolute difference of the cells; effects: the same after each row's median "
        "is subtracted"
    )
    return table_of_texts(
        caption, HEADINGS, rows, key="search", notes=notes, text_columns=len(HEADINGS) - 1
    )


def _texts(d: Distance) -> list[str]:
    """Return a distance by `HEADINGS`."""
    numbers = [d.mean_absolute, d.rms, d.mean_absolute_z, d.effects_mean_absolute]
    texts = [f"{number:.2f}" for number in (*numbers, d.std_mean_absolute)]
    correlation = "" if d.rank_correlation is None else f"{d.rank_correlation:.2f}"
    return [*texts, correlation, f"{d.best_agree:.1f}"]
