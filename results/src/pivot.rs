//! Records arranged in a grid: data sets across, models down.
//!
//! Runs share a cell only if they differ in nothing but the seed. A column is one data set. A row
//! is one model with every dimension that its scores may depend on. Dimensions that are the same in
//! the whole table are stated once. The others become columns, so that no mean hides them. Charts
//! and best values use the same groups.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::published::{model_rank, task_rank};
use crate::record::{OwnCode, Record, SEVERAL};
use crate::table::{Fact, or_null, unique};

/// A setting that distinguishes rows of the same model.
pub(crate) struct Dimension {
    /// Its name, the header of its column.
    pub(crate) name: &'static str,
    /// Its value for a record; empty for the default.
    pub(crate) of: fn(&Record) -> String,
    /// True if only runs that got far enough have a value; others join the row they would have been
    /// in.
    pub(crate) observed: bool,
    /// True if the value is a list of words; words shared by all rows are stated once.
    pub(crate) list: bool,
    /// True if runs that differ in it do not compete: they share neither a chart nor a best value.
    pub(crate) apart: bool,
}

impl Dimension {
    /// Returns a value of it for machines: null for the default, a number where it counts
    /// something.
    fn fact(&self, value: &str) -> Fact {
        let counts = [CORES, THREADS, JOBS].contains(&self.name);
        let count = counts.then(|| value.parse::<u64>().ok());
        let value = count.flatten().map_or_else(|| or_null(value), Value::from);
        (self.name, value)
    }
}

/// The dimensions that are numbers.
pub(crate) const CORES: &str = "cores";
pub(crate) const THREADS: &str = "threads";
pub(crate) const JOBS: &str = "jobs";

/// Dimensions that accuracies depend on.
pub(crate) const TRAINING: &[Dimension] = &[
    Dimension {
        name: "variant",
        observed: false,
        list: false,
        apart: false,
        of: computation,
    },
    Dimension {
        name: "recipe",
        observed: false,
        list: false,
        apart: true,
        of: |record| record.recipe.name.clone(),
    },
    Dimension {
        name: "set",
        observed: false,
        list: true,
        apart: false,
        of: |record| {
            let mut overrides = record.recipe.decisive_overrides();
            overrides.sort_unstable();
            overrides.join(" ")
        },
    },
    Dimension {
        name: "precision",
        observed: false,
        list: false,
        apart: true,
        of: |record| record.provenance.precision.clone(),
    },
    Dimension {
        name: "device",
        observed: false,
        list: false,
        apart: true,
        of: |record| record.provenance.device.clone(),
    },
];

/// Returns the variant of a record's model, and the source of a model of your own: an edit of it
/// is another model.
fn computation(record: &Record) -> String {
    let variant = record.model.departure().map(str::to_owned);
    let own = record.model.own.as_ref();
    let source = own.map(|own| format!("source {}", brief(&own.source)));
    let words: Vec<String> = variant.into_iter().chain(source).collect();
    words.join(", ")
}

/// Further dimension of averages over tasks, whose columns do not name it: the split rules.
pub(crate) const PROTOCOL: &[Dimension] = &[Dimension {
    name: "protocol",
    observed: false,
    list: false,
    apart: true,
    of: |record| record.task.protocol.clone(),
}];

/// Further dimensions of speeds and memory figures: settings that do not affect scores.
pub(crate) const COMPUTING: &[Dimension] = &[Dimension {
    name: "computing",
    observed: false,
    list: true,
    apart: false,
    of: |record| {
        let mut overrides = record.recipe.indifferent_overrides();
        overrides.sort_unstable();
        let own = record.model.own.as_ref();
        overrides.extend(own.and_then(OwnCode::pipe));
        overrides.join(" ")
    },
}];

