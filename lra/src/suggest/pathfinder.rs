//! Names of Pathfinder's sets in public code: size and difficulty behind one of several words.

use super::{Guess, fold};

/// Words for the task.
const NAMES: [&str; 3] = ["pathfinder", "path", "pf"];
/// Lengths of a side of the published pictures, in pixels.
const SIZES: [&str; 4] = ["32", "64", "128", "256"];
/// Difficulties, each with its other names: those of the folders of the published sets.
const DIFFICULTIES: [(&str, &[&str]); 3] = [
    ("hard", &["", "hard", "curvcontourlength14"]),
    (
        "intermediate",
        &["inter", "intermediate", "curvcontourlength9"],
    ),
    ("easy", &["easy", "curvbaseline"]),
];

/// Returns the task of one of Pathfinder's sets, and the settings that make it.
pub(super) fn explained(name: &str) -> Option<Guess> {
    let (task, settings) = parsed(name)?;
    Some(Guess {
        names: vec![task.to_owned()],
        note: match settings.is_empty() {
            true => String::new(),
            false => format!("with {}", settings.join(" ")),
        },
    })
}

/// Returns the task that a name says, and the assignments to the settings of its data, as words for
/// the command line.
pub(super) fn parsed(name: &str) -> Option<(&'static str, Vec<String>)> {
    let folded = fold(name);
    let name = folded.strip_prefix("lra").unwrap_or(&folded);
    let rest = NAMES.iter().find_map(|of| name.strip_prefix(of))?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (size, rest) = rest.split_at(digits);
    if !size.is_empty() && !SIZES.contains(&size) {
        return None;
    }
    let known = DIFFICULTIES.iter().find(|(_, names)| names.contains(&rest));
    let difficulty = known?.0;
    if (size, difficulty) == ("128", "hard") {
        return Some(("pathx", Vec::new()));
    }
    let settings = [
        ("size", size, ["", "32"]),
        ("difficulty", difficulty, ["", "hard"]),
    ];
    let other = settings
        .into_iter()
        .filter(|(_, value, usual)| !usual.contains(value));
    let words = other.map(|(key, value, _)| format!("--set data.{key}={value}"));
    Some(("pathfinder", words.collect()))
}
