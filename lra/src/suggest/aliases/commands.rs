//! Names of commands in other programs.

use super::{Alias, near, same};

/// Commands, each with the one to use instead.
pub(in crate::suggest) const COMMANDS: &[Alias] = &[
    same(
        &["run"],
        &["train", "fit", "start", "launch", "train.py", "run_train"],
    ),
    near(
        &["score"],
        &[
            "eval",
            "evaluate",
            "test",
            "predict",
            "validate",
            "infer",
            "inference",
        ],
        "a run scores its test split at its end; `lra score RUN` scores its weights again, on any split",
    ),
    same(&["explain"], &["analyze", "analyse", "errors", "confusion"]),
    near(
        &["run"],
        &["resume", "continue"],
        "`lra run ... --resume` continues from the last checkpoint",
    ),
    near(
        &["run"],
        &["retrain", "rerun", "redo"],
        "`lra run ... --force` trains a finished run again, `lra replay RUN` compares its scores, too",
    ),
    near(
        &["run"],
        &["pretrain", "pretraining"],
        "`lra run ... --pretrain masked`",
    ),
    same(
        &["data fetch"],
        &[
            "download",
            "get",
            "pull",
            "fetch",
            "install-data",
            "download-data",
        ],
    ),
    same(
        &["data make"],
        &[
            "generate",
            "prepare",
            "preprocess",
            "build",
            "make",
            "create",
            "import",
            "make-data",
            "create-datasets",
        ],
    ),
    same(
        &["data verify"],
        &[
            "verify",
            "checksum",
            "validate-data",
            "check",
            "test",
            "validate",
        ],
    ),
    same(
        &["data show"],
        &["inspect", "view", "peek", "sample", "examples", "stats"],
    ),
    near(
        &["data show"],
        &["show"],
        "`lra list` shows tasks, models and recipes, `lra report` results",
    ),
    same(
        &["bench"],
        &[
            "benchmark",
            "profile",
            "speed",
            "efficiency",
            "perf",
            "timing",
        ],
    ),
    same(
        &["sweep"],
        &[
            "grid", "search", "tune", "hparams", "sweeps", "run-all", "matrix", "multirun",
        ],
    ),
    same(
        &["report"],
        &[
            "table",
            "tables",
            "results",
            "summary",
            "summarize",
            "summarise",
            "plot",
            "plots",
            "leaderboard",
            "export",
        ],
    ),
    same(
        &["repro"],
        &["reproduce", "replicate", "reproduction", "paper"],
    ),
    same(&["check"], &["regress", "regression", "baseline"]),
    same(
        &["list"],
        &[
            "models",
            "tasks",
            "recipes",
            "devices",
            "components",
            "axes",
            "published",
            "settings",
            "options",
            "sources",
            "info",
            "ls",
        ],
    ),
    same(&["data list"], &["datasets", "dataset", "ls-data", "ls"]),
    same(&["data show"], &["info"]),
    same(
        &["check-model"],
        &["test-model", "verify-model", "checkmodel", "grad-check"],
    ),
    same(
        &["check-task"],
        &["test-task", "verify-task", "checktask", "check-data"],
    ),
    same(
        &["new task"],
        &[
            "add-task",
            "new-task",
            "new-dataset",
            "add-dataset",
            "dataset",
            "data",
        ],
    ),
    same(
        &["new model"],
        &["init", "add-model", "scaffold", "template", "new-model"],
    ),
    same(&["completions"], &["completion", "autocomplete"]),
    same(&["man"], &["manual", "docs"]),
];

/// Lists of `lra list`, each with the name to use instead.
pub(in crate::suggest) const LISTS: &[Alias] = &[
    same(&["tasks"], &["datasets", "dataset", "data", "benchmarks"]),
    same(
        &["recipes"],
        &["configs", "config", "configurations", "experiments"],
    ),
    same(
        &["published"],
        &[
            "results",
            "figures",
            "leaderboards",
            "leaderboard",
            "papers",
            "sources",
        ],
    ),
    same(&["settings"], &["options", "hyperparameters", "hparams"]),
];
