"""satl: multi-label image recognition when most labels are missing.

A table says for each image and class: present, absent, or nobody looked. Four calls do the work of the commands:

    run = satl.train(table, images="photos")      train a recogniser
    satl.evaluate(run)                            measure it on the known cells
    satl.complete(run)                            fill unknown cells as far as a precision can be promised
    satl.predict(run, ["new.jpg"])                probabilities and decisions for new images

A table is a path, a pandas or polars frame, an Arrow table, a Hugging Face or a torch data set. Beside them:

    LabelTable, read_table, write_table, mask_table, read_dataset     what is known, and files of it
    Recogniser                                                        the trained network of a run
    Tracker                                                           is told the metrics of a training
    evaluate_scores, ThresholdCompleter                               for the scores of any model
    SATLLoss, SemanticAwareThreshold, LinearDecayThreshold,
    PartialBCELoss, DifferentialRankingLoss                           for a training loop of your own

Everything else is in the modules below (``help(satl.labels)``) and in docs/python.md. Each name is loaded when it is
first used, so that ``import satl`` costs nothing.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

# What help(satl) spells out: the calls. Of classes it would print every inherited method.
__all__ = ["complete", "evaluate", "predict", "train"]
