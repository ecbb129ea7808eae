//! Plan of reproducing a published cell: requirements, known differences and cost.

use std::path::PathBuf;
use std::time::Duration;

use datasets::{Split, Store};
use results::published::ACCURACY;
use results::site::Floor;
use results::table::or_null;
use results::{width, wrap};
use serde_json::{Value, json};

use crate::cli::parse::Seeds;
use crate::estimate::planned_rows;
use crate::milestone::Milestone;
use crate::repro::cell::PublishedCell;
use crate::spec::Resolved;
use crate::sweep::estimator::Estimate;
use crate::timing::human_duration;

/// Plan of a reproduction.
pub struct Plan {
    /// The cell.
    pub cell: PublishedCell,
    /// The settings of a run.
    pub resolved: Resolved,
    /// Time and memory of one seed here, or the reason why they are not known.
    pub estimate: Result<Estimate, String>,
    /// The seeds.
    pub seeds: Seeds,
    /// Data directory.
    pub data: PathBuf,
    /// Bytes of memory that a run may use here, as far as known.
    pub memory: Option<u64>,
}

impl Plan {
    /// Returns every known difference between the published run and the run here.
    pub fn differences(&self) -> Vec<String> {
        let resolved = &self.resolved;
        let mut all = resolved.departures();
        let (variant, cell) = (resolved.variant.name, &resolved.spec.cell);
        // A recipe sets the variant that its source has.
        let layers = resolved
            .recipe
            .layers(&cell.task, &cell.model, resolved.family);
        let by_recipe = layers.is_ok_and(|layers| layers.set("model", "variant"));
        if !resolved.has_default_variant()
            && !by_recipe
            && !self.cell.source.key.starts_with(variant)
        {
            all.push(format!("variant {variant}"));
        }
        all.extend(self.resolved.recipe_of_record().split_statistics());
        all
    }

    fn milestones(&self) -> Vec<Milestone> {
        let (rows, complete) = planned_rows(&self.resolved, &self.data);
        match complete {
            true => self.resolved.milestones(rows.train),
            false => Vec::new(),
        }
    }

    /// Returns the origin of the data: the stored data, or the way to get them.
    fn data(&self) -> Data {
        let store = Store::new(&self.data);
        let (task, key) = (self.resolved.task, self.resolved.spec.data_key());
        match store.open(task, &key) {
            Ok(splits) => Data::Stored([&splits.train, &splits.val, &splits.test].map(Split::len)),
            Err(_) if key.source == datasets::Source::Generated => Data::Drawn,
            Err(error) => Data::Missing(error),
        }
    }

    /// Returns the plan as text for people.
    pub fn text(&self) -> String {
        let PublishedCell {
            source,
            figure,
            recipe,
        } = &self.cell;
        let mut lines = Lines::default();
        lines.add(
            "published",
            &format!(
                "{} on {}: {}{}, {} ({}, {})",
                figure.model,
                figure.task,
                figure.text(),
                if figure.value.is_some() { " %" } else { "" },
                source.alias,
                source.key,
                source.year
            ),
        );
        lines.add(
            "read in",
            &format!("{}: {}", figure.source, figure.trust.words()),
        );
        lines.add("defect", &figure.defect);
        lines.add("remark", &figure.notes);
        lines.add("trivial", &self.trivial().unwrap_or_default());
        let settings = &self.resolved.spec.cell;
        lines.add(
            "here",
            &format!(
                "model {} ({}), recipe {recipe}, protocol {}, source {}, seed {}",
                figure.entry,
                self.resolved.variant.name,
                settings.protocol,
                settings.source,
                self.seeds
            ),
        );
        lines.add("follows", &self.resolved.recipe.body.source);
        lines.add("data", &self.data().text());
        for difference in self.differences() {
            lines.add("departs", &difference);
        }
        for it in self.milestones() {
            let percent = 100.0 * it.accuracy;
            lines.add(
                "milestone",
                &format!("{percent:.1} % by update {} ({})", it.step, it.whose),
            );
        }
        lines.add("cost", &self.cost());
        lines.add("verdict", &self.too_few_seeds().unwrap_or_default());
        lines.add("memory", &self.too_large().unwrap_or_default());
        lines.text
    }

