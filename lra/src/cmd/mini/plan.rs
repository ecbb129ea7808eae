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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Stop;
    use crate::sweep::estimator::Estimator;
    use crate::sweep::testing::{bag, matrix, options, timed};

    /// Returns a plan of one probe of 986 seconds, three runs of 498 of which the last is on file,
    /// and one run of 254 in the other block; and what is on file.
    fn plan() -> (Plan, OnFile) {
        let of = |model_options: &[&str], seeds| {
            let rows = ["data.train=16", "data.val=4", "data.test=6"];
            let mut matrix = matrix(vec![bag(model_options)], seeds);
            matrix.assignments = rows.map(str::to_owned).to_vec();
            matrix.assignments.push("train.eval_examples=0".to_owned());
            matrix.cells().unwrap()
        };
        let own = of(&[], vec![0, 1, 2]);
        let on_file = OnFile::from([(own[2].digest.clone(), timed(498.0))]);
        let (options, stop) = (options(), Stop::never());
        let mut estimator = Estimator::new(&options, &stop, &own, &on_file);
        let mut forecast = Forecast::new("nowhere".into());
        assert_eq!(forecast.learn(&own[0], &mut estimator).unwrap(), None);
        let probes = of(&["train.steps=40"], vec![0]);
        let plan = Plan {
            model: bag(&[]),
            stages: [probes, own, of(&["train.steps=10"], vec![0])],
            left_out: Vec::new(),
            forecast,
        };
        (plan, on_file)
    }

    #[test]
    fn the_time_is_that_of_the_runs_from_a_stage_on_that_are_not_on_file() {
        let (plan, on_file) = plan();
        let seconds = |from| plan.time(from, &on_file).as_secs_f64().round();
        assert_eq!(seconds(PROBES), 986.0 + 2.0 * 498.0 + 254.0);
        assert_eq!(seconds(OWN), 2.0 * 498.0 + 254.0);
        assert_eq!(seconds(SAME), 254.0);
        assert_eq!(seconds(STAGES), 0.0);
        assert_eq!(plan.time(SAME, &OnFile::new()), plan.time(SAME, &on_file));
    }

    #[test]
    fn stages_follow_each_other_and_the_runs_of_one_are_beside_each_other() {
        let (plan, mut on_file) = plan();
        let column = plan.stages[OWN][0].column();
        let told = |on_file: &OnFile, jobs, unknown: &BTreeMap<_, _>| {
            let mut lines = Vec::new();
            let whole = plan.describe(on_file, jobs, unknown, &mut lines);
            (whole.as_secs_f64().round(), lines)
        };
        let (whole, lines) = told(&on_file, 2, &BTreeMap::new());
        assert_eq!(whole, 986.0 + 498.0 + 254.0);
        let head = "plan       bag: 4 runs, about 28 min 58 s with 2 at a time, not counting";
        assert!(lines[0].starts_with(head), "{}", lines[0]);
        let of_column = format!("           {column}: 2 runs, about 8 min 18 s");
        let others = [
            "           learning rates: 1 run, about 16 min 26 s",
            "           block of X-formers: 1 run, about 4 min 14 s",
        ];
        assert_eq!(lines[1], of_column);
        assert_eq!(lines[2..], others);

        let (whole, lines) = told(&on_file, 1, &BTreeMap::new());
        assert_eq!(whole, 986.0 + 2.0 * 498.0 + 254.0);
        assert!(lines[1].ends_with(": 2 runs, about 16 min 36 s"));
        let unknown = BTreeMap::from([(column, "too slow".to_owned())]);
        let (_, lines) = told(&on_file, 1, &unknown);
        assert!(lines[1].ends_with(": 2 runs, of a time that is not known (too slow)"));

        let digests = plan.cells().map(|cell| cell.digest.clone());
        on_file.extend(digests.map(|digest| (digest, timed(1.0))));
        let (whole, lines) = told(&on_file, 2, &BTreeMap::new());
        assert_eq!(whole, 0.0);
        assert_eq!(lines, ["on file    bag: 5 runs, none to do"]);
    }
}