/// Further dimensions of speeds: the machine.
pub(crate) const MACHINE: &[Dimension] = &[
    Dimension {
        name: "processor",
        observed: false,
        list: false,
        apart: true,
        of: |record| record.provenance.host.cpu.clone(),
    },
    // Processors of different generations have the same name in some clouds.
    Dimension {
        name: "instructions",
        observed: false,
        list: false,
        apart: true,
        of: |record| record.provenance.host.instructions.clone(),
    },
    Dimension {
        name: CORES,
        observed: false,
        list: false,
        apart: true,
        of: |record| match record.provenance.host.cores {
            0 => String::new(),
            cores => cores.to_string(),
        },
    },
    Dimension {
        name: "accelerator",
        observed: false,
        list: false,
        apart: true,
        of: |record| record.provenance.accelerator().to_owned(),
    },
];

/// The further dimension of speeds and memory figures that counts threads.
pub(crate) const THREADING: &[Dimension] = &[Dimension {
    name: THREADS,
    observed: false,
    list: false,
    apart: true,
    // 0 stands for what an older record does not say.
    of: |record| match record.provenance.threads {
        0 => String::new(),
        threads => threads.to_string(),
    },
}];

/// The further dimension of speeds that counts simultaneous runs.
pub(crate) const SHARING: &[Dimension] = &[Dimension {
    name: JOBS,
    observed: false,
    list: false,
    apart: true,
    of: |record| {
        let jobs = record.provenance.jobs;
        jobs.map_or_else(String::new, |jobs| match jobs {
            SEVERAL => "several".to_owned(),
            jobs => jobs.to_string(),
        })
    },
}];

/// Further dimensions of memory figures.
pub(crate) const METHOD: &[Dimension] = &[Dimension {
    name: "method",
    observed: true,
    list: false,
    apart: true,
    of: |record| {
        let memory = record.memory.as_ref();
        memory.map_or_else(String::new, |memory| memory.method.clone())
    },
}];

/// The grid.
pub(crate) struct Pivot<'a> {
    /// Headers of the columns.
    pub(crate) columns: Vec<String>,
    /// Per column: origin of its data.
    pub(crate) origins: Vec<String>,
    /// Per column: the same for machines, in names and values.
    pub(crate) facts: Vec<Vec<Fact>>,
    /// Per column: registry name of its task; empty for a stand-in, a part of the data or altered
    /// data, which are not the task, and for runs that were resumed after changes.
    pub(crate) tasks: Vec<String>,
    /// The rows.
    pub(crate) rows: Vec<PivotRow<'a>>,
    /// Names of the dimensions that differ between rows, in the order of [`PivotRow::varying`].
    pub(crate) varying: Vec<&'static str>,
    /// Dimensions that are the same everywhere, with their values; empty ones are left out.
    pub(crate) constant: Vec<(&'static str, String)>,
    /// Runs left out because the same seed was run again later.
    pub(crate) repeats: usize,
    /// Commits that the runs were made with, changed files marked by `+`, and the models of these
    /// runs.
    pub(crate) revisions: BTreeMap<String, BTreeSet<&'a str>>,
}

/// One model in one setting.
pub(crate) struct PivotRow<'a> {
    /// The model.
    pub(crate) model: &'a str,
    /// Values of its varying dimensions.
    pub(crate) varying: Vec<String>,
    /// Values of all its dimensions, by name.
    pub(crate) setting: Vec<(&'static str, String)>,
    /// The same for machines.
    pub(crate) facts: Vec<Fact>,
    /// Dimensions that separate it from rows that are no rivals.
    pub(crate) apart: Vec<(&'static str, String)>,
    /// Per column: its runs, one per seed, in the order of the seeds.
    pub(crate) cells: Vec<Vec<&'a Record>>,
}

impl PivotRow<'_> {
    /// Returns a word shared by competing rows, which differ only in model, variant and settings.
    pub(crate) fn contest(&self) -> String {
        let values = self.apart.iter().map(|(_, value)| value.as_str());
        values.collect::<Vec<_>>().join("\n")
    }
}

/// Mark of runs that were resumed after accepted changes.
const RESUMED: &str = "resumed after changes";

