"""The columnar engine: operators, their state and the kernels they share. It never imports Spark."""
