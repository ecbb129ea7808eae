//! Progress of a sweep on standard error: a live table of states on a terminal, elsewhere a line
//! when a cell starts or ends.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use results::Tone;

use crate::colour::{self, Text};
use crate::error::Class;
use crate::stderr;
use crate::sweep::job::{Failure, Job};
use crate::sweep::plan::{Cell, Refused};
use crate::sweep::scheduler::State;
use crate::sweep::time_left::TimeLeft;
use crate::timing::human_duration;

/// Shows the progress of a sweep.
pub struct ProgressDisplay {
    live: Option<ProgressBar>,
    quiet: bool,
    drawn: Option<Instant>,
    began: Instant,
    announced: Vec<usize>,
    /// Runs at a time.
    jobs: usize,
    time_left: TimeLeft,
}

/// Time between two drawings.
const PERIOD: Duration = Duration::from_millis(500);

impl ProgressDisplay {
    /// Creates a display; `quiet` shows failures only.
    pub fn new(quiet: bool) -> ProgressDisplay {
        let live = stderr::is_interactive() && !quiet;
        let style = || {
            ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        ProgressDisplay {
            live: live.then(|| ProgressBar::new_spinner().with_style(style())),
            quiet,
            drawn: None,
            began: Instant::now(),
            announced: Vec::new(),
            jobs: 1,
            time_left: TimeLeft::default(),
        }
    }

    /// Returns this display with planned times of the cells.
    pub fn with_plan(self, time_left: TimeLeft) -> ProgressDisplay {
        ProgressDisplay { time_left, ..self }
    }

    /// Reports that the sweep begins, with so many runs at a time.
    pub fn begin(&mut self, cells: &[Cell], states: &[State], jobs: usize) {
        self.began = Instant::now();
        self.jobs = jobs;
        let over = states.iter().filter(|state| state.is_over()).count();
        let is_changed = |state: &&State| matches!(state, State::Changed(_));
        let changed = states.iter().filter(is_changed).count();
        let mut line = format!("cells: {}, on file: {}", cells.len(), over - changed);
        if changed > 0 {
            line += &format!(", changed since: {changed}");
        }
        self.say(&line);
    }

    /// Reports, quiet or not, that another process works on a cell.
    pub fn waits(&self, cell: &Cell) {
        let line = format!(
            "{}: another process is at work on it; waiting",
            cell.title()
        );
        match &self.live {
            Some(bar) => bar.suspend(|| stderr::line(line)),
            None => stderr::line(line),
        }
    }

    /// Reports that a cell has ended; `took` is given if it ran here.
    pub fn ended(
        &mut self,
        cells: &[Cell],
        states: &[State],
        index: usize,
        took: Option<Duration>,
    ) {
        let over = states.iter().filter(|state| state.is_over()).count();
        let place = format!("[{over}/{}]", cells.len());
        let title = cells[index].title();
        let mut time = took.map_or(" elsewhere".to_owned(), |took| {
            format!(" in {}", human_duration(took))
        });
        if let Some(took) = took {
            self.time_left.ended(index, took);
            if states[index].is_over() {
                time += &self.left(states, Duration::ZERO);
            }
        }
        match &states[index] {
            State::Scored { record, .. } => {
                let accuracy = record.test_accuracy().map_or(String::new(), |accuracy| {
                    format!(": {:.2} %", 100.0 * accuracy)
                });
                self.say(&format!("{place} {title}{accuracy}{time}"));
            }
            State::Failed(Failure { reason, .. }) => {
                self.alert(&format!("{place} {title}: {reason}"));
            }
            State::Changed(reason) => {
                self.say(&format!(
                    "{place} {title}: on file, but changed since: {reason}"
                ));
            }
            State::Interrupted => self.say(&format!("{place} {title}: interrupted{time}")),
            State::Pending | State::Running | State::Elsewhere => {}
        }
    }

    /// Reports that jobs are being stopped.
    pub fn stopping(&mut self, jobs: usize) {
        self.say(&format!(
            "stopping: waiting for {} to save state",
            results::counted(jobs as u64, "running cell")
        ));
    }

    /// Draws the table of states from time to time; without a terminal, prints what has started.
    pub fn show(&mut self, cells: &[Cell], states: &[State], running: &[Job]) {
        let Some(bar) = &self.live else {
            for job in running {
                if !self.announced.contains(&job.cell) {
                    self.announced.push(job.cell);
                    let title = cells[job.cell].title();
                    self.say(&format!("started {title}, process {}", job.pid()));
                }
            }
            return;
        };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < PERIOD) {
            return;
        }
        self.drawn = Some(Instant::now());
        let mut lines = grid(cells, states, &[]);
        lines.push("".into());
        for job in running {
            let time = human_duration(job.elapsed());
            let title = cells[job.cell].title();
            let progress = job.progress();
            lines.push(sign(&State::Running).and(format!(" {title}, {time}: {progress}")));
        }
        lines.push(
            self.footer(states, running.iter().map(Job::elapsed).sum())
                .into(),
        );
        bar.set_message(colour::joined(lines).on(&std::io::stderr()));
        bar.tick();
    }

