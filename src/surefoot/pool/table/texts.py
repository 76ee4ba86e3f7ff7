"""Free text as numbers: words weighted by how rare they are (TF-IDF), then their leading directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

# Words in fewer rows than this say nothing of other rows; and at most so many words, the most frequent ones.
_FEWEST_ROWS, _MOST_WORDS = 2, 20_000


class TextParts(TransformerMixin, BaseEstimator):
    """A column of texts as its leading directions: TF-IDF of words and pairs of words, then a truncated SVD.

    Directions have mean 0 and are divided by one number, so that the first of them has standard deviation 1: a text
    then weighs about as much as a column of numbers, and directions keep their weights among each other.

    Parameters
    ----------
    n_components : int, at most so many directions; fewer where there are fewer words.

    Attributes
    ----------
    words_ : str, the words, a line each; idf_ : array (m,), their weights; directions_ : TruncatedSVD;
    mean_ : array (k,); scale_ : float.
    """

    def __init__(self, n_components: int = 50) -> None:
        self.n_components = n_components

    def fit(self, X: ArrayLike, y: Any = None) -> TextParts:
        """Find words and directions of the texts X (N,), NaN where missing."""
        texts = _plain(X)
        words = _vectorizer(min_df=_FEWEST_ROWS, max_features=_MOST_WORDS)
        weights = words.fit_transform(texts)
        # as one text: a model file writes an entry for each item of a list, which takes long
        self.words_, self.idf_ = "\n".join(words.get_feature_names_out()), words.idf_
        most = max(min(self.n_components, weights.shape[1] - 1, len(texts) - 1), 1)
        self.directions_ = TruncatedSVD(most, random_state=0).fit(weights)
        found = self.directions_.transform(weights)
        self.mean_ = found.mean(axis=0)
        self.scale_ = float(found.std(axis=0).max()) or 1.0
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """(N, k)."""
        check_is_fitted(self)
        words = _vectorizer(vocabulary=self.words_.split("\n"))
        words.idf_ = self.idf_
        found = self.directions_.transform(words.transform(_plain(X)))
        return (found - self.mean_) / self.scale_

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names such as "note: late parcel refund", by the words that weigh most in a direction."""
        check_is_fitted(self)
        name = "text" if input_features is None or not len(input_features) else str(input_features[0])
        words = np.array(self.words_.split("\n"), dtype=object)
        top = np.argsort(-np.abs(self.directions_.components_), axis=1)[:, :3]
        return np.array([f"{name} {at + 1}: {', '.join(words[best])}" for at, best in enumerate(top)], dtype=object)


def _vectorizer(**options: Any) -> TfidfVectorizer:
    """Words and pairs of words, without accents and capitals; none holds the end of a line."""
    return TfidfVectorizer(strip_accents="unicode", sublinear_tf=True, ngram_range=(1, 2), **options)


def _plain(X: ArrayLike) -> list[str]:
    """Texts; empty where missing."""
    return [cell if isinstance(cell, str) else "" for cell in np.asarray(X, dtype=object).ravel()]


def common_words(texts: list[str]) -> int:
    """How many words occur in two texts or more."""
    analyse = TfidfVectorizer(strip_accents="unicode").build_analyzer()
    seen: dict[str, int] = {}
    for text in texts:
        for word in set(analyse(text)):
            seen[word] = seen.get(word, 0) + 1
    return sum(count >= _FEWEST_ROWS for count in seen.values())
