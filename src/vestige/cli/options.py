"""The settings classes and the options that several commands share."""

from vestige.cli.command import Part
from vestige.evals import EVALS

SOURCE = Part(
    "vestige.data.corpus:SourceSettings",
    "Data",
    first=("question_key", "answer_key", "edge_key", "group_key", "limit"),
    # `--config` is the file of options, so that the hub's configurations go by another name.
    renamed={"data": "", "config": "data_config"},
)
TRAINING = Part(
    "vestige.training.settings:TrainingSettings",
    "Training",
    first=("learning_rate", "epochs", "batch_size", "max_steps", "schedule", "lora_rank"),
    panels={"lora_": "LoRA"},
)
UNLEARNING = TRAINING._replace(home="vestige.training.settings:UnlearningSettings")
EVALUATIONS = tuple(Part(home, f"Evaluation {name}", name) for name, home in EVALS.items())