    /// Reports that the sweep is over.
    pub fn end(&mut self) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
        }
    }

    fn footer(&self, states: &[State], running: Duration) -> String {
        let over = states.iter().filter(|state| state.is_over()).count();
        let elapsed = human_duration(self.began.elapsed());
        let left = self.left(states, running);
        let all = results::counted(states.len() as u64, "cell");
        format!("{over} of {all}, {elapsed}{left}")
    }

    /// Returns the time left in words, behind a comma; empty if it is not known or nothing is left.
    /// `running` is the time that the cells at work have run for, all together.
    fn left(&self, states: &[State], running: Duration) -> String {
        let left: Vec<usize> = (0..states.len())
            .filter(|index| !states[*index].is_over())
            .collect();
        let time = self.time_left.estimate(&left, running, self.jobs);
        let time = time.filter(|time| !left.is_empty() || !time.is_zero());
        time.map_or(String::new(), |time| {
            format!(", about {} left", human_duration(time))
        })
    }

    fn say(&self, line: &str) {
        match &self.live {
            _ if self.quiet => {}
            Some(bar) => bar.suspend(|| stderr::line(line)),
            None => stderr::line(line),
        }
    }

    /// Prints a failure, quiet or not.
    fn alert(&self, line: &str) {
        let line = stderr::headed(Tone::Bad, "failed:", line);
        match &self.live {
            Some(bar) => bar.suspend(|| stderr::line(line)),
            None => stderr::line(line),
        }
    }
}

/// Returns the symbol of a state.
fn sign(state: &State) -> Text {
    match state {
        State::Scored { fresh: true, .. } => Text::toned(Tone::Good, "✓"),
        State::Scored { fresh: false, .. } => "=".into(),
        State::Failed(..) => Text::toned(Tone::Bad, "✗"),
        State::Changed(_) => "≠".into(),
        State::Interrupted => Text::toned(Tone::Caution, "‖"),
        State::Running => "▸".into(),
        State::Elsewhere => "○".into(),
        State::Pending => "·".into(),
    }
}

/// Returns the legend of the symbols.
pub fn legend() -> Text {
    let failed = || State::Failed(Failure::new(Class::Usage, ""));
    Text::toned(Tone::Good, "✓")
        .and(" scored  = was on file  ≠ changed since  ")
        .and(sign(&failed()))
        .and(" failed\n")
        .and(sign(&State::Interrupted))
        .and(" interrupted  ▸ running  ○ at work elsewhere  · not begun")
}

