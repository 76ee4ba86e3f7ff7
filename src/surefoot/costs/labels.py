"""Label costs: what changing a label costs, as a K×K matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot._validation import check_finite_array, check_positive_scalar

# κ in the units of the data: the median distance between rows, in the metric of the problem.
MEDIAN = "median"


def plain_label_cost(matrix: FloatArray) -> float | FloatArray:
    """The one cost that all changes of label have, or else the matrix (K, K)."""
    kappa = float(matrix.max())
    return kappa if np.array_equal(matrix, kappa * (1.0 - np.eye(len(matrix)))) else matrix


def label_cost_matrix(label_cost: ArrayLike, n_classes: int) -> FloatArray:
    """Label cost as a matrix (K, K): entry [k, c] is the cost of turning a label c of a labeled row into k.

    Parameters
    ----------
    label_cost : float or array of shape (K, K)
        A number κ > 0 stands for κ·1[k≠c]. A matrix has a zero diagonal and is positive elsewhere; it need not be
        symmetric.
    n_classes : int
        Classes, K.

    Returns
    -------
    array of shape (K, K)
        The matrix, checked.

    Examples
    --------
    >>> label_cost_matrix(2.0, 2)
    array([[0., 2.],
           [2., 0.]])
    """
    if isinstance(label_cost, str):
        raise ParameterError(
            "label_cost",
            f'must be a number, a matrix, or "{MEDIAN}" where all rows are known',
            repr(label_cost),
            "Pass one of these, such as label_cost_ of a fitted estimator.",
        )
    if np.ndim(label_cost) == 0:
        kappa = check_positive_scalar(label_cost, "label_cost")
        return kappa * (1.0 - np.eye(n_classes))
    matrix = check_finite_array(label_cost, "label_cost")
    if matrix.shape != (n_classes, n_classes):
        raise ParameterError(
            "label_cost",
            f"must be a number or a matrix for the K = {n_classes} classes",
            f"shape {matrix.shape}",
            f"Pass a matrix of shape ({n_classes}, {n_classes}).",
        )
    if np.diagonal(matrix).any():
        raise ParameterError(
            "label_cost",
            "must have a zero diagonal, as keeping a label costs nothing",
            np.diagonal(matrix),
            "Set the diagonal to 0.",
        )
    off_diagonal = matrix[~np.eye(n_classes, dtype=bool)]
    if off_diagonal.size and off_diagonal.min() <= 0:
        raise ParameterError(
            "label_cost",
            "must be > 0 off its diagonal",
            repr(float(off_diagonal.min())),
            "Pass a positive cost for each change of label.",
        )
    return np.array(matrix, order="C")
