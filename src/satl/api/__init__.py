"""The commands as calls from Python: ``satl.train``, ``satl.complete``, ``satl.evaluate``, ``satl.predict``."""

from satl.api.complete_call import complete
from satl.api.evaluate_call import evaluate
from satl.api.notebook_results import CompletionResult, EvaluationResult, PredictionResult, TrainedRun
from satl.api.predict_call import predict
from satl.api.train_call import train

__all__ = [
    "CompletionResult",
    "EvaluationResult",
    "PredictionResult",
    "TrainedRun",
    "complete",
    "evaluate",
    "predict",
    "train",
]
