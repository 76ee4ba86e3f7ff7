"""Learning for groups of rows: an independent convex program, laws, calibrated unions, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import surefoot as sf
from generators import sample
from reference.learning import learn_groups_reference
from refusals import refuses
from surefoot.dual.models import DualPoint
from surefoot.dual.objective import SmoothedDual
from surefoot.problem.placement import check_problem


def groups_of(n: int, G: int = 3, seed: int = 0) -> Any:
    """Groups of different sizes, by name."""
    return np.array(["a", "b", "c", "d"])[
        np.random.default_rng(seed).choice(G, n, p=np.arange(1, G + 1) * 2 / G / (G + 1))
    ]


def radius_of(X: Any, y: Any, U: Any, prior: Any, excess: float) -> float:
    return sf.minimal_radius(X, y, X_unlabeled=U, label_prior=prior) + excess


class TestOptimum:
    @pytest.mark.parametrize(
        ("K", "prior", "l2", "excess"),
        [
            (2, "clopper-pearson", 0.0, 0.1),
            (2, [0.45, 0.55], 0.1, 0.05),
            (3, "clopper-pearson", 0.01, 0.1),
            (3, None, 0.0, 0.02),
        ],
    )
    def test_it_is_that_of_a_convex_program(self, K: int, prior: Any, l2: float, excess: float) -> None:
        X, y, U = sample(n=9, M=24, K=K)
        rows = np.vstack([X, U])
        groups = groups_of(len(rows))
        radius = radius_of(X, y, U, prior, excess)
        clf = sf.RobustLogisticRegression(radius, prior, l2=l2, tol=1e-5).fit(X, y, X_unlabeled=U, groups=groups)
        ds = check_problem(X, y, X_unlabeled=U, label_prior=prior).decision_set
        expected = learn_groups_reference(
            ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals, radius,
            rows, np.unique(groups, return_inverse=True)[1], l2, n_classes=K,
        )  # fmt: skip
        found, penalty = clf.certificate_, 0.5 * l2 * float(np.square(clf.coef_).sum())
        assert found.status == "optimal"
        assert found.lower + penalty - 1e-5 <= expected <= found.risk + penalty + 1e-5
        assert found.gap <= 1e-5

    def test_derivatives_are_those_of_the_value(self) -> None:
        X, y, U = sample(n=12, M=30, K=3)
        problem = check_problem(X, y, X_unlabeled=U)
        inside = groups_of(42) == "b"
        member = problem.at_excess(0.1)[0]
        objective = problem.linear(0.1, True)
        model = type(objective.model)(objective.model.X, objective.model.penalty, 3, inside / inside.mean())
        dual, rng = SmoothedDual(member.decision_set, model), np.random.default_rng(0)
        lam = np.zeros(3)
        lam[dual.layout.lam_free] = 0.1
        point = DualPoint(0.3 * rng.normal(size=model.shape), 2.0, lam, 0.2 * rng.normal(size=12))
        at, h, tau = dual.layout.pack(point), 1e-5, 0.1

        def near(step: Any) -> Any:
            return dual.evaluate(dual.layout.unpack(at + step, point), tau, second_order=False)

        here = dual.evaluate(point, tau, second_order=True)
        steps = [(near(h * unit), near(-h * unit)) for unit in np.eye(len(at))]
        gradient = [(up.value - down.value) / (2 * h) for up, down in steps]
        hessian = np.array([(up.gradient - down.gradient) / (2 * h) for up, down in steps])
        np.testing.assert_allclose(here.gradient, gradient, atol=1e-7)
        np.testing.assert_allclose(np.tril(here.hessian), np.tril(hessian), atol=1e-5)


class TestLaws:
    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("excess", [0.0, 0.02, 0.3])
    def test_its_largest_group_is_never_above_that_of_the_plain_fit(self, K: int, excess: float) -> None:
        X, y, U = sample(n=15, M=50, K=K)
        groups = groups_of(65)
        given: dict[str, Any] = {"X_unlabeled": U, "groups": groups}
        radius = radius_of(X, y, U, "clopper-pearson", excess + 1e-4)
        plain = sf.RobustLogisticRegression(radius).fit(X, y, X_unlabeled=U)
        fitted = sf.RobustLogisticRegression(radius).fit(X, y, **given)
        rival = sf.certify(plain, X, y, radius=radius, **given)
        own = sf.certify(fitted, X, y, radius=radius, **given)
        found = fitted.certificate_
        assert found.risk <= max(one.risk for one in rival.groups.values()) + 1e-4
        assert found.risk == max(one.risk for one in found.groups.values())
        assert own.risk <= found.risk + 1e-6  # the mean over all rows is a mean of groups
        for name, one in own.groups.items():
            assert found.groups[name].risk == pytest.approx(one.risk, abs=1e-5)
        assert found.worst_group == own.worst_group
        assert found.lower <= found.risk <= np.log(K) + 1e-3

    def test_one_group_is_the_plain_fit(self) -> None:
        X, y, U = sample(n=15, M=50)
        radius = radius_of(X, y, U, "clopper-pearson", 0.05)
        plain = sf.RobustLogisticRegression(radius).fit(X, y, X_unlabeled=U)
        one = sf.RobustLogisticRegression(radius).fit(X, y, X_unlabeled=U, groups=np.zeros(65))
        np.testing.assert_array_equal(one.coef_, plain.coef_)
        assert one.certificate_.risk == pytest.approx(plain.certificate_.risk, abs=1e-5)
        assert list(one.certificate_.groups) == [0.0]

    def test_order_and_names_do_not_matter(self) -> None:
        X, y, U = sample(n=15, M=50)
        groups, order = groups_of(65), np.random.default_rng(1).permutation(50)
        radius = radius_of(X, y, U, "clopper-pearson", 0.1)
        one = sf.RobustLogisticRegression(radius).fit(X, y, X_unlabeled=U, groups=groups)
        renamed = np.array([{"a": 7, "b": 5, "c": 1}[name] for name in groups])
        moved = np.append(renamed[:15], renamed[15:][order])
        other = sf.RobustLogisticRegression(radius).fit(X, y, X_unlabeled=U[order], groups=moved)
        assert other.certificate_.risk == pytest.approx(one.certificate_.risk, abs=1e-4)
        assert other.certificate_.groups[7].risk == pytest.approx(one.certificate_.groups["a"].risk, abs=5e-3)

    @pytest.mark.parametrize("radius", ["predictive", "auto", sf.CalibratedRadius(random_state=0)])
    def test_rules_of_the_radius(self, radius: Any) -> None:
        X, y, U = sample(n=30, M=60, K=3 if radius == "predictive" else 2)
        clf = sf.RobustLogisticRegression(radius).fit(X, y, X_unlabeled=U, groups=groups_of(90))
        found = clf.certificate_
        assert set(found.groups) == {"a", "b", "c"}
        assert found.risk == max(one.risk for one in found.groups.values())
        assert -1e-9 <= found.gap <= 2e-4
        assert found.guaranteed == isinstance(radius, sf.CalibratedRadius)

    def test_targets_weights_and_functions(self) -> None:
        X, y, U = sample(n=15, M=50)
        radius = 1.5
        of_target = sf.RobustLogisticRegression(radius).fit(X, y, X_target=U, groups=groups_of(50))
        by_function = sf.RobustLogisticRegression(radius).fit(
            X, y, X_target=U, groups=lambda rows: groups_of(50) if len(rows) == 50 else 1 / 0
        )
        np.testing.assert_array_equal(of_target.coef_, by_function.coef_)
        # a labeled row without weight belongs to no group
        weights, groups = np.r_[0.0, np.ones(14)], np.append("nobody", groups_of(64))
        clf = sf.RobustLogisticRegression(radius).fit(X, y, weights, X_unlabeled=U, groups=groups)
        assert set(clf.certificate_.groups) == {"a", "b", "c"}

    def test_in_a_pipeline(self) -> None:
        import sklearn

        X, y, U = sample(n=15, M=50)
        with sklearn.config_context(enable_metadata_routing=True):
            clf = sf.RobustLogisticRegression(2.0).set_fit_request(X_unlabeled=True, groups=True)
            pipe = make_pipeline(StandardScaler(), clf, transform_input=["X_unlabeled"])
            pipe.fit(X, y, X_unlabeled=sf.Unlabeled(U), groups=groups_of(65))
        assert set(pipe[-1].certificate_.groups) == {"a", "b", "c"}


class TestBadInput:
    X, y, U = sample(n=15, M=50)

    def fit(self, groups: Any, **given: Any) -> Any:
        return sf.RobustLogisticRegression(2.0, **given).fit(self.X, self.y, X_unlabeled=self.U, groups=groups)

    @pytest.mark.parametrize("groups", [np.zeros(15), np.zeros((65, 1)), lambda rows: np.zeros(3)])
    def test_groups_of_other_length(self, groups: Any) -> None:
        with refuses("groups"):
            self.fit(groups)

    @pytest.mark.parametrize("missing", [np.nan, None])
    def test_rows_without_a_group(self, missing: Any) -> None:
        with refuses("groups", 4):
            self.fit(np.array([1.0] * 4 + [missing] + [0.0] * 60, dtype=object))

    def test_rows_in_blocks(self) -> None:
        with refuses("groups"):
            self.fit(np.zeros(65), compute=sf.Compute())

    def test_evidence_needs_a_dual_point(self, tmp_path: Any) -> None:
        clf = self.fit(groups_of(65))
        with refuses("certificate"):
            clf.certificate_.save(tmp_path / "proof.json", self.X, self.y, X_unlabeled=self.U)
