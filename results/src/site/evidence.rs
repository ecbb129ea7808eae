//! Every figure with its tier: printed, re-run by others, imported, re-run here.

use serde_json::{Value, json};

use super::names::Names;
use super::ours::Group;
use super::{Offer, Site, floors};
use crate::imported::Imported;
use crate::published::{self, ACCURACY, Figure, Source};
use crate::table::{Cell, Column, Row, Table, or_null};

/// The tier of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// In a paper or a repository.
    Printed,
    /// Measured by others than its authors: called a re-run by the source that prints it.
    ByOthers,
    /// Imported as reported. It may be a claim of the model's authors, a copy, or a re-run.
    Imported,
    /// Measured by runs whose records are here.
    Here,
}

impl Tier {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tier::Printed => "printed",
            Tier::ByOthers => "re-run by others",
            Tier::Imported => "imported",
            Tier::Here => "re-run here",
        }
    }
}

/// Origin of a figure.
pub(super) enum Origin<'a> {
    /// A published figure, and how to reproduce it.
    Printed(
        &'static Source,
        &'static Figure,
        Option<&'a Result<Offer, String>>,
    ),
    /// An imported accuracy.
    Imported(&'a Imported),
    /// Runs here: their place among all groups.
    Runs(usize),
}

/// A figure.
pub(super) struct Evidence<'a> {
    /// Our name of the model; empty if it is a model that is not here.
    pub(super) model: &'a str,
    /// The task.
    pub(super) task: &'a str,
    /// Name of the data: a task of another size has another name.
    pub(super) data: String,
    /// Name of the quantity.
    pub(super) metric: &'a str,
    /// The figure; accuracies are percent.
    pub(super) value: Option<f64>,
    /// The figure in words.
    pub(super) text: String,
    /// Year, or day.
    pub(super) date: String,
    /// Known defects, and remarks.
    pub(super) remarks: Vec<String>,
    /// Its origin.
    pub(super) origin: Origin<'a>,
}

/// Returns all figures: the printed ones in the order of their file, the imported ones, the runs.
pub(super) fn all<'a>(site: &'a Site, groups: &[Group<'a>]) -> Vec<Evidence<'a>> {
    let mut all: Vec<Evidence> = Vec::new();
    for source in published::sources() {
        all.extend(source.figures.iter().map(|figure| {
            let way = site
                .ways
                .iter()
                .find(|way| std::ptr::eq(way.figure, *figure));
            printed(source, figure, way.map(|way| &way.offer))
        }));
    }
    all.extend(site.imported.iter().map(imported));
    let groups = groups.iter().enumerate();
    all.extend(groups.map(|(index, group)| measured(index, group)));
    all
}

fn printed<'a>(
    source: &'static Source,
    figure: &'static Figure,
    offer: Option<&'a Result<Offer, String>>,
) -> Evidence<'a> {
    let defect = (!figure.defect.is_empty()).then(|| format!("defect: {}", figure.defect));
    let notes = (!figure.notes.is_empty()).then(|| figure.notes.clone());
    let is_accuracy = figure.metric == ACCURACY;
    let floor = figure.value.filter(|_| is_accuracy);
    let floor = floor.and_then(|value| floors::remark(&figure.task, value));
    Evidence {
        model: &figure.entry,
        task: &figure.task,
        data: figure.task.clone(),
        metric: &figure.metric,
        value: figure.value,
        text: figure.text(),
        date: figure.year.to_string(),
        remarks: floor.into_iter().chain(defect).chain(notes).collect(),
        origin: Origin::Printed(source, figure, offer),
    }
}

fn imported(cell: &Imported) -> Evidence<'_> {
    Evidence {
        model: &cell.model,
        task: base(&cell.task),
        data: cell.task.clone(),
        metric: ACCURACY,
        value: Some(cell.percent),
        text: match cell.deviation {
            Some(deviation) => format!("{:.2} ±{deviation:.2} ({})", cell.percent, cell.seeds),
            None => format!("{:.2} ({})", cell.percent, cell.seeds),
        },
        date: String::new(),
        remarks: (!cell.settings.is_empty())
            .then(|| cell.settings.clone())
            .into_iter()
            .collect(),
        origin: Origin::Imported(cell),
    }
}

fn measured<'a>(index: usize, group: &Group<'a>) -> Evidence<'a> {
    let score = group.score();
    let verdicts = group.verdicts().into_iter();
    let verdicts = verdicts.map(|(source, words)| format!("beside {source}: {words}"));
    let mut remarks = vec![group.setting_words()];
    remarks.extend(verdicts);
    remarks.extend(group.marks());
    remarks.retain(|words| !words.is_empty());
    Evidence {
        model: group.model,
        task: group.task,
        data: group.data.clone(),
        metric: ACCURACY,
        value: score.map(|score| score.mean),
        text: match score {
            Some(score) => format!("{} ({})", group.score_words(), score.seeds),
            None => group.score_words(),
        },
        date: group.day().to_owned(),
        remarks,
        origin: Origin::Runs(index),
    }
}

/// Returns whether a source says of a figure that its authors ran the model of others again.
fn is_re_run(figure: &Figure) -> bool {
    RE_RUN.iter().any(|word| figure.model.contains(word))
}

/// Words in a source's name of a model that say so.
const RE_RUN: [&str; 2] = ["re-run", "reproduction"];

/// Returns the name of a task without its parameters.
fn base(label: &str) -> &str {
    label.split_once('@').map_or(label, |(name, _)| name)
}

