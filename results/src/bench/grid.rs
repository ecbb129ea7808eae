//! The grid of cells that the tables and charts of a benchmark are made from.

use serde_json::Value;

use super::Bench;
use super::setting::{self, DIMENSIONS, SESSION};
use crate::published::model_rank;
use crate::table::{Cell, Column, Fact};

/// A model in one setting: the cells that differ in nothing but the length.
pub(crate) struct GridRow<'a> {
    pub(crate) cells: Vec<&'a Bench>,
    /// Values of the varying dimensions.
    varying: Vec<Value>,
    /// The setting for machines.
    pub(super) facts: Vec<Fact>,
}

/// The cells by model, setting and length.
pub(crate) struct Grid<'a> {
    /// The rows, in the order of the tables.
    pub(crate) rows: Vec<GridRow<'a>>,
    pub(super) lengths: Vec<usize>,
    /// Names of the dimensions in which rows differ.
    pub(super) varying: Vec<&'static str>,
}

/// Rows that differ in nothing but model and session.
pub(crate) struct Alike<'g, 'a> {
    /// The rows.
    pub(crate) rows: Vec<&'g GridRow<'a>>,
    /// Words for the values that tell their setting from those of other rows.
    pub(crate) differing: Vec<String>,
    /// Words for their setting.
    pub(crate) setting: Vec<String>,
}

/// Returns the distinct values of a dimension, in the order of the rows.
fn distinct(rows: &[GridRow], name: &str) -> Vec<Value> {
    let mut values = Vec::new();
    for value in rows.iter().map(|row| row.value(name)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

impl<'a> GridRow<'a> {
    fn fact(&self, name: &str) -> Option<&Value> {
        let mut facts = self.facts.iter();
        facts
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    fn value(&self, name: &str) -> Value {
        self.fact(name).cloned().unwrap_or_default()
    }

    /// Returns names and values of its setting without the session.
    fn setting(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(|(name, _)| *name != SESSION)
    }

    /// Returns a cell of the row, which stands for its model.
    pub(super) fn first(&self) -> &'a Bench {
        self.cells[0]
    }

    pub(super) fn cell(&self, length: usize) -> Option<&'a Bench> {
        self.cells
            .iter()
            .copied()
            .find(|cell| cell.length == length)
    }

    /// Returns the cells with the values of the varying dimensions.
    pub(super) fn settings(&self) -> impl Iterator<Item = Cell> + '_ {
        self.varying
            .iter()
            .map(|value| Cell::text(setting::shown(value)))
    }
}

impl<'a> Grid<'a> {
    pub(crate) fn new(cells: &'a [Bench]) -> Grid<'a> {
        let mut rows: Vec<GridRow> = Vec::new();
        for cell in cells {
            // A cell that a session measured twice gets a row of its own. The same line twice, as
            // in a file joined with itself, is one cell.
            let mut facts = setting::facts(cell);
            let mut copies = 1;
            loop {
                let alike = |row: &&mut GridRow| {
                    let first = row.first();
                    (&first.model, &first.options) == (&cell.model, &cell.options)
                        && row.facts == facts
                };
                let Some(row) = rows.iter_mut().find(alike) else {
                    rows.push(GridRow {
                        cells: vec![cell],
                        varying: Vec::new(),
                        facts,
                    });
                    break;
                };
                match row.cell(cell.length) {
                    None => row.cells.push(cell),
                    Some(other) if other == cell => {}
                    Some(_) => {
                        copies += 1;
                        let session = facts.iter_mut().find(|(name, _)| *name == SESSION);
                        let numbered = format!("{} #{copies}", cell.session);
                        session
                            .into_iter()
                            .for_each(|(_, value)| *value = numbered.trim().into());
                        continue;
                    }
                }
                break;
            }
        }
        let sessions: Vec<Value> = distinct(&rows, SESSION);
        rows.sort_by_key(|row| {
            let first = row.first();
            let session = row.fact(SESSION);
            let session = sessions.iter().position(|one| Some(one) == session);
            (model_rank(&first.model), first.options.len(), session)
        });
        let names = DIMENSIONS.iter().map(|dimension| dimension.name);
        let mut varying: Vec<&str> = names
            .filter(|name| *name != SESSION && distinct(&rows, name).len() > 1)
            .collect();
        // Sessions of different settings are told apart by these.
        let told_apart = |varying: &[&str]| {
            let key = |row: &GridRow| {
                let first = row.first();
                let values: Vec<Value> = varying.iter().map(|name| row.value(name)).collect();
                (first.model.clone(), first.options.clone(), values)
            };
            let keys: Vec<_> = rows.iter().map(key).collect();
            (1..keys.len()).all(|index| !keys[..index].contains(&keys[index]))
        };
        if !told_apart(&varying) {
            varying.push(SESSION);
        }
        for row in &mut rows {
            row.varying = varying.iter().map(|name| row.value(name)).collect();
        }
        let mut lengths: Vec<usize> = cells.iter().map(|cell| cell.length).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Grid {
            rows,
            lengths,
            varying,
        }
    }

    /// Returns the columns of the varying dimensions.
    pub(super) fn settings(&self) -> impl Iterator<Item = Column> + '_ {
        self.varying.iter().map(|name| Column::key(*name))
    }

    /// Returns the cell of the reference model at a length, in the setting and session of a row.
    pub(super) fn reference(&self, row: &GridRow, length: usize) -> Option<&'a Bench> {
        let mut rows = self.rows.iter();
        let found = rows.find(|other| other.first().is_reference() && other.facts == row.facts);
        found?.cell(length)
    }

    /// Returns the rows by setting, regardless of their sessions.
    pub(crate) fn alike(&self) -> Vec<Alike<'_, 'a>> {
        let mut all: Vec<Alike> = Vec::new();
        for row in &self.rows {
            let same = |other: &&mut Alike| other.rows[0].setting().eq(row.setting());
            if let Some(alike) = all.iter_mut().find(same) {
                alike.rows.push(row);
                continue;
            }
            let differs = row
                .setting()
                .filter(|(name, _)| self.varying.contains(name));
            all.push(Alike {
                rows: vec![row],
                differing: differs
                    .filter(|(_, value)| !value.is_null())
                    .map(|(name, value)| setting::words(name, value))
                    .collect(),
                setting: setting::shared(row.first(), &[]),
            });
        }
        all
    }

    /// Returns the model of a row with its options, and the session where only that tells rows
    /// apart.
    pub(crate) fn name(&self, row: &GridRow) -> String {
        let label = row.first().label();
        match row
            .fact(SESSION)
            .filter(|_| self.varying.contains(&SESSION))
        {
            Some(session) => format!("{label} {}", setting::shown(session)),
            None => label,
        }
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = &'a Bench> + '_ {
        self.rows.iter().flat_map(|row| row.cells.iter().copied())
    }
}
