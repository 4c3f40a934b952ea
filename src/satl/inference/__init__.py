"""A trained run at work: recogniser, predictions, evaluation, ONNX."""
