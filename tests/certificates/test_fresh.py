"""Certificates on fresh rows: the dual value recomputed by hand, its sampling error, and when nothing is guaranteed."""

from __future__ import annotations

import pickle
import re
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

import surefoot as sf
from generators import fitted, just_above, sample
from refusals import Refused, refuses
from surefoot.certificates.fresh import bernstein_term, fingerprints, normal_term

LOSSES = ["log_loss", "zero_one", "cost"]
FRESH = np.random.default_rng(77).normal(size=(300, 2)) + 0.7
CITYBLOCK = {"euclidean": "euclidean", "manhattan": "cityblock"}


@cache
def certified(K: int = 2, loss: str = "zero_one", metric: str = "euclidean") -> tuple[sf.Certificate, Any, np.ndarray]:
    X, y, U = sample(seed=K, K=K)
    clf = RandomForestClassifier(10, random_state=0).fit(X, y)
    keywords = {"metric": metric, "label_cost": np.random.default_rng(K).uniform(0.5, 1.5, (K, K)) * (1 - np.eye(K))}
    radius = just_above(X, y, U, **keywords)
    what = np.arange(K * K).reshape(K, K).astype(float) if loss == "cost" else loss
    return sf.certify(clf, X, y, X_unlabeled=U, radius=radius, loss=what, **keywords), clf, np.vstack([X, U])


def dual_values(certificate: sf.Certificate, rows: np.ndarray, losses: np.ndarray, metric: str) -> np.ndarray:
    """(sets, M): αε + Σ w β + Σ_k (λ⁺ p_hi − λ⁻ p_lo) + max_{k,i} ℓ_jk − α (d_ji + κ[k, y_i]) − β_i − λ_k."""
    bound = certificate.row_bound
    assert bound is not None
    found = []
    for one in bound.sets:
        ds, point = one.decision_set, one.point
        lo, hi = ds.intervals.T
        constant = point.alpha * ds.radius + ds.anchor_weights @ point.beta
        constant += np.maximum(point.lam, 0) @ hi - np.maximum(-point.lam, 0) @ lo
        cost = cdist(rows, bound.anchors, CITYBLOCK[metric])[:, None, :] + ds.label_cost[None, :, ds.anchor_labels]
        inside = (losses - point.lam)[:, :, None] - point.alpha * cost - point.beta
        found.append(constant + inside.max(axis=(1, 2)))
    return np.array(found)


def losses_by_hand(clf: Any, rows: np.ndarray, loss: str) -> np.ndarray:
    K = len(clf.classes_)
    if loss == "log_loss":
        return -np.log(np.maximum(clf.predict_proba(rows), 1e-12))
    matrix = 1.0 - np.eye(K) if loss == "zero_one" else np.arange(K * K).reshape(K, K)
    return matrix[:, clf.predict(rows)].T.astype(float)


@pytest.mark.parametrize("metric", CITYBLOCK)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("K", [2, 3])
class TestValue:
    def test_mean_is_the_dual_value_at_the_fresh_rows(self, K: int, loss: str, metric: str) -> None:
        certificate, clf, _ = certified(K, loss, metric)
        values = dual_values(certificate, FRESH, losses_by_hand(clf, FRESH, loss), metric)[0]
        fresh = certificate.on_fresh_rows(FRESH, method="normal", level=0.9)
        assert fresh.mean == pytest.approx(values.mean(), abs=1e-9)
        assert fresh.sampling_error == pytest.approx(normal_term(values, 0.9), rel=1e-6)
        assert fresh.risk == fresh.mean + fresh.sampling_error
        assert (fresh.n_rows, fresh.reused_rows, fresh.guarantee) == (300, 0, True)
        assert (fresh.loss, fresh.radius, fresh.level) == (certificate.loss, certificate.radius, 0.9)

    def test_bernstein_clips_below_and_knows_its_range(self, K: int, loss: str, metric: str) -> None:
        certificate, clf, rows = certified(K, loss, metric)
        fresh_rows = np.vstack([FRESH, 20.0 * FRESH[:5]])  # far from all anchors the dual value is small
        values = dual_values(certificate, fresh_rows, losses_by_hand(clf, fresh_rows, loss), metric)[0]
        low = dual_values(certificate, rows, losses_by_hand(clf, rows, loss), metric)[0].min()
        largest = {"log_loss": -np.log(1e-12), "zero_one": 1.0, "cost": K * K - 1.0}[loss]
        # a row at an anchor, with the largest loss for every label, is the worst there could be
        anchors = certificate.row_bound.anchors
        high = dual_values(certificate, anchors, np.full((len(anchors), K), largest), metric)[0].max()
        clipped = np.maximum(values, low)
        assert (clipped > values).any()
        fresh = certificate.on_fresh_rows(fresh_rows, method="bernstein", level=0.9)
        assert fresh.mean == pytest.approx(clipped.mean(), abs=1e-9)
        assert fresh.sampling_error == pytest.approx(bernstein_term(clipped, 0.9, low, high), rel=1e-6)
        assert values.max() <= high

    def test_on_the_rows_of_the_fit_it_is_the_certificate_without_a_level(self, K: int, loss: str, metric: str) -> None:
        certificate, _, rows = certified(K, loss, metric)
        for method in ("normal", "bernstein"):
            again = certificate.on_fresh_rows(rows, method=method)
            assert again.mean == pytest.approx(certificate.risk, abs=1e-9)
            assert again.reused_rows == again.n_rows == len(rows)
            assert not again.guarantee
            assert again.statement.startswith(f"no sampling guarantee: {len(rows)} of the {len(rows)} rows coincide")
            assert again.statement in repr(again)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(LOSSES), st.sampled_from([2, 3]), st.floats(1e-2, 1e2))
