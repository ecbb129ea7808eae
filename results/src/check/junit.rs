//! A check as JUnit XML, which continuous integration servers show as tests.

use super::aspect::{Aspect, Finding};
use super::judge::{Check, State};
use crate::markup::escaped;

/// Writes one test case per cell. Its class is the task; its name is the model with the settings of
/// its runs.
pub fn junit(check: &Check) -> String {
    let empty = check.nothing_compared();
    let failed = check.cells.iter().filter(|cell| cell.state.fails()).count();
    let failures = failed + usize::from(empty.is_some());
    let skipped = check
        .cells
        .iter()
        .filter(|cell| cell.state == State::New)
        .count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"lra check\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\">\n",
        check.cells.len() + usize::from(empty.is_some())
    );
    if let Some(reason) = empty {
        text += &format!(
            "    <testcase classname=\"baseline\" name=\"has cells\">\n      <failure message=\"{}\"/>\n    </testcase>\n",
            escaped(reason)
        );
    }
    for cell in &check.cells {
        let key = &cell.key;
        let name = [
            &key.model,
            &key.source,
            &key.protocol,
            &key.variant,
            &key.recipe,
            &key.set,
            &key.precision,
            &key.device,
        ];
        let name: Vec<&str> = name
            .into_iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        text += &format!(
            "    <testcase classname=\"{}\" name=\"{}\"",
            escaped(&key.task),
            escaped(&name.join(" "))
        );
        let aspects = Aspect::ALL.iter().zip(&cell.findings);
        let details: Vec<String> = aspects
            .map(|(aspect, finding)| {
                let sign = if matches!(finding, Finding::Worse(_)) {
                    "! "
                } else {
                    ""
                };
                format!("{}: {sign}{}", aspect.word(), finding.words())
            })
            .chain(cell.remark.clone())
            .collect();
        let details = escaped(&details.join("; "));
        text += &match cell.state {
            State::Regressed | State::Changed | State::Missing => {
                format!(
                    ">\n      <failure message=\"{}: {details}\"/>\n    </testcase>\n",
                    cell.state.word()
                )
            }
            State::New => format!(">\n      <skipped message=\"{details}\"/>\n    </testcase>\n"),
            State::Passed | State::Improved => {
                format!(">\n      <system-out>{details}</system-out>\n    </testcase>\n")
            }
        };
    }
    text + "  </testsuite>\n</testsuites>\n"
}