/// One data set: scores on it answer the same question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Data<'a> {
    rank: usize,
    label: &'a str,
    source: &'a str,
    partial: bool,
    altered: bool,
    /// What is altered, where no digest tells these data from others.
    findings: &'a [String],
    /// Changes that were accepted on the way (see [`Record::changed_on_the_way`]).
    changes: &'a [String],
    protocol: &'a str,
    digest: &'a str,
    task: &'a str,
}

impl<'a> Data<'a> {
    fn of(record: &'a Record) -> Data<'a> {
        let task = &record.task;
        Data {
            rank: task_rank(&task.name),
            label: &task.label,
            source: &task.source,
            partial: task.partial,
            altered: task.altered(),
            findings: match task.data_digest.is_empty() {
                true => &task.altered,
                false => &[],
            },
            changes: &record.provenance.accepted_changes,
            protocol: &task.protocol,
            digest: &task.data_digest,
            task: match task.genuine()
                && !task.partial
                && record.provenance.accepted_changes.is_empty()
            {
                true => &task.name,
                false => "",
            },
        }
    }

    /// Returns the header: the label, important marks, and the facts that distinguish it from other
    /// columns.
    fn header(&self, all: &[Data]) -> String {
        let mut known = vec![];
        if self.source == "synthetic" {
            known.push("synthetic".to_owned());
        }
        if self.partial {
            known.push("partial".to_owned());
        }
        if self.altered {
            known.push("altered".to_owned());
        }
        if !self.changes.is_empty() {
            known.push(RESUMED.to_owned());
        }
        let same_label = || all.iter().filter(|data| data.label == self.label);
        if self.source != "synthetic" && same_label().any(|data| data.source != self.source) {
            known.push(self.source.to_owned());
        }
        if same_label().any(|data| data.protocol != self.protocol) {
            known.push(self.protocol.to_owned());
        }
        if same_label().any(|data| {
            (data.source, data.partial, data.protocol) == (self.source, self.partial, self.protocol)
                && data.altered == self.altered
                && data.changes.is_empty() == self.changes.is_empty()
                && data.digest != self.digest
        }) {
            known.push(format!("data {}", brief(self.digest)));
        }
        match known.is_empty() {
            true => self.label.to_owned(),
            false => format!("{} ({})", self.label, known.join(", ")),
        }
    }
}

impl Data<'_> {
    /// Returns its facts, for machines: the label never without its source.
    fn facts(&self) -> Vec<Fact> {
        let mut marks = vec![self.source];
        marks.extend(self.partial.then_some("partial"));
        marks.extend(self.altered.then_some("altered"));
        marks.extend((!self.changes.is_empty()).then_some(RESUMED));
        marks.retain(|mark| !mark.is_empty());
        vec![
            (
                "task",
                format!("{} ({})", self.label, marks.join(", ")).into(),
            ),
            ("source", or_null(self.source)),
            ("protocol", or_null(self.protocol)),
            ("data", or_null(self.digest)),
        ]
    }

    /// Returns source, protocol and digest, as far as known, and the findings of its runs on what
    /// is altered.
    fn origin(&self, findings: &[&str]) -> String {
        let mut known = vec![self.source.to_owned()];
        if !self.protocol.is_empty() {
            known.push(format!("protocol {}", self.protocol));
        }
        if !self.digest.is_empty() {
            known.push(format!("data {}", brief(self.digest)));
        }
        if !findings.is_empty() {
            known.push(format!("ALTERED ({})", findings.join("; ")));
        }
        if !self.changes.is_empty() {
            let changes = self.changes.join("; ");
            known.push(format!("RESUMED AFTER CHANGES ({changes})"));
        }
        known.join(", ")
    }
}

/// Returns the facts of each data set, for machines. Where all are equal, the name of the task gets
/// a number.
fn facts(data: &[Data<'_>]) -> Vec<Vec<Fact>> {
    let mut all: Vec<Vec<Fact>> = Vec::new();
    for one in data {
        let mut own = one.facts();
        let named = own[0].1.as_str().unwrap_or_default().to_owned();
        let mut count = 1;
        while all.contains(&own) {
            count += 1;
            own[0].1 = format!("{named} #{count}").into();
        }
        all.push(own);
    }
    all
}

/// Returns the facts of several data sets, for machines, each given by a run on it.
pub(crate) fn facts_of_data<'a>(runs: impl IntoIterator<Item = &'a Record>) -> Vec<Vec<Fact>> {
    let data: Vec<Data> = runs.into_iter().map(Data::of).collect();
    facts(&data)
}