def test_no_row_exceeds_the_range(seed: int, loss: str, K: int, spread: float) -> None:
    certificate, clf, rows = certified(K, loss)
    bound, rng = certificate.row_bound, np.random.default_rng(seed)
    anywhere = np.vstack([spread * rng.normal(size=(30, 2)), rows[rng.integers(len(rows), size=10)]])
    _, high = bound.sets[0].range(bound.largest_loss)
    assert dual_values(certificate, anywhere, losses_by_hand(clf, anywhere, loss), "euclidean").max() <= high + 1e-9


class TestLearnedModel:
    @pytest.mark.parametrize("l2", [0.0, 0.05])
    @pytest.mark.parametrize("K", [2, 3])
    def test_the_certificate_of_a_fit_can_be_re_evaluated(self, K: int, l2: float) -> None:
        clf, X, _, U = fitted(K=K, l2=l2)
        losses = -clf.predict_log_proba(FRESH)
        values = dual_values(clf.certificate_, FRESH, losses, "euclidean")[0]
        fresh = clf.certificate_.on_fresh_rows(FRESH)
        assert fresh.mean == pytest.approx(values.mean(), abs=1e-9)
        assert (fresh.method, fresh.guarantee) == ("normal", True)
        again = clf.certificate_.on_fresh_rows(np.vstack([X, U]))
        assert again.mean == pytest.approx(clf.certificate_.risk, abs=1e-9)
        assert not again.guarantee

    def test_its_losses_are_unbounded_unless_told(self) -> None:
        certificate = fitted()[0].certificate_
        with refuses("method", '"bernstein"', '"normal"'):
            certificate.on_fresh_rows(FRESH, method="bernstein")
        fresh = certificate.on_fresh_rows(FRESH, method="bernstein", largest_loss=20.0)
        assert fresh.method == "bernstein"
        assert fresh.mean >= certificate.on_fresh_rows(FRESH).mean
        assert (
            fresh.sampling_error < certificate.on_fresh_rows(FRESH, method="bernstein", largest_loss=40).sampling_error
        )
        with refuses("losses", 0.1):
            certificate.on_fresh_rows(FRESH, method="bernstein", largest_loss=0.1)

    def test_the_ball_alone_needs_no_fresh_rows(self) -> None:
        X, y, _ = sample()
        certificate = sf.WassersteinLogisticRegression().fit(X, y).certificate_
        with pytest.raises(ValueError, match=r"cannot be re-evaluated: over a Wasserstein ball.*Use certify"):
            certificate.on_fresh_rows(FRESH)