impl<'a> Evidence<'a> {
    /// Returns its tier.
    pub(super) fn tier(&self) -> Tier {
        match self.origin {
            Origin::Printed(_, figure, _) if is_re_run(figure) => Tier::ByOthers,
            Origin::Printed(..) => Tier::Printed,
            Origin::Imported(_) => Tier::Imported,
            Origin::Runs(_) => Tier::Here,
        }
    }

    /// Returns whether it is printed in a paper or a repository, in any tier.
    pub(super) fn is_published(&self) -> bool {
        matches!(self.origin, Origin::Printed(..))
    }

    /// Returns whether it is about a task; averages and figures of speed are not.
    pub(super) fn is_on_a_task(&self) -> bool {
        !self.is_published() || published::is_published_task(self.task)
    }

    /// Returns the name of its source.
    pub(super) fn source(&self) -> &'a str {
        match self.origin {
            Origin::Printed(source, ..) => source.alias,
            Origin::Imported(cell) => &cell.source,
            Origin::Runs(_) => "runs",
        }
    }

    /// Returns the model's name in its source.
    pub(super) fn named(&self) -> &'a str {
        match self.origin {
            Origin::Printed(_, figure, _) => &figure.model,
            _ => self.model,
        }
    }

    /// Returns the trust in its document, in words.
    pub(super) fn trust(&self) -> &'static str {
        match self.origin {
            Origin::Printed(_, figure, _) => figure.trust.words(),
            Origin::Imported(_) => "as reported",
            Origin::Runs(_) => "records and logs",
        }
    }

    /// Returns the document that it was read in; empty if it is none.
    pub(super) fn document(&self) -> &'a str {
        match self.origin {
            Origin::Printed(_, figure, _) => &figure.source,
            _ => "",
        }
    }

    /// Returns how to reproduce it, if that is known.
    pub(super) fn offer(&self) -> Option<&'a Result<Offer, String>> {
        match self.origin {
            Origin::Printed(_, _, offer) => offer,
            _ => None,
        }
    }

    /// Returns its facts for programs, in a fixed order.
    pub(super) fn facts(&self, groups: &[Group]) -> Vec<(&'static str, Value)> {
        let group = match self.origin {
            Origin::Runs(index) => groups.get(index),
            _ => None,
        };
        let offer = self.offer().and_then(|offer| offer.as_ref().ok());
        let (defect, missing) = match self.origin {
            Origin::Printed(_, figure, _) => {
                (or_null(&figure.defect), json!(figure.missing_word()))
            }
            _ => (Value::Null, Value::Null),
        };
        let command = offer.map(|offer| offer.command.as_str());
        let petaflop = offer.map(Offer::petaflop);
        vec![
            ("tier", self.tier().name().into()),
            ("model", or_null(self.model)),
            ("named", self.named().into()),
            ("task", self.task.into()),
            ("data", self.data.clone().into()),
            ("metric", self.metric.into()),
            ("value", json!(self.value)),
            (crate::table::MISSING, missing),
            ("source", self.source().into()),
            ("date", or_null(&self.date)),
            ("trust", self.trust().into()),
            ("read_in", or_null(self.document())),
            ("defect", defect),
            ("remarks", or_null(&self.remarks.join("; "))),
            ("command", json!(command.or(group.map(Group::command)))),
            (
                "petaflop",
                json!(petaflop.or(group.and_then(Group::petaflop))),
            ),
            ("hours", json!(group.and_then(Group::hours))),
            ("seeds", json!(group.map(|it| it.seeds()))),
            (
                "status",
                json!(group.map(|it| it.endings()).filter(|it| !it.is_empty())),
            ),
            ("seeds_trained", json!(group.map(|it| it.trained().0))),
            ("seeds_known", json!(group.map(|it| it.trained().1))),
        ]
    }
}

/// Returns a table of figures. Columns of the model and of the task are there where they differ.
pub(super) fn table<'a>(
    names: &Names,
    shown: impl IntoIterator<Item = &'a Evidence<'a>>,
    whole: bool,
) -> Table {
    // What matters comes first: a telephone shows three columns, and no screen all.
    let figure = [Column::value("figure"), Column::text("metric")];
    let mut columns = Vec::new();
    if whole {
        columns.push(Column::text("model"));
        columns.extend(figure);
        columns.extend(["task", "source"].map(Column::text));
    } else {
        columns.push(Column::key("source"));
        columns.extend(figure);
    }
    columns.extend(["tier", "remarks", "data", "named there", "date", "trust"].map(Column::text));
    let rows = shown.into_iter().map(|one| {
        let mut cells = Vec::new();
        let source = Cell::text(one.source());
        let source = match one.origin {
            Origin::Printed(source, ..) => names.to_source(Cell::text(source.alias), source.alias),
            _ => source,
        };
        let figure = [
            Cell::with(one.text.clone(), "value", json!(one.value)),
            Cell::text(one.metric),
        ];
        if whole {
            let model = match one.model {
                "" => Cell::default(),
                model => names.to_cell(Cell::text(model), model, one.task),
            };
            cells.push(model);
            cells.extend(figure);
            cells.extend([names.to_task(Cell::text(one.task), one.task), source]);
        } else {
            cells.push(source);
            cells.extend(figure);
        }
        cells.extend([
            Cell::text(one.tier().name()),
            Cell::text(one.remarks.join("; ")),
            Cell::text(one.data.clone()),
            Cell::text(one.named()),
            Cell::text(one.date.clone()),
            Cell::text(one.trust()),
        ]);
        Row::new(cells)
    });
    Table {
        rows: rows.collect(),
        columns,
        ..Table::default()
    }
}
