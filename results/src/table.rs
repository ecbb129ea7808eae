//! A table before it takes a form: what every renderer is given.

use serde_json::Value;

/// A table with its title and footnotes.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// A word that names it to machines: `accuracy`.
    pub name: String,
    /// The line above it.
    pub title: String,
    /// Unit of its numbers, empty if they have none in common.
    pub unit: String,
    /// The columns, from the left.
    pub columns: Vec<Column>,
    /// The rows, from the top; each has one cell per column.
    pub rows: Vec<Row>,
    /// Sentences below it.
    pub notes: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its header.
    pub name: String,
    /// Which side its cells keep to.
    pub align: Align,
    /// Whether it says what a row is, so that it is repeated wherever a table is broken to fit a page.
    pub key: bool,
}

/// Which side a column's cells keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

impl Column {
    /// A column of words that says what its row is.
    pub fn key(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            align: Align::Left,
            key: true,
        }
    }

    /// A column of numbers.
    pub fn value(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            align: Align::Right,
            key: false,
        }
    }

    /// A column of words.
    pub fn text(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            align: Align::Left,
            key: false,
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Whether a rule parts it from the row above.
    pub rule: bool,
    /// One cell per column.
    pub cells: Vec<Cell>,
}

impl Row {
    /// A row without a rule above it.
    pub fn new(cells: Vec<Cell>) -> Row {
        Row { rule: false, cells }
    }

    fn is_measured(&self) -> bool {
        self.cells.get(1).is_some_and(|from| from.text == MEASURED)
    }
}

/// A cell: what people read, and the same in named values for machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// For people; empty where there is nothing.
    pub text: String,
    /// For machines, in the table's unit and unrounded. A cell of words alone has none.
    pub fields: Vec<(&'static str, Value)>,
    /// Whether it is the best of its column.
    pub best: bool,
}

/// Which number is the best of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Best {
    /// Scores and speeds.
    Highest,
    /// What a run takes.
    Lowest,
}

/// What the second column calls a row of our own runs.
pub(crate) const MEASURED: &str = "measured";

impl Cell {
    /// A cell of words.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }

    /// A cell with one value behind its text.
    pub fn with(text: impl Into<String>, field: &'static str, value: impl Into<Value>) -> Cell {
        Cell {
            text: text.into(),
            fields: vec![(field, value.into())],
            ..Cell::default()
        }
    }

    /// What to print: a dash where there is nothing.
    pub(crate) fn shown(&self) -> &str {
        if self.text.is_empty() {
            "-"
        } else {
            &self.text
        }
    }

    /// The number called `field`, unless something went wrong.
    fn competing(&self, field: &str) -> Option<f64> {
        let well = self.field("status").is_none_or(Value::is_null);
        self.field(field)?.as_f64().filter(|_| well)
    }

    /// A value by name.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let found = self.fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value)
    }
}

impl Table {
    /// Marks the best value called `field` of each column, where at least two rows of our own runs have a cell. One with a word
    /// of what went wrong is never the best.
    pub(crate) fn with_best(mut self, field: &str, best: Best) -> Table {
        let better = |a: f64, b: f64| match best {
            Best::Highest => a > b,
            Best::Lowest => a < b,
        };
        for column in 0..self.columns.len() {
            let own = self.rows.iter_mut().filter(|row| row.is_measured());
            let cells = own.filter_map(|row| row.cells.get_mut(column));
            let mut rivals: Vec<&mut Cell> = cells.filter(|cell| !cell.text.is_empty()).collect();
            let values = rivals.iter().filter_map(|cell| cell.competing(field));
            let first = values.reduce(|a, b| if better(b, a) { b } else { a });
            if first.is_some() && rivals.len() > 1 {
                for cell in &mut rivals {
                    cell.best = cell.competing(field) == first;
                }
            }
        }
        self
    }

    /// Names of the values behind a column's cells, in order of appearance. None: the column is words.
    pub(crate) fn fields(&self, column: usize) -> Vec<&'static str> {
        let mut names = Vec::new();
        let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
        for (name, _) in cells.flat_map(|cell| &cell.fields) {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }
}