/// Returns the states as a table: models by tasks, a sign per seed. What cannot be built has
/// failed.
pub fn grid(cells: &[Cell], states: &[State], refused: &[Refused]) -> Vec<Text> {
    let several = cells.iter().any(|cell| cell.recipe != cells[0].recipe);
    let column = |column: String, recipe: &str| match several {
        true => format!("{column} ({recipe})"),
        false => column,
    };
    let run = cells.iter().zip(states).map(|(cell, state)| {
        let column = column(cell.column(), &cell.resolved.spec.cell.recipe);
        (column, cell.model.to_string(), sign(state))
    });
    let failed = sign(&State::Failed(Failure::new(Class::Usage, "")));
    let refused = refused.iter().map(|it| {
        let column = column(it.column.clone(), &it.recipe);
        (column, it.model.to_string(), failed.clone())
    });
    let entries: Vec<(String, String, Text)> = run.chain(refused).collect();
    let (mut columns, mut models) = (Vec::new(), Vec::new());
    for (column, model, _) in &entries {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
        if !models.contains(model) {
            models.push(model.clone());
        }
    }
    let signs = |model: &str, wanted: &str| -> Vec<&Text> {
        let mine = entries.iter();
        mine.filter(|(column, of, _)| of == model && column == wanted)
            .map(|(_, _, sign)| sign)
            .collect()
    };
    let width = |text: &str| text.chars().count();
    let first = models.iter().map(|model| width(model)).max().unwrap_or(0);
    let mut head = " ".repeat(first);
    let mut rows: Vec<Text> = models.iter().map(|model| model.into()).collect();
    // Blanks that are due before the next sign of a row.
    let mut due: Vec<usize> = models.iter().map(|model| first - width(model)).collect();
    for column in &columns {
        let signs: Vec<Vec<&Text>> = models.iter().map(|model| signs(model, column)).collect();
        let widest = signs.iter().map(Vec::len).max().unwrap_or(0);
        let widest = widest.max(width(column));
        head += &format!("  {column:widest$}");
        for ((row, due), signs) in rows.iter_mut().zip(&mut due).zip(&signs) {
            *due += 2;
            if !signs.is_empty() {
                *row = std::mem::take(row).and(" ".repeat(*due));
                *due = 0;
            }
            for sign in signs {
                *row = std::mem::take(row).and((*sign).clone());
            }
            *due += widest - signs.len();
        }
    }
    let mut lines = vec![head.trim_end().into()];
    lines.append(&mut rows);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_choice::ModelChoice;
    use crate::sweep::testing::{bag, cells, scored};

    /// Returns two seeds of two models, and a state of each.
    fn sweep() -> (Vec<Cell>, [State; 4]) {
        let linear = ModelChoice {
            model: "linear",
            ..bag(&[])
        };
        let states = [
            scored(0.5, 1.0),
            State::Changed("other data".to_owned()),
            State::Interrupted,
            State::Failed(Failure::new(Class::Run, "diverged")),
        ];
        (cells(vec![bag(&[]), linear], vec![0, 1]), states)
    }

    #[test]
    fn signs_are_in_the_row_of_their_model_and_the_column_of_their_task() {
        let (cells, states) = sweep();
        let file = tempfile::tempfile().unwrap();
        let shown = |refused: &[Refused]| colour::joined(grid(&cells, &states, refused)).on(&file);
        assert_eq!(shown(&[]), "        toy\nbag     ✓≠\nlinear  ‖✗");
        let refused = Refused {
            column: "text".to_owned(),
            task: "text".parse().unwrap(),
            model: cells[2].model.clone(),
            recipe: "smoke".to_owned(),
            seed: 0,
            reason: "too long".to_owned(),
        };
        assert_eq!(
            shown(&[refused]),
            "        toy  text\nbag     ✓≠\nlinear  ‖✗   ✗"
        );
    }

    #[test]
    fn the_footer_counts_what_is_over_and_has_the_time_of_the_rest() {
        let (_, states) = sweep();
        let seconds = Duration::from_secs;
        let planned = vec![Some(seconds(10)); 4];
        let time_left = TimeLeft::planned(planned, Duration::ZERO);
        let mut display = ProgressDisplay::new(true).with_plan(time_left);
        let footer = display.footer(&states, seconds(4));
        assert!(footer.starts_with("3 of 4 cells, "), "{footer}");
        assert!(footer.ends_with(", about 6 s left"), "{footer}");
        // It took twice as long as planned, as those that are left will.
        display.time_left.ended(0, seconds(20));
        assert_eq!(display.left(&states, seconds(4)), ", about 16 s left");
        let over = [0.5; 4].map(|accuracy| scored(accuracy, 1.0));
        assert_eq!(display.left(&over, Duration::ZERO), "");
    }
}
