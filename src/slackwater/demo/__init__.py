"""`make demo`: a real pipeline on Spark, watched while it runs; and a shorter story without Spark."""