    /// Returns the best trivial predictor on the data of the cell, as far as it was measured.
    fn floor(&self) -> Option<&'static Floor> {
        let length = self.resolved.data_shape().ok()?.max_length;
        results::site::best_floor(&self.cell.figure.task, length)
    }

    /// Returns [`Plan::floor`] in words, with a word on a figure that is no better.
    fn trivial(&self) -> Option<String> {
        let figure = self.cell.figure;
        let floor = self.floor()?;
        let words = format!(
            "{:.2} % by {} ({})",
            floor.accuracy, floor.predictor, floor.data
        );
        let value = figure.value.filter(|_| figure.metric == ACCURACY);
        Some(match value.is_some_and(|value| value <= floor.accuracy) {
            true => format!("{words}; the published figure is no better"),
            false => words,
        })
    }

    fn cost(&self) -> String {
        let count = self.seeds.0.len();
        match &self.estimate {
            Ok(it) => {
                let all = u32::try_from(count).map_or(Duration::MAX, |n| it.time.saturating_mul(n));
                let together = match count {
                    1 => String::new(),
                    _ => format!(", {} for {count} seeds", human_duration(all)),
                };
                let gib = it.peak_bytes as f64 / (1u64 << 30) as f64;
                format!(
                    "about {} per seed{together}, {gib:.2} GiB of memory, {} of disk beside the data; known from {}{}",
                    human_duration(it.time),
                    mib(self.disk()),
                    it.basis,
                    it.load
                )
            }
            Err(reason) => format!("not known: {reason}"),
        }
    }

    /// Returns a sentence if the seeds are too few for the verdict `reproduced`.
    fn too_few_seeds(&self) -> Option<String> {
        let (source, figure) = (self.cell.source, self.cell.figure);
        let (rows, _) = planned_rows(&self.resolved, &self.data);
        let margin = results::equivalence::margin(source, figure);
        let least = results::equivalence::least_seeds(figure.value?, margin, rows.test)?;
        let count = self.seeds.0.len();
        let seeds = results::counted(count as u64, "seed");
        (count < least).then(|| {
            format!(
                "{seeds} cannot end in `reproduced`: on {} test rows the interval of fewer than {least} seeds is too wide",
                results::grouped(rows.test as u64)
            )
        })
    }

    /// Returns a sentence if a run needs more memory than there is.
    pub fn too_large(&self) -> Option<String> {
        let (estimate, most) = (self.estimate.as_ref().ok()?, self.memory?);
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        (estimate.peak_bytes > most).then(|| {
            format!(
                "{:.2} GiB are more than the {:.2} GiB that a run may use here; --micro-batch N takes less",
                gib(estimate.peak_bytes),
                gib(most)
            )
        })
    }

    /// Returns the bytes of a run folder without logs: weights, two moments of each, the best
    /// weights.
    fn disk(&self) -> u64 {
        let meta = self.resolved.meta();
        meta.map_or(0, |(_, sizes)| 16 * sizes.elements() as u64)
    }

    /// Returns the plan as JSON for machines.
    pub fn json(&self) -> Value {
        let PublishedCell {
            source,
            figure,
            recipe,
        } = &self.cell;
        let estimate = self.estimate.as_ref();
        let floor = self.floor();
        let milestones: Vec<Value> = self
            .milestones()
            .into_iter()
            .map(|it| json!({"step": it.step, "accuracy": it.accuracy, "whose": it.whose}))
            .collect();
        let settings = &self.resolved.spec.cell;
        json!({
            "source": source.alias,
            "key": source.key,
            "year": source.year,
            "task": figure.task,
            "model": figure.entry,
            "published": figure.value,
            "missing": figure.missing_word(),
            "read_in": or_null(&figure.source),
            "trust": figure.trust.words(),
            "defect": or_null(&figure.defect),
            "notes": or_null(&figure.notes),
            "trivial": floor.map(|it| &it.predictor),
            "trivial_percent": floor.map(|it| it.accuracy),
            "trivial_data": floor.map(|it| &it.data),
            "recipe": recipe,
            "follows": or_null(&self.resolved.recipe.body.source),
            "variant": self.resolved.variant.name,
            "protocol": settings.protocol,
            "data_source": settings.source,
            "data": self.data().json(),
            "seeds": self.seeds.0,
            "departures": self.differences(),
            "milestones": milestones,
            "seconds_per_seed": estimate.ok().map(|it| it.time.as_secs_f64()),
            "peak_bytes": estimate.ok().map(|it| it.peak_bytes),
            "memory_bytes": self.memory,
            "disk_bytes": self.disk(),
            "basis": estimate.map_or_else(Clone::clone, |it| it.basis.clone()),
        })
    }
}

/// The state of the data of a plan.
enum Data {
    /// Stored, with these numbers of examples in train, val and test.
    Stored([usize; 3]),
    /// Drawn by the first run.
    Drawn,
    /// Not here; the error names the command that helps.
    Missing(datasets::Error),
}

impl Data {
    fn text(&self) -> String {
        match self {
            Data::Stored(rows) => {
                let [train, val, test] = rows.map(|rows| results::grouped(rows as u64));
                format!("{train} / {val} / {test} examples, at hand")
            }
            Data::Drawn => "drawn when it is first used".to_owned(),
            Data::Missing(error) => error.to_string(),
        }
    }

