"""scikit-learn estimators: they connect arrays, problems and solvers."""
