"""scikit-learn estimators: glue between arrays, problems and solvers."""
