//! The page of a model: its card, a part for each task with every figure, its place in the small
//! protocol, its probes, its learning curves and its runs.

use super::evidence::{self, Evidence, Tier};
use super::names::anchor;
use super::ours::Group;
use super::tuning::Tuning;
use super::{Book, predictions, prose, source};
use crate::Record;
use crate::agreement::{changes, mixed_cells, newest};
use crate::card::{Card, RECIPE, standing};
use crate::chart::curves;
use crate::metrics;
use crate::page::{self, Link, chart_section, table_body, table_section};
use crate::published::{task_name, task_rank};
use crate::store::Loaded;
use crate::table::{Cell, Column, Row, Table};
use crate::tables;

/// Returns the page. Reasons why runs have no learning curve are added to `unread`.
pub(super) fn page(book: &Book, name: &str, unread: &mut Vec<String>) -> String {
    let card = book.site.model(name);
    let mut parts = Vec::new();
    let mut main = String::new();
    let mut add = |id: &str, words: &str, html: String| {
        parts.push(Link::to_part(id, words));
        main += &html;
    };
    if let Some(card) = card {
        add(
            "card",
            "Card",
            prose::section("card", "Card", &self::card(card)),
        );
    }
    for task in tasks(book, name) {
        let id = anchor(task);
        let words = book.site.spelt(task);
        add(
            &id,
            words,
            prose::section(&id, words, &cell(book, name, task)),
        );
    }
    let own = book
        .site
        .runs
        .records
        .iter()
        .filter(|it| it.model.name == name);
    let own: Vec<&Record> = own.collect();
    if let Some(table) = small_protocol(book, name, &own) {
        add("mini", "The small protocol", table_section(&table));
    }
    if let Some(table) = probes(&own) {
        add("probes", "Probes", table_section(&table));
    }
    for chart in curves(
        &with_logs(&book.site.runs, name, unread),
        &book.site.imported,
        &mut Vec::new(),
    ) {
        add(&chart.name, &chart.title, chart_section(&chart));
    }
    let predictions = predictions::links(&book.names, own.iter().map(|it| it.id.as_str()));
    if !predictions.is_empty() {
        let words = "Predictions of runs";
        let html = prose::section("predictions", words, &predictions);
        add("predictions", words, html);
    }
    if !own.is_empty() {
        add(page::RUNS, "Runs", page::runs(own));
    }
    let title = card.map_or(name, |card| &card.title);
    let made = match card.filter(|card| card.year > 0) {
        Some(card) => format!("model {name}, {}", card.year),
        None => format!("model {name}"),
    };
    book.document(title, &made, parts, &main)
}

/// Returns the card as HTML.
fn card(card: &super::ModelCard) -> String {
    let paper = match card.arxiv.as_str() {
        "" => card.paper.clone(),
        number => format!("{}, https://arxiv.org/abs/{number}", card.paper),
    };
    let [time, memory] = card.costs.clone();
    let mut html = prose::facts([
        ("paper", paper),
        ("time per head", time),
        ("memory per head", memory),
        ("family", card.family.clone()),
        ("compared with", card.reference.clone()),
    ]);
    for (heading, text) in &card.texts {
        html += &format!("<h3>{}</h3>\n{}", prose::inline(heading), prose::html(text));
    }
    if !card.options.is_empty() {
        html += &format!(
            "<h3>Settings</h3>\n<pre>{}</pre>\n",
            crate::markup::escaped(&card.options)
        );
    }
    format!("<div class=\"prose\">\n{html}</div>\n")
}

/// Returns the tasks with a figure of the model, in the order of the tables.
fn tasks<'a>(book: &'a Book, model: &str) -> Vec<&'a str> {
    let mut tasks: Vec<&str> = Vec::new();
    for one in book.evidence.iter().filter(|one| one.model == model) {
        if !tasks
            .iter()
            .any(|task| task_name(task) == task_name(one.task))
        {
            tasks.push(one.task);
        }
    }
    tasks.sort_by_key(|task| task_rank(task));
    tasks
}

/// Returns the part about a task as HTML: figures of every tier, ways to reproduce them, runs.
fn cell(book: &Book, model: &str, task: &str) -> String {
    let is_here = |one: &&Evidence| one.model == model && task_name(one.task) == task_name(task);
    let shown = || book.evidence.iter().filter(is_here);
    let mut html = table_body(&evidence::table(&book.names, shown(), false));
    if let Some(page) = book.names.task(task) {
        let link = Link {
            to: page,
            words: "floors and other models".to_owned(),
        };
        html += &format!("<p class=\"note\">The task: {}.</p>\n", link.html());
    }
    let ways = source::ways(shown());
    if !ways.rows.is_empty() {
        html += &format!("<h3>{}</h3>\n{}", ways.title, table_body(&ways));
    }
    let runs = shown().filter(|one| one.tier() == Tier::Here);
    if runs.count() > 0 {
        let groups = book.groups.iter();
        let groups = groups.filter(|it| it.model == model && task_name(it.task) == task_name(task));
        let runs = runs_here(&groups.collect::<Vec<_>>(), book.groups);
        html += &format!("<h3>{}</h3>\n{}", runs.title, table_body(&runs));
    }
    html
}