class TestGuarantee:
    def test_one_row_of_the_fit_among_fresh_ones_voids_the_level(self) -> None:
        certificate, _, rows = certified()
        mixed = np.vstack([FRESH, rows[-1:]])
        found = certificate.on_fresh_rows(mixed)
        assert (found.reused_rows, found.guarantee) == (1, False)
        assert "1 of the 301 rows" in found.statement
        assumed = certificate.on_fresh_rows(mixed, assume_fresh=True)
        assert (assumed.reused_rows, assumed.guarantee) == (1, True)
        assert assumed.risk == found.risk
        assert assumed.statement.startswith(
            "with probability 0.95 over the fresh rows, over every distribution in this set"
        )
        # the same rows twice among the fresh ones are no reuse
        assert certificate.on_fresh_rows(np.vstack([FRESH, FRESH])).guarantee

    def test_rows_that_differ_in_the_last_bit_are_fresh_and_a_signed_zero_is_not(self) -> None:
        X, y = np.array([[0.0, 1.0], [1.0, -0.0]]), [0, 1]
        certificate = sf.certify(KNeighborsClassifier(1).fit(X, y), X, y, radius=0.2, loss="zero_one")
        assert certificate.on_fresh_rows([[-0.0, 1.0], [1.0, 0.0]]).reused_rows == 2
        assert certificate.on_fresh_rows(np.nextafter(X, 2.0)).reused_rows == 0
        assert certificate.on_fresh_rows(X[:, ::-1]).reused_rows == 2  # the two rows mirror each other
        assert certificate.on_fresh_rows(X[:, ::-1] + [[0, 1]]).reused_rows == 0

    @pytest.mark.parametrize(
        "values", [range(10), range(-5, 5), np.linspace(0, 1, 10), 2.0 ** np.arange(-5, 5)], ids=str
    )
    def test_no_two_rows_are_mistaken_for_each_other(self, values: Any) -> None:
        grid = np.array(list(product(values, repeat=4)), dtype=float)
        assert len(np.unique(fingerprints(grid))) == len(grid)

    def test_too_few_rows_guarantee_nothing(self) -> None:
        certificate = certified(loss="log_loss")[0]
        few = certificate.on_fresh_rows(FRESH[:20], level=0.99)
        assert few.method == "normal"
        assert few.sampling_error == few.risk == np.inf
        assert few.likelihood == 0.0
        assert np.isfinite(few.mean)
        assert few.statement.startswith("no guarantee: 20 rows are too few for this method at level 0.99")
        bounded = certificate.on_fresh_rows(FRESH[:20], level=0.99, method="bernstein")
        assert np.isfinite(bounded.risk)
        assert certificate.on_fresh_rows(FRESH[:1], method="bernstein").risk == np.inf

    @pytest.mark.parametrize("method", ["normal", "bernstein"])
    def test_no_bound_exceeds_the_largest_loss(self, method: str) -> None:
        X, y, U = sample(seed=2)
        clf = KNeighborsClassifier(3).fit(X, y)
        # close to the minimal radius α is large, and so is the spread of the dual value over fresh rows
        certificate = sf.certify(clf, X, y, X_unlabeled=U, radius=just_above(X, y, U, 0.0), loss="zero_one")
        assert certificate.on_fresh_rows(FRESH, method=method, level=0.9).risk <= 1.0

    def test_text_says_which_method_and_at_which_level(self) -> None:
        certificate = certified()[0]
        bernstein, normal = (certificate.on_fresh_rows(FRESH, level=0.9, method=m) for m in ("bernstein", "normal"))
        assert "empirical Bernstein" in repr(bernstein)
        assert "one-sided normal with the Berry-Esseen correction" in normal._repr_html_()
        said = re.search(r"is at most ([0-9.]+) %", normal.statement)
        assert said is not None
        assert 100 * normal.risk <= float(said[1]) <= 100 * normal.risk + 0.1  # rounded up
        for text in (repr(normal), normal._repr_html_()):
            for number in (normal.risk, normal.mean, normal.sampling_error, normal.radius):
                assert f"{number:.6g}" in text
            assert "0.9" in text
            assert "300 fresh rows" in text
        assert normal.likelihood == pytest.approx(np.exp(-normal.risk), rel=1e-15)


