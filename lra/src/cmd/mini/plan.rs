//! The plan of a model's runs on the small protocol, and the time that they take.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use results::Record;

use crate::load;
use crate::model_choice::ModelChoice;
use crate::sweep::forecast::Forecast;
use crate::sweep::plan::Cell;
use crate::sweep::time_left::makespan;
use crate::timing::human_duration;

/// A task that is left out, and the reason.
pub type LeftOut = (String, String);

/// Number of stages of a plan, which follow each other.
pub const STAGES: usize = 3;
/// Short runs that find rates.
pub const PROBES: usize = 0;
/// The runs of the card.
pub const OWN: usize = 1;
/// The runs in the block of X-formers.
pub const SAME: usize = 2;

/// The runs of one model.
pub struct Plan {
    /// The model.
    pub model: ModelChoice,
    /// The cells of each stage. Those of the card lack the rates that are yet to be found.
    pub stages: [Vec<Cell>; STAGES],
    /// Tasks that are left out.
    pub left_out: Vec<LeftOut>,
    /// Times of the cells; knows nothing if nothing is to be said.
    pub forecast: Forecast,
}

/// Records on file by the digests of their settings.
pub type OnFile = HashMap<String, Record>;

impl Plan {
    /// Returns the cells of all stages.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.stages.iter().flatten()
    }

    /// Returns the time of the runs from a stage on that are not on file, as far as it is known.
    pub fn time(&self, from: usize, on_file: &OnFile) -> Duration {
        let cells = self.stages[from..].iter().flatten();
        let cells = cells.filter(|cell| !on_file.contains_key(&cell.digest));
        cells.filter_map(|cell| self.forecast.time(cell)).sum()
    }

    /// Appends the lines that tell of the runs that are not on file, and returns the time that they
    /// take, `jobs` at a time. `unknown` has the data sets whose time is not known, each with the
    /// reason.
    pub fn describe(
        &self,
        on_file: &OnFile,
        jobs: usize,
        unknown: &BTreeMap<String, String>,
        lines: &mut Vec<String>,
    ) -> Duration {
        let to_run: Vec<Vec<&Cell>> = self
            .stages
            .iter()
            .map(|cells| {
                let new = |cell: &&Cell| !on_file.contains_key(&cell.digest);
                cells.iter().filter(new).collect()
            })
            .collect();
        let count: usize = to_run.iter().map(Vec::len).sum();
        if count == 0 {
            let known = self.stages.iter().map(Vec::len).sum();
            lines.push(format!(
                "on file    {}: {}, none to do",
                self.model,
                runs(known)
            ));
            return Duration::ZERO;
        }
        let time = |cells: &[&Cell]| -> Duration {
            makespan(
                cells.iter().filter_map(|cell| self.forecast.time(cell)),
                jobs,
            )
        };
        // A stage begins when the one before it has ended.
        let whole: Duration = to_run.iter().map(|cells| time(cells)).sum();
        let takes = match whole.is_zero() {
            true => "of a time that is not known".to_owned(),
            false => format!("about {}", human_duration(whole)),
        };
        lines.push(format!(
            "plan       {}: {}, {takes} with {jobs} at a time, not counting data to make{}",
            self.model,
            runs(count),
            load::remark()
        ));
        let mut columns: Vec<String> = Vec::new();
        for cell in &to_run[OWN] {
            if !columns.contains(&cell.column()) {
                columns.push(cell.column());
            }
        }
        for column in columns {
            let cells = to_run[OWN].iter().filter(|cell| cell.column() == column);
            let cells: Vec<&Cell> = cells.copied().collect();
            let takes = match unknown.get(&column) {
                Some(reason) => format!("of a time that is not known ({reason})"),
                None => format!("about {}", human_duration(time(&cells))),
            };
            lines.push(format!(
                "           {column}: {}, {takes}",
                runs(cells.len())
            ));
        }
        for (stage, what) in [(PROBES, "learning rates"), (SAME, "block of X-formers")] {
            if !to_run[stage].is_empty() {
                let (runs, takes) = (runs(to_run[stage].len()), time(&to_run[stage]));
                let takes = human_duration(takes);
                lines.push(format!("           {what}: {runs}, about {takes}"));
            }
        }
        whole
    }
}

/// Returns a number of runs in words.
fn runs(count: usize) -> String {
    results::counted(count as u64, "run")
}
