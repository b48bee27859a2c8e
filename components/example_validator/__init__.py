"""The schema gate: anomalies stop the run before training."""