/// Returns the table of the runs here, a row for each setting.
fn runs_here(groups: &[&Group], all: &[Group]) -> Table {
    let number = |value: Option<f64>| {
        value.map_or_else(Cell::default, |value| {
            Cell::with(format!("{value:.2}"), "value", value)
        })
    };
    let rows = groups.iter().map(|group| {
        let tuning = Tuning::of(group, all);
        let verdicts = group.verdicts().into_iter();
        let verdicts: Vec<String> = verdicts
            .map(|(source, words)| format!("{source}: {words}"))
            .collect();
        let score = group.score().map(|score| score.mean);
        Row::new(vec![
            Cell::text(group.data.clone()),
            Cell::with(group.score_words(), "value", serde_json::json!(score)),
            Cell::with(group.seeds().to_string(), "value", group.seeds()),
            Cell::text(group.trained_words()),
            number(group.hours()),
            number(group.petaflop()),
            Cell::with(tuning.tried.to_string(), "value", tuning.tried),
            Cell::text(tuning.spread_words()),
            Cell::text(tuning.expected_words()),
            Cell::text(group.day()),
            Cell::text(verdicts.join("; ")),
            Cell::text(group.setting_words()),
            Cell::text(group.command()),
        ])
    });
    let mut columns = vec![Column::key("data"), Column::value("accuracy")];
    columns.extend(["seeds", "trained", "hours", "PFLOP", "settings tried"].map(Column::value));
    columns.extend(
        [
            "their spread",
            "expected best",
            "latest",
            "beside print",
            "setting",
        ]
        .map(Column::text),
    );
    columns.push(Column::text("command of the first seed"));
    Table {
        name: "here".to_owned(),
        title: "Re-run here".to_owned(),
        columns,
        rows: rows.collect(),
        notes: vec![
            "accuracy: test accuracy in percent, mean ± sample standard deviation over the seeds. PFLOP: operations of the training \
             steps in units of 10¹⁵. The verdicts are those of the table comparison of lra report."
                .to_owned(),
        ],
        ..Table::default()
    }
}

/// Returns the model's card of the small protocol, ranked among all runs; `None` without a run.
fn small_protocol(book: &Book, name: &str, own: &[&Record]) -> Option<Table> {
    let is_plain =
        |it: &&&Record| it.recipe.name == RECIPE && !it.task.probe && changes(it).is_empty();
    let own: Vec<&Record> = own.iter().filter(is_plain).copied().collect();
    if own.is_empty() {
        return None;
    }
    if let Some((_, reason)) = mixed_cells(&own).into_iter().next() {
        return Some(Table {
            name: "mini".to_owned(),
            title: "The small protocol".to_owned(),
            notes: vec![format!("No rank: {reason}.")],
            ..Table::default()
        });
    }
    let own = newest(&own);
    let card = Card {
        model: name.to_owned(),
        standing: standing(name, &own, &book.site.runs.records),
        own,
        same_block: Vec::new(),
        left_out: Vec::new(),
    };
    let mut table = card.table();
    table.title = format!("The small protocol: {}", table.title);
    table.name = "mini".to_owned();
    Some(table)
}

/// Returns the scores on probes by length; `None` without a run.
fn probes(own: &[&Record]) -> Option<Table> {
    let own: Vec<Record> = own
        .iter()
        .filter(|it| it.task.probe)
        .map(|it| (*it).clone())
        .collect();
    if own.is_empty() {
        return None;
    }
    let mut table = tables::find("dense").ok()?.make(&own, None);
    table.title = "Probes: accuracy by length".to_owned();
    table.name = "probes".to_owned();
    Some(table)
}

/// Returns the runs of a model whose logs can be read. Reasons why others cannot are added to
/// `unread`; a file of records has no logs, which is no reason.
fn with_logs(runs: &Loaded, model: &str, unread: &mut Vec<String>) -> Loaded {
    let mut own = Loaded::default();
    let pairs = runs.records.iter().zip(&runs.folders);
    for (record, folder) in pairs.filter(|(record, _)| record.model.name == model) {
        if !folder.join(metrics::FILE).is_file() {
            continue;
        }
        match metrics::read(folder) {
            Ok(_) => {
                own.records.push(record.clone());
                own.folders.push(folder.clone());
            }
            Err(error) => unread.push(error.to_string()),
        }
    }
    own
}