class TestMethod:
    @pytest.mark.parametrize(
        ("loss", "method"), [("log_loss", "normal"), ("zero_one", "bernstein"), ("cost", "bernstein")]
    )
    def test_auto(self, loss: str, method: str) -> None:
        certificate = certified(2, loss)[0]
        auto, named = (certificate.on_fresh_rows(FRESH, method=name) for name in ("auto", method))
        assert auto.method == method
        assert auto.risk == named.risk
        assert certificate.on_fresh_rows(FRESH).level == 0.95

    def test_own_losses_are_to_be_given_again(self) -> None:
        X, y, U = sample()
        rng = np.random.default_rng(0)
        certificate = sf.certify(
            None, X, y, X_unlabeled=U, radius=just_above(X, y, U), losses=rng.uniform(size=(53, 2))
        )  # fmt: skip
        with refuses("losses", "(300, 2)"):
            certificate.on_fresh_rows(FRESH)
        losses = rng.uniform(size=(300, 2))
        fresh = certificate.on_fresh_rows(FRESH, losses=losses)
        assert fresh.mean == pytest.approx(dual_values(certificate, FRESH, losses, "euclidean").mean(), abs=1e-9)
        assert fresh.method == "normal"
        assert certificate.on_fresh_rows(FRESH, losses=losses, largest_loss=1.0).method == "bernstein"
        with refuses("method"):
            certificate.on_fresh_rows(FRESH, losses=losses, method="bernstein")
        for wrong in (losses[:-1], losses[:, :1]):
            with refuses("losses", "(300, 2)"):
                certificate.on_fresh_rows(FRESH, losses=wrong)
        with refuses("losses", "nan at index (0, 0)"):
            certificate.on_fresh_rows(FRESH, losses=np.full((300, 2), np.nan))

    def test_precomputed_distances_reach_no_fresh_rows(self) -> None:
        X, y, U = sample()
        metric = sf.costs.Precomputed(cdist(np.vstack([X, U]), X))
        certificate = sf.certify(KNeighborsClassifier(1).fit(X, y), X, y, X_unlabeled=U, radius=2.0, metric=metric)
        with refuses("metric"):
            certificate.on_fresh_rows(FRESH)

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"level": 0.0}, ("level", 0, 1, 0.0)),
            ({"level": 1.0}, ("level", 0, 1, 1.0)),
            ({"level": 95}, ("level", 0, 1, 95.0)),
            ({"level": np.nan}, ("level", 0, 1)),
            ({"method": "hoeffding"}, ("method", '"auto"', "'hoeffding'")),
            ({"largest_loss": -1.0}, ("largest_loss", 0, -1.0)),
            ({"largest_loss": 0.5}, ("losses", 0.5, 1.0)),
            ({"X_fresh": FRESH[:, :1]}, ("X_fresh", 2, 1)),
            ({"X_fresh": FRESH[:0]}, "X_fresh"),
            ({"X_fresh": np.full((3, 2), np.nan)}, re.compile(r"X_fresh.*contains NaN")),
        ],
    )
    def test_bad_input(self, given: dict[str, Any], match: Refused) -> None:
        with refuses(match):
            certified()[0].on_fresh_rows(**{"X_fresh": FRESH} | given)


class TestLaws:
    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(st.sampled_from(LOSSES), st.sampled_from(["normal", "bernstein"]), st.floats(0.6, 0.94))
    def test_a_higher_level_and_fewer_rows_cost_more(self, loss: str, method: str, level: float) -> None:
        certificate = certified(2, loss)[0]
        here = certificate.on_fresh_rows(FRESH, level=level, method=method)
        assert here.sampling_error <= certificate.on_fresh_rows(FRESH, level=level + 0.05, method=method).sampling_error
        more = certificate.on_fresh_rows(np.tile(FRESH, (3, 1)), level=level, method=method)
        assert more.mean == pytest.approx(here.mean, abs=1e-12)
        assert more.sampling_error < here.sampling_error

    def test_order_of_rows_does_not_matter_nor_does_pickling(self) -> None:
        for certificate in (certified(3, "log_loss")[0], fitted(K=3)[0].certificate_):
            copy = pickle.loads(pickle.dumps(certificate))
            first, second = certificate.on_fresh_rows(FRESH), certificate.on_fresh_rows(FRESH[::-1].copy())
            assert second.risk == pytest.approx(first.risk, abs=1e-12)
            assert copy.on_fresh_rows(FRESH).risk == first.risk
            assert repr(pickle.loads(pickle.dumps(first))) == repr(first)

    def test_lists_and_frames_are_rows_too(self) -> None:
        pandas = pytest.importorskip("pandas")
        certificate = fitted()[0].certificate_
        forms = (FRESH, FRESH.tolist(), pandas.DataFrame(FRESH, columns=["a", "b"]))
        assert len({certificate.on_fresh_rows(form).risk for form in forms}) == 1