    fn json(&self) -> Value {
        let (state, rows, command) = match self {
            Data::Stored(rows) => ("at hand", rows.map(Some), None),
            Data::Drawn => ("drawn when it is first used", [None; 3], None),
            Data::Missing(error) => {
                let command = match error {
                    datasets::Error::Missing { command, .. } => Some(command.as_str()),
                    _ => None,
                };
                ("not here", [None; 3], command)
            }
        };
        let [train, val, test] = rows;
        let reason = match self {
            Data::Missing(error) => Some(error.to_string()),
            Data::Stored(_) | Data::Drawn => None,
        };
        json!({
            "state": state,
            "train": train,
            "val": val,
            "test": test,
            "command": command,
            "reason": reason,
        })
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", (bytes as f64 / (1u64 << 20) as f64).ceil())
}

/// Folded lines, each with a name and words.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    /// Adds as many lines as `words` needs, under one name.
    fn add(&mut self, name: &str, words: &str) {
        const INDENT: usize = 11;
        for (nth, line) in words.lines().enumerate() {
            let name = if nth == 0 { name } else { "" };
            let line = wrap(line.trim(), width(), INDENT, INDENT);
            self.text += &format!("{name:<INDENT$}{line}\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use datasets::Protocol;

    use super::*;
    use crate::repro::cell::{self, Selection};

    /// Checks the output of `--dry-run`, without the measurement.
    #[test]
    fn every_published_cell_has_a_plan() {
        for cell in cell::all().unwrap() {
            let (recipe, place) = (cell.recipe, format!("{:?}", cell.figure));
            let plan = Plan {
                resolved: cell.resolve(Protocol::Tay2021, &[]).unwrap(),
                estimate: Err("not measured".to_owned()),
                seeds: Seeds(vec![0, 1]),
                data: PathBuf::from("no data"),
                memory: None,
                cell,
            };
            let text = plan.text();
            let fits = text.lines().all(|line| line.chars().count() <= width());
            assert!(fits && text.contains(recipe), "{place}: {text}");
            let json = plan.json();
            assert_eq!(json["recipe"], recipe, "{place}");
            // Machines get what people do.
            let figure = plan.cell.figure;
            assert_eq!(json["source"], plan.cell.source.alias, "{place}");
            assert_eq!(json["published"].is_null(), json["missing"].is_string());
            assert_eq!(json["notes"].is_null(), figure.notes.is_empty());
            for key in ["variant", "data_source", "disk_bytes", "follows"] {
                assert!(!json[key].is_null(), "{place}: {key}");
            }
            assert!(json["data"]["state"].is_string());
            let label = plan.resolved.data_shape().unwrap().label;
            let task = plan.resolved.task.info().name;
            assert!(
                results::published::is_published_label(&label, task),
                "{label} is not comparable with {task}"
            );
        }
    }

    fn plan(source: &str, task: &str, model: &str, assignments: &[String]) -> Plan {
        let selection = Selection::of(Some(source), None).unwrap();
        let cell = PublishedCell::find(&selection, task, model).unwrap();
        Plan {
            resolved: cell.resolve(Protocol::Tay2021, assignments).unwrap(),
            estimate: Err("not measured".to_owned()),
            seeds: Seeds(vec![0]),
            data: PathBuf::from("no data"),
            memory: None,
            cell,
        }
    }

    /// A variant that the recipe sets is what its source computes.
    #[test]
    fn the_variant_of_a_recipe_is_no_departure() {
        let plan = plan("chordmixer", "text", "chordmixer", &[]);
        assert_eq!(plan.resolved.variant.name, "padded");
        let differences = plan.differences();
        let any = differences.iter().any(|it| it.contains("variant"));
        assert!(!any, "{differences:?}");
    }

    /// BatchNorm's statistics are those of a micro-batch, and other norms do not see it.
    #[test]
    fn micro_batches_are_a_departure_where_batch_norm_is() {
        for (source, model, size, is_named) in [
            ("s5", "s5", 5, true),
            ("nystromformer", "linformer", 4, false),
        ] {
            let assignments = [format!("train.micro_batch={size}")];
            let differences = plan(source, "image", model, &assignments).differences();
            let said = "BatchNorm's statistics are over 5 examples instead of 50";
            let named = differences.iter().any(|it| it.contains(said));
            assert_eq!(named, is_named, "{differences:?}");
        }
    }

    #[test]
    fn a_published_figure_no_better_than_a_trivial_one_is_told() {
        let text = plan("tay2021", "listops", "performer", &[]).text();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains(
                "34.60 % by first token only (drawn as published); the published figure is no better"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_plan_that_needs_too_much_memory_says_so() {
        let mut plan = plan("tay2021", "listops", "performer", &[]);
        plan.estimate = Ok(Estimate {
            time: Duration::from_secs(60),
            peak_bytes: 9 << 30,
            basis: "a test".to_owned(),
            load: String::new(),
        });
        plan.memory = Some(16 << 30);
        assert!(!plan.text().contains("may use here"));
        plan.memory = Some(8 << 30);
        let text = plan.text();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("9.00 GiB are more than the 8.00 GiB that a run may use here"),
            "{text}"
        );
    }
}
