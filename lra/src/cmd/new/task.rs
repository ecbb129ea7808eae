//! `lra new task`: the crate of a custom task, one example for each kind of labels.

use super::{Files, Kind, camel_case, renamed};
use crate::cli::TaskKind;

const LABELS: Kind = kind(
    "last_marker",
    include_str!("../../../examples/own_task/labels.rs"),
);
const POSITIONS: Kind = kind(
    "markers_so_far",
    include_str!("../../../examples/own_task/positions.rs"),
);
const PAIRS: Kind = kind(
    "equal_markers",
    include_str!("../../../examples/own_task/pairs.rs"),
);

const fn kind(name: &'static str, example: &'static str) -> Kind {
    Kind {
        noun: "task",
        end: "task",
        usual: "my_task",
        example,
        name,
    }
}

/// Returns the example of a kind of labels.
pub(super) fn of(kind: TaskKind) -> &'static Kind {
    match kind {
        TaskKind::Labels => &LABELS,
        TaskKind::Positions => &POSITIONS,
        TaskKind::Pairs => &PAIRS,
    }
}

/// Returns a name as a title: `my_task` as `My task`.
pub(super) fn title(name: &str) -> String {
    let words = name.replace('_', " ");
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Returns the files of a task's crate, and what is told of it, with `@` for the folder.
pub(super) fn files(kind: &Kind, name: &str) -> (Files, String) {
    let code = renamed(kind, name).replace(&title(kind.name), &title(name));
    let mut code = code;
    for file in ["labels.rs", "positions.rs", "pairs.rs"] {
        code = code.replace(&format!("\"{file}\""), "\"task.rs\"");
    }
    let program = format!(
        "//! `lra` plus one task: {name}.\n\nmod task;\n\nuse std::process::ExitCode;\n\n\
         fn main() -> ExitCode {{\n    let own = lra::Own {{\n        tasks: &[&task::{}],\n        ..lra::Own::default()\n    }};\n    \
         lra::main_of(lra::this_crate!(), own)\n}}\n",
        camel_case(name)
    );
    let commands = [
        (
            format!("data show {name}"),
            "an example and the trivial baselines",
        ),
        (
            format!("check-task {name}"),
            "tests seeds, splits, labels, lengths",
        ),
        (
            format!("run --task {name} --model s4d"),
            "one model, one score",
        ),
        (
            format!("sweep --tasks {name} --models s4d,transformer,bag --seeds 0..3"),
            "a table",
        ),
    ];
    let lines = commands
        .iter()
        .map(|(command, remark)| format!("cargo run --release -- {command}    # {remark}\n"));
    let readme = format!(
        "# {name}\n\nA task of your own for the Long Range Arena: `lra` plus one task.\n\n```sh\n{}cargo test\n```\n\n\
         `src/task.rs` is the whole task: the description, the options, the generation of examples.\n",
        lines.collect::<String>()
    );
    let told = commands.iter().take(3);
    let told = told.map(|(command, _)| format!("\n  cargo run --release -- {command}"));
    let told = format!(
        "the task is src/task.rs\n\n  cd @{}",
        told.collect::<String>()
    );
    let files = vec![
        ("src/main.rs", program),
        ("src/task.rs", code),
        ("README.md", readme),
    ];
    (files, told)
}
