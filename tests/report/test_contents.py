"""The numbers of a report are those of the fit."""

from __future__ import annotations

import json
import math
import re
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, precision_recall_fscore_support

import surefoot as sf
from refusals import refuses
from report.cases import Case, make_case
from surefoot.bounds.result import MEASURED, ErrorBound
from surefoot.pool import report_certified as certified
from surefoot.pool.model import ModelWithRows
from surefoot.pool.next_rows import choose, spread_out
from surefoot.pool.notes import Code, class_results, verdict_on
from surefoot.pool.report_contents import Guarantee, Weight
from surefoot.report import Report, build_report, render_report

NAMES = ["two", "tied", "four"]


def text_of(page: str) -> str:
    """A page with its lines joined."""
    return page.replace("\n", " ")


@pytest.fixture(params=NAMES)
def pair(request: pytest.FixtureRequest, reports: dict[str, Report]) -> tuple[Case, Report]:
    return request.getfixturevalue(request.param), reports[request.param]


def test_guarantee_and_bounds_are_those_of_the_certificate(pair: tuple[Case, Report]) -> None:
    case, report = pair
    certificate, guarantee, bounds = case.clf.certificate_, report.guarantee, report.bounds
    assert (guarantee.risk, guarantee.likelihood) == (certificate.risk, certificate.likelihood)
    assert (guarantee.radius, guarantee.minimal_radius) == (certificate.radius, certificate.minimal_radius)
    assert (bounds.lower, bounds.risk) == (certificate.lower, certificate.risk)
    assert np.allclose([(s.low, s.high) for s in guarantee.shares], certificate.label_intervals, atol=0)
    assert [s.n_labeled for s in guarantee.shares] == np.unique(case.y, return_counts=True)[1].tolist()
    assert guarantee.guessing == math.log(len(case.clf.classes_))
    assert bounds.training == pytest.approx(log_loss(case.y, case.clf.predict_proba(case.X)), rel=1e-9)


def test_kinds_of_radius_and_prior(reports: dict[str, Report]) -> None:
    kinds = {name: (r.guarantee.radius_kind, r.guarantee.prior_kind, r.guarantee.tied) for name, r in reports.items()}
    assert kinds == {
        "two": ("auto", "clopper-pearson", False),
        "tied": ("calibrated", "clopper-pearson", True),
        "four": ("number", "exact", False),
    }
    assert (reports["tied"].guarantee.level, reports["tied"].guarantee.n_splits) == (0.9, 50)
    assert reports["two"].guarantee.confidence_threshold == 0.7


def zero_one(case: Case) -> sf.Certificate:
    """The error certified over all rows, by the function that users call."""
    radius = case.clf.radius if case.clf.radius == "calibrated" else case.clf.radius_
    return sf.certify(
        case.clf, case.X, case.y, X_unlabeled=case.U, radius=radius, label_prior=case.clf.label_prior, loss="zero_one"
    )


