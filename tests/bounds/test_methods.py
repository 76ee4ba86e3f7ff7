"""The menu of bounds: each method against its formula, groups, losses, what is refused and what is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binomtest, hypergeom
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import surefoot as sf
from refusals import Refused, refuses
from surefoot.bounds.betting import PoolErrors, bounded_upper, clopper_pearson_upper, population_upper
from surefoot.priors.clopper_pearson import fold_numbers, hypergeometric_upper

X, Y = make_classification(1200, 6, n_informative=4, flip_y=0.05, random_state=0)
X /= np.abs(X).max()
FEW, HELD, REST = slice(0, 60), slice(60, 160), slice(160, 1200)
CLF = LogisticRegression(C=10).fit(X[FEW], Y[FEW])


class TestCrossfit:
    def test_errors_of_cross_validation_plus_one(self) -> None:
        folds = fold_numbers(Y[FEW], 10, 0)
        splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(10)]
        errors = int(np.sum(cross_val_predict(LogisticRegression(C=10), X[FEW], Y[FEW], cv=splits) != Y[FEW]))
        found = sf.error_bound(CLF, X[FEW], Y[FEW])
        assert found.n_errors == errors
        assert found.value == pytest.approx(beta.ppf(0.9, errors + 2, 60 - errors - 1))
        assert (found.kind, found.n_labels) == ("measured", 60)
        assert "not proved" in repr(found)

    def test_the_classifier_given_is_left_alone(self) -> None:
        before = CLF.coef_.copy()
        unfitted = DecisionTreeClassifier(random_state=0)
        sf.error_bound(CLF, X[FEW], Y[FEW])
        sf.error_bound(unfitted, X[FEW], Y[FEW])
        np.testing.assert_array_equal(CLF.coef_, before)
        assert not hasattr(unfitted, "tree_")

    def test_folds_spread_each_class(self) -> None:
        y = np.array([0] * 43 + [1] * 7)
        folds = fold_numbers(y, 10, 3)
        assert np.bincount(folds, minlength=10).tolist() == [5] * 10
        assert np.bincount(folds[y == 1]).max() == 1
        assert sorted(fold_numbers(y[:4], 10, 0)) == [0, 1, 2, 3]

    def test_one_label_of_a_class_is_no_obstacle(self) -> None:
        y = np.zeros(12, dtype=int)
        y[3] = 1  # the fold without it shows one class only, which LogisticRegression refuses
        found = sf.error_bound(LogisticRegression(), X[:12], y)
        assert found.n_errors >= 1

    def test_the_result_does_not_depend_on_threads(self) -> None:
        recipe = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
        one, two = (
            sf.error_bound(recipe, X[FEW], Y[FEW], X_unlabeled=X[REST], control_variate=True, n_jobs=n_jobs)
            for n_jobs in (None, 2)
        )
        assert one.value == two.value
        np.testing.assert_array_equal(one.predicted, two.predicted)
        with refuses("n_jobs", 0):
            sf.error_bound(CLF, X[FEW], Y[FEW], n_jobs=0)

    def test_an_error_in_a_thread_is_raised(self) -> None:
        clf = sf.RobustLogisticRegression(radius=1e-9)
        with pytest.raises(sf.InfeasibleRadiusError):
            sf.error_bound(clf, X[FEW], Y[FEW], X_unlabeled=X[REST][:50], n_jobs=2)

    def test_folds_of_the_robust_classifier_stop_early_with_a_certified_gap(self) -> None:
        fits: list[sf.RobustLogisticRegression] = []

        class Watched(sf.RobustLogisticRegression):
            def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_unlabeled: Any = None) -> Watched:
                super().fit(X, y, sample_weight, X_unlabeled=X_unlabeled)
                fits.append(self)
                return self

        rows, U = X[FEW], X[REST][:300]
        found = sf.error_bound(Watched(), rows, Y[FEW], X_unlabeled=U)
        assert [clf.tol for clf in fits] == [1e-2] * 10
        assert found.predicted is not None
        folds = fold_numbers(Y[FEW], 10, 0)
        agreed = 0
        for k, rough in enumerate(fits):
            held = folds == k
            exact = sf.RobustLogisticRegression()
            exact.fit(rows[~held], Y[FEW][~held], X_unlabeled=np.vstack([U, rows[held]]))
            assert rough.certificate_.gap <= 1e-2
            # both intervals contain the optimum of the same problem
            assert rough.certificate_.lower <= exact.certificate_.risk + 1e-9
            assert exact.certificate_.lower <= rough.certificate_.risk + 1e-9
            assert rough.certificate_.radius == pytest.approx(exact.certificate_.radius)
            agreed += int(np.sum(exact.predict(rows[held]) == found.predicted[held]))
        assert agreed >= 57
        # a gap that is larger anyway is kept, also in a pipeline
        sf.error_bound(make_pipeline(StandardScaler(), Watched(tol=0.05)), rows, Y[FEW], n_folds=2)
        assert [clf.tol for clf in fits[10:]] == [0.05] * 2

    def test_text_labels_and_level(self) -> None:
        names = np.array(["no", "yes"])[Y]
        clf = LogisticRegression(C=10).fit(X[FEW], names[FEW])
        assert sf.error_bound(clf, X[FEW], names[FEW]).value == sf.error_bound(CLF, X[FEW], Y[FEW]).value
        values = [sf.error_bound(CLF, X[FEW], Y[FEW], level=level).value for level in (0.8, 0.9, 0.99)]
        assert values == sorted(values)

    def test_costs_scale_the_zero_one_losses(self) -> None:
        doubled = sf.error_bound(CLF, X[FEW], Y[FEW], loss=[[0, 2], [2, 0]])
        once = sf.error_bound(CLF, X[FEW], Y[FEW], loss=[[0, 1], [1, 0]])
        assert doubled.value == pytest.approx(2 * once.value, abs=1e-5)
        assert once.value > sf.error_bound(CLF, X[FEW], Y[FEW]).value  # betting knows less than the binomial law
        assert doubled.loss == "cost"

    def test_the_control_variate_uses_the_unlabeled_rows(self) -> None:
        plain = sf.error_bound(CLF, X[FEW], Y[FEW]).value
        helped = sf.error_bound(CLF, X[FEW], Y[FEW], X_unlabeled=X[REST], control_variate=True).value
        assert 0.5 * plain < helped < 1.1 * plain
        assert helped != plain

    def test_unlabeled_rows_reach_a_fit_that_takes_them(self) -> None:
        clf = sf.RobustLogisticRegression(radius="calibrated")
        found = sf.error_bound(clf, X[:24], Y[:24], X_unlabeled=X[REST][:40], n_folds=3)
        assert 0 < found.value <= 1
        assert "3 folds" in found.method


class TestUnseen:
    wrong = CLF.predict(X[HELD]) != Y[HELD]

    def test_population(self) -> None:
        found = sf.error_bound(CLF, X[HELD], Y[HELD], method="holdout")
        assert found.value == clopper_pearson_upper(int(self.wrong.sum()), 100, 0.9)
        assert found.kind == "theorem"
        assert "population" in found.statement

    def test_pool(self) -> None:
        found = sf.error_bound(CLF, X[HELD], Y[HELD], X_unlabeled=X[REST], method="holdout")
        assert found.value == hypergeometric_upper(int(self.wrong.sum()), 100, 1140, 0.9) / 1140
        assert "1140 rows" in found.statement

    def test_anytime(self) -> None:
        found = sf.error_bound(CLF, X[HELD], Y[HELD], X_unlabeled=X[REST], method="anytime")
        pool = PoolErrors(1140, 0.9)
        assert found.value == [pool.add(bool(w)) for w in self.wrong][-1] / 1140
        alone = sf.error_bound(CLF, X[HELD], Y[HELD], method="anytime")
        assert alone.value == population_upper(self.wrong, 0.9)[-1]

    def test_an_unfitted_classifier_is_trained_on_half(self) -> None:
        found = sf.error_bound(LogisticRegression(C=10), X[FEW], Y[FEW], X_unlabeled=X[REST], method="holdout")
        assert found.n_labels == 30
        assert "30 of the labels" in found.about
        assert f"{30 + 1040} rows" in found.about
        assert found.classifier is not None
        assert hasattr(found.classifier, "coef_")

    def test_a_class_that_the_half_did_not_show_counts_as_an_error(self) -> None:
        judged = np.random.default_rng(0).permutation(60)[30:]
        y = Y[FEW].copy()
        y[judged[:2]] = 2  # none of these is in the half that is trained on
        found = sf.error_bound(LogisticRegression(C=10), X[FEW], y, method="holdout")
        assert found.classifier is not None
        assert found.classifier.classes_.tolist() == [0, 1]
        assert found.n_errors >= 2

    def test_the_log_loss_is_clipped(self) -> None:
        proba = CLF.predict_proba(X[HELD])[np.arange(100), Y[HELD]]
        losses = -np.log(np.maximum(proba, 0.05))
        found = sf.error_bound(CLF, X[HELD], Y[HELD], method="holdout", loss="log_loss", clip=0.05)
        assert found.value == pytest.approx(bounded_upper(losses, 0, -np.log(0.05), 0.9))
        assert found.mean_loss == pytest.approx(losses.mean())

    def test_coverage_of_the_pool_bound(self) -> None:
        rng, missed = np.random.default_rng(0), 0
        truth = np.mean(CLF.predict(X[60:]) != Y[60:])
        for _ in range(200):
            order = 60 + rng.permutation(1140)
            held, rest = order[:40], order[40:]
            missed += sf.error_bound(CLF, X[held], Y[held], X_unlabeled=X[rest], method="holdout").value < truth
        assert missed <= 20

    def test_rows_of_the_training_are_refused(self) -> None:
        with refuses("X", 60):
            sf.error_bound(CLF, X[FEW], Y[FEW], method="holdout", X_train=X[FEW])
        ours = sf.RobustLogisticRegression(radius="calibrated").fit(X[:20], Y[:20])
        with refuses("X", 20, 30):
            sf.error_bound(ours, X[:30], Y[:30], method="anytime")  # it remembers its labeled rows
        assert sf.error_bound(ours, X[20:50], Y[20:50], method="holdout").n_labels == 30


class TestGroups:
    groups = np.where(X[:, 0] > 0, "high", "low")

    def test_each_group_is_bounded_at_its_share_of_the_level(self) -> None:
        found = sf.error_bound(CLF, X[HELD], Y[HELD], method="holdout", groups=self.groups[HELD])
        assert found.groups is not None
        for name, bound in found.groups.items():
            mine = self.groups[HELD] == name
            errors = int(np.sum(CLF.predict(X[HELD][mine]) != Y[HELD][mine]))
            assert bound.value == clopper_pearson_upper(errors, int(mine.sum()), 0.95)
        assert found.value == max(bound.value for bound in found.groups.values())
        assert found.groups[found.worst_group].value == found.value
        assert "group low" in repr(found)
        assert (found.n_labels, found.level) == (100, 0.9)

    def test_of_a_pool(self) -> None:
        everyone = self.groups[60:]
        found = sf.error_bound(CLF, X[HELD], Y[HELD], X_unlabeled=X[REST], method="anytime", groups=everyone)
        assert found.groups is not None
        pool = PoolErrors(int(np.sum(everyone == "low")), 0.95)
        mine = self.groups[HELD] == "low"
        for wrong in CLF.predict(X[HELD][mine]) != Y[HELD][mine]:
            pool.add(bool(wrong))
        assert found.groups["low"].value == pool.upper / pool.N
        assert "1140 rows" in found.about

    def test_of_a_half_that_is_held_out(self) -> None:
        order = np.concatenate([np.arange(60), np.arange(160, 1200)])
        found = sf.error_bound(
            LogisticRegression(C=10), X[FEW], Y[FEW], X_unlabeled=X[REST], method="holdout", groups=self.groups[order]
        )
        assert found.groups is not None
        assert sum(bound.n_labels for bound in found.groups.values()) == 30
        judged = np.random.default_rng(0).permutation(60)[30:]
        clf = found.classifier
        assert clf is not None
        for name, bound in found.groups.items():
            rows = judged[self.groups[judged] == name]
            assert bound.n_errors == np.sum(clf.predict(X[rows]) != Y[rows])

    def test_crossfit(self) -> None:
        found = sf.error_bound(CLF, X[FEW], Y[FEW], groups=self.groups[FEW])
        whole = sf.error_bound(CLF, X[FEW], Y[FEW])
        assert found.groups is not None
        assert found.n_errors == whole.n_errors
        assert found.value > whole.value
        for bound in (found, whole):
            assert bound.predicted is not None
            assert np.sum(bound.predicted != Y[FEW]) == bound.n_errors

    def test_refusals(self) -> None:
        with refuses("groups", 60):
            sf.error_bound(CLF, X[FEW], Y[FEW], groups=["a"] * 59)
        with refuses("groups", "['c']"):
            sf.error_bound(CLF, X[FEW], Y[FEW], X_unlabeled=X[:2], groups=["a"] * 60 + ["b", "c"][1:] * 2)
        with refuses("groups", 62):
            sf.error_bound(CLF, X[FEW], Y[FEW], X_unlabeled=X[:2], groups=["a"] * 60, method="holdout")
        with refuses("groups"):
            sf.error_bound(CLF, X[FEW], Y[FEW], groups=len)


class TestTransport:
    def test_it_is_the_certificate(self) -> None:
        few, U = slice(0, 30), X[REST][:100]
        clf = LogisticRegression(C=10).fit(X[few], Y[few])
        found = sf.error_bound(clf, X[few], Y[few], X_unlabeled=U, method="transport", level=0.8)
        reference = sf.certify(clf, X[few], Y[few], X_unlabeled=U, radius=sf.CalibratedRadius(0.8), loss="zero_one")
        assert found.value == pytest.approx(reference.risk, abs=1e-6)
        assert found.kind == "conditional"
        assert found.certificate is not None
        assert "level 0.8" in found.assumptions[0]

    def test_a_radius_given(self) -> None:
        few, U = slice(0, 30), X[REST][:100]
        clf = LogisticRegression(C=10).fit(X[few], Y[few])
        radius = sf.transport_distance(X[few], Y[few], np.vstack([X[few], U]), np.append(Y[few], Y[REST][:100]))
        known = np.bincount(np.append(Y[few], Y[REST][:100])) / 130
        found = sf.error_bound(
            clf,
            X[few],
            Y[few],
            X_unlabeled=U,
            method="transport",
            radius=radius,
            certify_options={"label_prior": known},
        )
        truth = np.mean(clf.predict(np.vstack([X[few], U])) != np.append(Y[few], Y[REST][:100]))
        assert truth <= found.value
        assert "within transport distance" in found.assumptions[0]


class TestAll:
    def test_what_applies_follows_from_what_is_given(self) -> None:
        few, U = slice(0, 30), X[REST][:60]
        clf = LogisticRegression(C=10).fit(X[few], Y[few])
        found = sf.error_bounds(clf, X[few], Y[few], X_unlabeled=U)
        assert list(found.bounds) == ["crossfit", "holdout", "transport"]
        assert found.advice == "crossfit"
        assert "Audit" in found.left_out["anytime"]
        assert [line["method"] for line in found.table] == list(found.bounds)
        assert len(found) == 3
        assert "never by the values" in repr(found)
        with pytest.raises(KeyError, match="labels that the classifier has not seen"):
            found["anytime"]

    def test_labels_held_out_judge_this_classifier(self) -> None:
        found = sf.error_bounds(CLF, X[FEW], Y[FEW], X_holdout=X[HELD], y_holdout=Y[HELD], radius=5.0)
        assert found.advice == "holdout"
        assert found["holdout"].n_labels == 100
        assert found["anytime"].value > found["holdout"].value
        with refuses("X_holdout"):
            sf.error_bounds(CLF, X[FEW], Y[FEW], X_holdout=X[HELD])

    def test_chosen_rows_leave_transport_alone(self) -> None:
        found = sf.error_bounds(CLF, X[FEW], Y[FEW], random_labels=False)
        assert not found.bounds
        assert "requires a numeric radius" in found.left_out["transport"]
        given = sf.error_bounds(CLF, X[FEW], Y[FEW], random_labels=False, radius=0.5)
        assert list(given.bounds) == ["transport"]
        assert given.advice == "transport"

    def test_an_unfitted_classifier(self) -> None:
        found = sf.error_bounds(KNeighborsClassifier(3), X[FEW], Y[FEW])
        assert list(found.bounds) == ["crossfit", "holdout"]
        assert "fitted classifier" in found.left_out["transport"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("keywords", "match"),
        [
            ({"level": 0.0}, ("level", 0, 1)),
            ({"level": 1.0}, ("level", 0, 1)),
            ({"method": "smallest"}, ("method", "'smallest'")),
            ({"loss": "hinge"}, ("loss", "'hinge'")),
            ({"loss": [[0, 1]]}, "loss"),
            ({"control_variate": True}, ("control_variate", "None")),
            ({"n_folds": 0}, ("n_folds", 0)),
            ({"X_unlabeled": np.zeros((3, 2))}, ("X_unlabeled", "(2,)")),
            ({"classes": [1]}, ("labels", "[0]")),
            ({"classes": [0, 1, 2], "loss": [[0, 1], [1, 0]]}, "loss"),
        ],
    )
    def test_arguments(self, keywords: dict[str, object], match: Refused) -> None:
        with refuses(match):
            sf.error_bound(CLF, X[FEW], Y[FEW], **keywords)  # type: ignore[arg-type]

    def test_a_class_that_the_classifier_does_not_know(self) -> None:
        y = Y[HELD].copy()
        y[0] = 7
        with refuses("labels", "[0, 1]", "[7]"):
            sf.error_bound(CLF, X[HELD], y, method="holdout")
        told = sf.error_bound(CLF, X[HELD], y, method="holdout", classes=[0, 1, 7])
        assert told.n_errors == np.sum(CLF.predict(X[HELD]) != y)

    def test_too_few_labels_and_no_classifier(self) -> None:
        with refuses("y", 2):
            sf.error_bound(CLF, X[:1], Y[:1])
        with refuses("classifier", "NoneType"):
            sf.error_bound(None, X[FEW], Y[FEW])
        with refuses("classifier"):
            sf.error_bound(LogisticRegression(), X[FEW], Y[FEW], method="transport")
        with refuses("y"):
            sf.error_bound(LogisticRegression(), X[:4], [0, 0, 0, 0], method="holdout")


@pytest.mark.parametrize(("errors", "n"), [(0, 12), (3, 40), (40, 40)])
def test_the_metric_is_the_exact_one_sided_bound(errors: int, n: int) -> None:
    y, level = np.arange(n) % 3, 0.85
    predicted = np.where(np.arange(n) < errors, 7, y)
    exact = binomtest(errors, n, alternative="less").proportion_ci(level, method="exact").high
    assert sf.error_rate_bound(y, predicted, level=level) == pytest.approx(exact, abs=1e-12)
    N = 50
    possible = [M for M in range(errors, N - (n - errors) + 1) if hypergeom.cdf(errors, N, M, n) > 1 - level]
    assert sf.error_rate_bound(y, predicted, level=level, pool_size=N) == max(possible) / N


def test_the_metric_covers_the_error_rate_and_makes_a_scorer() -> None:
    rng, rate = np.random.default_rng(0), 0.2
    held = [sf.error_rate_bound(np.zeros(30), rng.random(30) < rate, level=0.8) >= rate for _ in range(2000)]
    assert 0.8 - 3 * 0.009 <= np.mean(held) <= 0.95
    clf = DummyClassifier(strategy="constant", constant="a").fit([[0], [0]], ["a", "b"])
    X, y = np.zeros((20, 1)), np.array(["a"] * 17 + ["b"] * 3)
    scorer = make_scorer(sf.error_rate_bound, greater_is_better=False, level=0.8)
    assert scorer(clf, X, y) == -sf.error_rate_bound(y, clf.predict(X), level=0.8)
    assert cross_val_score(clf, X, y, scoring=scorer, cv=2).shape == (2,)


def test_the_metric_refuses_what_cannot_be_bounded() -> None:
    with refuses("y_pred"):
        sf.error_rate_bound([0, 1], [0])
    with refuses("y_pred"):
        sf.error_rate_bound([], [])
    with refuses("pool_size"):
        sf.error_rate_bound([0, 1], [0, 1], pool_size=1)
    with refuses("level"):
        sf.error_rate_bound([0, 1], [0, 1], level=1.0)
