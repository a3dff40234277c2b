"""Examples of each command, below its help; a test runs each of them."""

EXAMPLES = {
    "train": (
        "marginctl train mnist",
        "marginctl train --data cifar-100 --model resnet18 --objective soft --objective arcface",
        "marginctl train temperature/smoke --set train.epochs=2 --dry-run",
    ),
    "cosify": (
        "marginctl cosify --from efficientnet-lite0 --data folder:PATH",
        "marginctl cosify temperature/cosify-smoke --dry-run",
    ),
    "transfer": (
        "marginctl transfer --from efficientnet-lite0 --data folder:PATH",
        "marginctl transfer --from runs --data digits --method probe --method fine-tune",
    ),
    "eval": (
        "marginctl eval RUN",
        "marginctl eval efficientnet-lite0 --data folder:PATH",
        "marginctl eval RUN --ood far=fashion-mnist --json",
    ),
    "calibrate": (
        "marginctl calibrate RUN",
        "marginctl calibrate outputs.npz --method temperature --method vector",
    ),
    "uci-cv": (
        "marginctl uci-cv",
        "marginctl uci-cv --dataset iris --objective soft --objective arcgrad:scale=5",
        "marginctl uci-cv --csv mine.csv --target kind",
    ),
    "predict": (
        "marginctl predict mine.safetensors new.csv",
        "marginctl predict mine.safetensors new.csv --json",
    ),
    "report": (
        "marginctl report runs",
        "marginctl report runs --format html --output report.html",
        "marginctl report runs --paper arcgrad --table I --format latex",
    ),
    "doctor": ("marginctl doctor",),
    "recipes": (
        "marginctl recipes list",
        "marginctl recipes keys train",
        "marginctl recipes copy arcgrad/table1 mine.yaml",
    ),
    "runs": ("marginctl runs list", "marginctl runs remove runs --checkpoints --yes"),
    "data": ("marginctl data list", "marginctl data verify iris"),
    "objectives": (
        "marginctl objectives list --parts",
        "marginctl objectives show arcface:scale=20,margin=0.1",
    ),
    "bench": ("marginctl bench", "marginctl bench --quick", "marginctl bench probe"),
}


def epilog(command: str) -> str:
    """Return the examples of a command; the first line keeps click from joining the others."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in EXAMPLES[command])))