/// Returns the first characters of a digest, enough to distinguish two.
pub(crate) fn brief(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

impl<'a> Pivot<'a> {
    /// Sorts the records.
    pub(crate) fn new(
        records: impl IntoIterator<Item = &'a Record>,
        dimensions: &[&'static [Dimension]],
    ) -> Pivot<'a> {
        let dimensions: Vec<&'static Dimension> = dimensions.iter().copied().flatten().collect();
        let mut grid: Grid = BTreeMap::new();
        let mut repeats = 0;
        let mut unobserved = Vec::new();
        for record in records {
            let setting: Vec<String> = dimensions.iter().map(|d| (d.of)(record)).collect();
            let mut known = dimensions.iter().zip(&setting);
            if known.all(|(dimension, value)| !dimension.observed || !value.is_empty()) {
                repeats += enter(&mut grid, record, setting);
            } else {
                unobserved.push((record, setting));
            }
        }
        for (record, setting) in unobserved {
            let home = grid.keys().find(|(_, model, other)| {
                let mut pairs = dimensions.iter().zip(setting.iter().zip(other));
                *model == record.model.name
                    && pairs.all(|(dimension, (a, b))| a == b || dimension.observed && a.is_empty())
            });
            let setting = home.map_or(setting, |(_, _, other)| other.clone());
            repeats += enter(&mut grid, record, setting);
        }

        let mut data: Vec<Data> = grid.values().flat_map(HashMap::keys).copied().collect();
        data.sort_unstable();
        data.dedup();
        let first = grid.keys().next().map(|(_, _, setting)| setting.clone());
        let differs = |index: usize| {
            let first = first.as_ref().and_then(|setting| setting.get(index));
            grid.keys()
                .any(|(_, _, setting)| setting.get(index) != first)
        };
        let varying: Vec<usize> = (0..dimensions.len()).filter(|i| differs(*i)).collect();
        let constant = first.iter().flatten().enumerate();
        let mut constant: Vec<(&str, String)> = constant
            .filter(|(index, value)| !varying.contains(index) && !value.is_empty())
            .map(|(index, value)| (dimensions[index].name, value.clone()))
            .collect();
        let shared: Vec<Vec<&str>> = varying
            .iter()
            .map(|index| match dimensions[*index].list {
                true => shared(grid.keys().map(|(_, _, setting)| setting[*index].as_str())),
                false => Vec::new(),
            })
            .collect();
        for (index, words) in varying.iter().zip(&shared) {
            if !words.is_empty() {
                constant.push((dimensions[*index].name, words.join(" ")));
            }
        }
        let shown = |setting: &[String]| -> Vec<String> {
            let own = varying.iter().zip(&shared);
            own.map(|(index, shared)| without(&setting[*index], shared))
                .collect()
        };
        let rows = grid
            .iter()
            .map(|((_, model, setting), row)| PivotRow {
                model,
                varying: shown(setting),
                setting: dimensions
                    .iter()
                    .map(|dimension| dimension.name)
                    .zip(setting.iter().cloned())
                    .collect(),
                facts: dimensions
                    .iter()
                    .zip(setting)
                    .map(|(dimension, value)| dimension.fact(value))
                    .collect(),
                apart: dimensions
                    .iter()
                    .zip(setting)
                    .filter(|(dimension, _)| dimension.apart)
                    .map(|(dimension, value)| (dimension.name, value.clone()))
                    .collect(),
                cells: data
                    .iter()
                    .map(|data| {
                        let seeds = row.get(data);
                        seeds.map_or_else(Vec::new, |seeds| seeds.values().copied().collect())
                    })
                    .collect(),
            })
            .collect();
        let runs = grid
            .values()
            .flat_map(HashMap::values)
            .flat_map(BTreeMap::values);
        // Two versions of the program may word what they find in the same data differently.
        let findings = |data: &Data<'a>| -> Vec<&'a str> {
            let own = grid.values().filter_map(|row| row.get(data));
            let runs = own.flat_map(BTreeMap::values);
            let mut findings: Vec<&str> = Vec::new();
            for finding in runs.flat_map(|run| &run.task.altered) {
                if !findings.contains(&finding.as_str()) {
                    findings.push(finding);
                }
            }
            findings
        };
        let mut revisions: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for run in runs {
            if let Some(revision) = &run.provenance.revision {
                let sign = if revision.dirty { "+" } else { "" };
                let revision = format!("{}{sign}", brief(&revision.commit));
                let models = revisions.entry(revision).or_default();
                models.insert(run.model.name.as_str());
            }
        }
        Pivot {
            revisions,
            columns: unique(data.iter().map(|one| one.header(&data)), &[]),
            origins: data.iter().map(|one| one.origin(&findings(one))).collect(),
            facts: facts(&data),
            tasks: data.iter().map(|one| one.task.to_owned()).collect(),
            rows,
            varying: varying.iter().map(|i| dimensions[*i].name).collect(),
            constant,
            repeats,
        }
    }
}

/// The rows by rank, name and setting of the model; in each the data sets, in each the seeds.
type Grid<'a> =
    BTreeMap<(usize, &'a str, Vec<String>), HashMap<Data<'a>, BTreeMap<u64, &'a Record>>>;

/// Returns in words which of the things that a score may depend on the seeds do not share: the
/// build of the program, the instructions, the program of a model of your own, or several; `None`
/// if they agree. What an older record does not know is a value of its own.
#[must_use]
pub fn mixture(runs: &[&Record]) -> Option<String> {
    let count = |of: fn(&Record) -> String| {
        let values: BTreeSet<String> = runs.iter().map(|run| of(run)).collect();
        values.len()
    };
    let builds = count(|run| {
        let versions = &run.provenance.versions;
        [
            &versions.lra,
            &versions.sources,
            &versions.candle,
            &versions.rustc,
        ]
        .map(String::as_str)
        .join(" ")
    });
    let instructions = count(|run| run.provenance.host.instructions.clone());
    let own = count(|run| match &run.model.own {
        Some(own) => format!(
            "{} {} {} {:?}",
            own.program_digest, own.crate_name, own.crate_version, own.revision
        ),
        None => String::new(),
    });
    let words = [
        (builds, "builds of the program"),
        (instructions, "instruction sets"),
        (own, "versions of the model's program"),
    ];
    let words: Vec<String> = words
        .iter()
        .filter(|(count, _)| *count > 1)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!words.is_empty()).then(|| words.join(" and "))
}

/// Returns the words common to all lists.
fn shared<'a>(mut lists: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut words: Vec<&str> = lists.next().unwrap_or_default().split(' ').collect();
    words.retain(|word| !word.is_empty());
    for list in lists {
        words.retain(|word| list.split(' ').any(|one| one == *word));
    }
    words
}

/// Returns a list without the given words.
fn without(list: &str, words: &[&str]) -> String {
    let kept = list.split(' ').filter(|word| !words.contains(word));
    kept.collect::<Vec<_>>().join(" ")
}

/// Inserts a run. Returns the number of replaced runs: 1 if its seed existed already.
fn enter<'a>(grid: &mut Grid<'a>, record: &'a Record, setting: Vec<String>) -> usize {
    let model = record.model.name.as_str();
    let row = grid.entry((model_rank(model), model, setting)).or_default();
    let seeds = row.entry(Data::of(record)).or_default();
    match seeds.entry(record.seed) {
        Entry::Vacant(place) => {
            place.insert(record);
            0
        }
        Entry::Occupied(mut place) => {
            if record.weight() > place.get().weight() {
                place.insert(record);
            }
            1
        }
    }
}