def test_error_bound_is_that_of_certify(pair: tuple[Case, Report]) -> None:
    case, report = pair
    assert report.guarantee.error == pytest.approx(zero_one(case).risk, abs=2e-3)
    fitted = ModelWithRows.check(case.clf, case.X, case.y, case.U)
    assert certified.worst_error_bound(fitted, certified.SampledRows.from_fit(fitted, 0)) == report.guarantee.error


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_error_bound_from_a_sample_holds_for_all_rows(
    name: str, seed: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = request.getfixturevalue(name)
    monkeypatch.setattr(certified, "_FEWEST", 60)
    fitted = ModelWithRows.check(case.clf, case.X, case.y, case.U)
    sampled = certified.SampledRows.from_fit(fitted, seed, 1)
    assert sampled.sample is not None
    bound, exact = certified.worst_error_bound(fitted, sampled), zero_one(case)
    # never below what some distribution of the set attains, over all rows; and not far above
    assert exact.lower <= bound <= exact.risk + 0.08


def test_relabeled_rows_are_those_the_adversary_moves(pair: tuple[Case, Report]) -> None:
    case, report = pair
    clf, adversary = case.clf, report.adversary
    rows, n = np.vstack([case.X, case.U]), len(case.X)
    reference = np.searchsorted(clf.classes_, np.concatenate([case.y, clf.predict(case.U)]))
    q, m = clf.worst_case_.label_proba, clf.worst_case_.row_weights
    moved = 1.0 - q[np.arange(len(rows)), reference]
    assert adversary.n_labeled == (moved[:n] > 0.5).sum()
    assert adversary.n_unlabeled == (moved[n:] > 0.5).sum()
    assert adversary.moved_unlabeled == pytest.approx(moved[n:].mean(), abs=1e-12)
    losses = -np.log(clf.predict_proba(rows))
    assert adversary.loss == pytest.approx((m[:, None] * q * losses).sum(), rel=1e-9)
    assert report.bounds.lower - 1e-9 <= adversary.loss <= report.bounds.risk + 1e-9
    shares = [row.loss_share for row in adversary.rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= adversary.loss_moved / adversary.loss + 1e-12
    for row in adversary.rows:
        assert row.adversary_share == pytest.approx(moved[row.position], abs=1e-12)
        assert row.adversary_share > 0
        assert row.label != row.adversary_label
        assert row.labeled == (row.position < n)


def test_shares_add_up(pair: tuple[Case, Report]) -> None:
    case, report = pair
    adversary, confidence = report.adversary, report.confidence
    flow = np.array(adversary.flow)
    assert flow.sum() == pytest.approx(1)
    assert np.allclose(flow.sum(axis=1), [one.share for one in confidence.classes])
    assert 1 - np.trace(flow) == pytest.approx(adversary.moved_unlabeled)
    assert sum(adversary.label_shares) == pytest.approx(1)
    assert sum(one.n_rows for one in confidence.bins) == sum(one.n_rows for one in confidence.classes) == len(case.U)
    assert [one.n_rows for one in adversary.bins] == [one.n_rows for one in confidence.bins]
    assert sum(one.n_rows * one.relabeled for one in adversary.bins) == pytest.approx(
        adversary.moved_unlabeled * len(case.U)
    )
    top = case.clf.predict_proba(case.U).max(axis=1)
    assert confidence.median == np.median(top)
    for one in confidence.bins:
        assert one.n_rows == ((top >= one.low - 1e-12) & (top < one.high - 1e-12)).sum()


def test_radius_curve_passes_through_the_certificate(pair: tuple[Case, Report]) -> None:
    _, report = pair
    curve = report.radius
    at = curve.excess.index(curve.chosen)
    assert curve.this_model[at] == pytest.approx(report.bounds.risk, abs=5e-3)
    assert curve.best_model[at] == pytest.approx(report.bounds.risk, abs=3e-3)
    for values in (curve.this_model, curve.best_model):
        assert (np.diff(values) >= -5e-3).all()
    assert (np.array(curve.this_model) >= np.array(curve.best_model) - 3e-3).all()
    assert curve.n_rows == curve.n_all == report.data.n_labeled + report.data.n_unlabeled


def test_radius_curve_is_that_of_radius_path(four: Case, reports: dict[str, Report]) -> None:
    curve = reports["four"].radius
    radii = np.array(curve.excess) + four.clf.certificate_.minimal_radius
    path = sf.radius_curve(four.clf, four.X, four.y, X_unlabeled=four.U, radii=radii)
    assert np.allclose(curve.best_model, path.risk, atol=3e-3)
    judged = sf.radius_curve(
        four.clf, four.X, four.y, X_unlabeled=four.U, radii=radii, label_prior=four.clf.label_prior, refit=False
    )
    assert np.allclose(curve.this_model, judged.risk, atol=5e-3)


def test_next_rows_have_high_scores_and_differ(two: Case, reports: dict[str, Report]) -> None:
    strategy = sf.active.RobustModelChange(random_state=0)
    fitted, names = ModelWithRows.check(two.clf, two.X, two.y, two.U), tuple(two.arguments["class_names"])
    best = strategy(two.clf, two.U, batch_size=1, X=two.X, y=two.y)
    assert choose(fitted, names, 1, 0)[0].position == best[0]
    shown = reports["two"].next_rows
    chosen = [row.candidate.position for row in shown]
    assert [row.row for row in shown] == [two.arguments["row_labels"][24 + j] for j in chosen]
    assert len(set(chosen)) == 4
    every = choose(fitted, names, 1000, 0)
    assert len(every) == len(two.U)
    scores = sorted((one.score for one in every), reverse=True)
    assert min(row.candidate.score for row in shown) >= scores[20]  # the best fifth
    assert [row.candidate.score for row in shown] == sorted((row.candidate.score for row in shown), reverse=True)
    again = choose(fitted, names, 4, 0)
    assert again == tuple(row.candidate for row in shown)
    nearest = np.linalg.norm(two.U[chosen[0]] - two.X, axis=1)
    assert shown[0].candidate.nearest_distance == pytest.approx(nearest.min())


def test_of_equal_rows_each_kind_is_asked_for_first() -> None:
    """Two kinds of rows and four to choose; scikit-learn must not be asked for more clusters than there are."""
    rows = np.tile([[0.0], [1.0]], (30, 1))
    scores = np.linspace(2.0, 1.0, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = spread_out(rows, scores, 4, 0)
    assert len(set(chosen.tolist())) == 4
    assert {float(rows[at, 0]) for at in chosen} == {0.0, 1.0}


def test_chosen_rows_are_spread_out_and_no_outliers() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]], 40, axis=0) + rng.normal(size=(120, 2)) / 4
    outliers = rng.normal(size=(3, 2)) / 50 + 8.0
    rows = np.vstack([groups, outliers])
    scores = np.concatenate([rng.random(120), [2.0, 2.1, 2.2]])
    chosen = spread_out(rows, scores, 4, 0)
    assert sum(j >= 120 for j in chosen) == 1  # of those that are alike one will do
    assert len({int(j) // 40 for j in chosen if j < 120}) == 3


def test_weights_are_coefficients_per_standard_deviation(pair: tuple[Case, Report]) -> None:
    case, report = pair
    spread = np.vstack([case.X, case.U]).std(axis=0)
    largest = np.abs(case.clf.coef_ * spread).max(axis=0)
    first = report.weights[0]
    assert first.feature == case.arguments["feature_names"][int(largest.argmax())]
    assert 0 < first.now <= largest.max() + 1e-12
    assert all(np.isfinite(one.worst) for one in report.weights)


def test_weights_are_listed_from_large_to_small(pair: tuple[Case, Report]) -> None:
    shown = [one.now for one in pair[1].weights]
    assert shown == sorted(shown, reverse=True)


def test_rough_sampling_term_is_the_spread_of_the_dual_value(two: Case, reports: dict[str, Report]) -> None:
    bounds, everything = reports["two"].bounds, np.vstack([two.X, two.U])
    assert not bounds.guarantee
    normal = two.clf.certificate_.on_fresh_rows(np.repeat(everything, 400, axis=0))
    # with many rows the Berry–Esseen correction fades, and 400 copies shrink the term by 20
    assert bounds.sampling_error == pytest.approx(20 * normal.sampling_error, rel=0.05)
    assert normal.mean == pytest.approx(bounds.risk, abs=1e-6)


def test_rows_kept_apart_give_a_guarantee(two: Case) -> None:
    fresh = two.clf.certificate_.on_fresh_rows(np.random.default_rng(5).normal(size=(20_000, 4)) / 4)
    fitted = ModelWithRows.check(two.clf, two.X, two.y, two.U)
    bounds = certified.bounds_of(fitted, fresh)
    assert bounds.guarantee
    assert bounds.sampled == pytest.approx(fresh.risk)
    few = two.clf.certificate_.on_fresh_rows(np.random.default_rng(5).normal(size=(5, 4)))
    assert certified.bounds_of(fitted, few).sampled is None
    assert not certified.bounds_of(fitted, two.clf.certificate_.on_fresh_rows(two.U)).guarantee


def test_weights_count_in_the_training_loss() -> None:
    case = make_case(2, 20, 60, seed=3)
    weights = np.random.default_rng(0).integers(1, 4, size=20)
    clf = sf.RobustLogisticRegression().fit(case.X, case.y, sample_weight=weights, X_unlabeled=case.U)
    report = build_report(clf, case.X, case.y, case.U)
    wanted = log_loss(case.y, clf.predict_proba(case.X), sample_weight=weights)
    assert report.bounds.training == pytest.approx(wanted)
    assert report.radius.this_model[report.radius.excess.index(report.radius.chosen)] == pytest.approx(
        clf.certificate_.risk, abs=5e-3
    )


def test_report_is_plain_data_and_repeatable(two: Case, reports: dict[str, Report]) -> None:
    json.dumps(asdict(reports["two"]), allow_nan=False)
    assert two.report() == reports["two"]
    assert [c.name for c in reports["two"].data.columns] == ["a", "b", two.arguments["feature_names"][2], "d", "town"]


def test_progress_runs_from_0_to_1(two: Case) -> None:
    steps: list[tuple[str, float]] = []
    two.report(progress=lambda step, share: steps.append((step, share)))
    shares = [share for _, share in steps]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_names": ["a"]}, "feature_names must have one entry per column of X, 4; got 1"),
        ({"class_names": ["a"]}, "class_names must have one entry per class, 2; got 1"),
        ({"row_labels": ["a"]}, "row_labels must have one entry per row, those of X first, 144; got 1"),
        ({"raw_rows": []}, "raw_rows must have one entry per row"),
        ({"n_query": 0}, "n_query must be an integer >= 1"),
    ],
)
def test_wrong_lengths_are_refused(two: Case, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        two.report(**changes)


def test_other_models_and_rows_are_refused(two: Case) -> None:
    with refuses("clf", "LogisticRegression"):
        build_report(LogisticRegression().fit(two.X, two.y), two.X, two.y, two.U)
    with pytest.raises(ValueError, match="must be the rows of the fit, 144 in all"):
        build_report(two.clf, two.X, two.y, two.U[1:])
    with pytest.raises(ValueError, match="X_unlabeled must be given"):
        build_report(two.clf, two.X, two.y, None)
    alone = sf.RobustLogisticRegression().fit(two.X, two.y)
    with refuses("X_unlabeled", "must hold rows"):
        build_report(alone, two.X, two.y, two.U[:0])


def test_a_bound_no_better_than_guessing_is_a_finding(two: Case) -> None:
    vague = sf.RobustLogisticRegression(radius=3.0).fit(two.X, two.y, X_unlabeled=two.U)
    report = replace(two, clf=vague).report()
    assert "guessing" in [finding.key for finding in report.cautions]
    assert not report.guarantee.beats_guessing


def guaranteed(report: Report) -> Guarantee:
    return replace(report.guarantee, radius_kind="number")


def test_a_radius_that_predicts_well_guarantees_nothing(two: Case) -> None:
    clf = sf.RobustLogisticRegression().fit(two.X, two.y, X_unlabeled=two.U)
    report = build_report(clf, two.X, two.y, two.U)
    assert report.guarantee.radius_kind == "predictive"
    assert report.guarantee.label_cost == clf.label_cost_
    page = render_report(report)
    assert 'class="figure-card"' not in page[: page.index('id="warnings"')]  # no number of it stands in the opening
    assert "The guarantee covers" not in text_of(page)
    assert "The guarantee covers" in text_of(render_report(replace(report, guarantee=guaranteed(report))))
    assert "There is no guarantee that the true distribution lies within this radius." in text_of(page)


def crossfit(value: float, n_errors: int, n_labels: int) -> ErrorBound:
    share = n_errors / n_labels
    return ErrorBound(value, MEASURED, "crossfit", "a test", 0.9, "zero_one", (), n_labels, n_errors, share)


def test_a_worst_case_below_the_errors_of_cross_validation_is_contradicted(two: Case) -> None:
    report = two.report()
    assert not report.contradicted  # without a cross-validation nothing is known
    worse = replace(report, bound=crossfit(0.99, report.data.n_labeled - 1, report.data.n_labeled))
    assert worse.contradicted
    assert "The true distribution very likely lies outside this set" in text_of(render_report(worse))
    assert not replace(worse, guarantee=guaranteed(worse)).contradicted


@pytest.mark.parametrize(
    ("bound", "largest", "wanted", "expected"),
    [
        (0.1, 0.6, None, Code.VERDICT_BETTER),
        (0.1, 1.0, None, Code.VERDICT_CONSTANT),
        (None, 0.6, None, Code.VERDICT_UNKNOWN),
        (0.4, 0.6, None, Code.VERDICT_CARE),
        (0.1, 0.6, 0.1, Code.VERDICT_MET),
        (0.1, 0.6, 0.09, Code.VERDICT_NOT_MET),
        (0.1, 1.0, 0.2, Code.VERDICT_CONSTANT),
        (None, 0.6, 0.2, Code.VERDICT_UNKNOWN),
    ],
)
def test_the_verdict(bound: float | None, largest: float, wanted: float | None, expected: Code) -> None:
    found = verdict_on(bound, ("no", largest), ("no", 0.6), 215, wanted)
    assert found.code == expected
    if "most_wrong" in found.parameters:
        assert found.parameters["most_wrong"] == 22  # 21.5, rounded up


def test_results_by_class_are_those_of_scikit_learn(two: Case) -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 4, 60), rng.integers(0, 3, 60)
    truth[truth == 3] = 0
    found = class_results(truth, predicted, range(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        precision, recall, _, support = precision_recall_fscore_support(truth, predicted, labels=range(4))
    assert [one.n_labels for one in found] == support.tolist()
    assert [one.recall for one in found[:3]] == pytest.approx(recall[:3])
    assert [one.precision for one in found[:3]] == pytest.approx(precision[:3])
    assert (found[3].recall, found[3].precision) == (None, None)
    bound = sf.error_bound(sf.RobustLogisticRegression(), two.X, two.y, X_unlabeled=sf.Unlabeled(two.U), random_state=0)
    report = two.report(bound=bound)
    assert [one.name for one in report.by_class] == list(report.classes)
    assert sum(one.n_labels - one.n_right for one in report.by_class) == bound.n_errors
    assert "Cross-validation by class" in render_report(report)


def test_the_opening_says_what_next_with_the_command_below_it(two: Case) -> None:
    report = two.report(next_command="surefoot label 'pool & more.csv'")
    page = text_of(render_report(report))
    start = page.index('class="lead"')
    opening = page[start : page.index('class="figures"', start)]
    assert opening.index("label the rows that help most") < opening.index("surefoot label")
    assert "label the rows that help" not in render_report(two.report())
    assert page.count("<h4>") == 4  # the assumptions
    assert "There are no other classes" in page


@pytest.mark.parametrize("worst_case", [True, False])
def test_all_rows_are_counted_where_some_were_certified(two: Case, worst_case: bool) -> None:
    sample = np.arange(0, 120, 3)
    few = sf.RobustLogisticRegression(radius="auto").fit(two.X, two.y, X_unlabeled=two.U[sample])
    some = replace(two, clf=few)
    report = some.report(sample=sample, with_worst_case=worst_case, curves=False)
    assert report.data.n_unlabeled == sum(one.n_rows for one in report.confidence.classes) == 120
    asked = {int(one.row.removeprefix("row ")) - 2 - len(two.X) for one in report.next_rows}
    assert asked <= set(sample.tolist())
    for one in report.next_rows:
        row = two.U[sample[one.candidate.position]]
        assert one.candidate.proba == pytest.approx(few.predict_proba(row[None])[0])
    assert (report.guarantee is None) == (report.adversary is None) == (not worst_case)
    if report.adversary is not None:
        assert report.adversary.n_looked_at == len(sample)
        places = [row.position - len(two.X) for row in report.adversary.rows if not row.labeled]
        assert places
        assert set(places) <= set(sample.tolist())
    page = render_report(report)
    assert ('id="guarantee"' in page) == worst_case
    assert 'id="radius"' not in page


def test_numbers_of_the_opening_are_plain(two: Case) -> None:
    report = two.report()
    weights = tuple(Weight(f"f{k}", "c0", 1.0, 1.0 + change) for k, change in enumerate((-0.001, 0.5, -0.5)))
    bound = crossfit(0.1, 0, report.data.n_labeled)
    page = text_of(render_report(replace(report, bound=bound, weights=weights)))
    changes = re.findall(r'<th scope="row">f\d</th>.*?([^ >]+)</td> </tr>', page)
    assert changes == ["0.00", "+0.50", "\N{MINUS SIGN}0.50"]
    assert re.search(r"the model misclassifies at most 10(\.0)?\s?% of rows like the labeled ones", page)
    assert "about 0" not in page
