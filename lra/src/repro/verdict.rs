//! Outcome of reproducing a cell.

use results::table::Table;
use results::{Format, Outcome, Record, markdown, tables};

use crate::error::{Class, Classify, Result};
use crate::repro::cell::PublishedCell;
use crate::repro::plan::Plan;
use crate::words::counted;

/// A plan and the records of its runs.
pub struct Verdict<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Records of the runs.
    pub records: &'a [Record],
}

impl Verdict<'_> {
    /// Returns the comparison with interval and verdict.
    pub fn comparison(&self) -> Result<Table> {
        let kind = tables::find("comparison").class(Class::Run)?;
        Ok(kind.make(self.records, Some(self.plan.cell.source)))
    }

    /// Returns the comparison as text, and a block to paste.
    pub fn text(&self) -> Result<String> {
        let table = self.comparison()?;
        let shown = Format::Text.render(std::slice::from_ref(&table));
        if !self.records.iter().any(|it| it.outcome == Outcome::Scored) {
            return Ok(shown);
        }
        Ok(format!("{shown}\nTo paste:\n\n{}", self.markdown(table)))
    }

    fn markdown(&self, table: Table) -> String {
        let PublishedCell { source, figure, .. } = &self.plan.cell;
        let mut text = format!(
            "### {} on {}, {}\n\nRead in: {} ({}).\n\n",
            markdown::literal(&figure.model),
            figure.task,
            source.alias,
            markdown::literal(&figure.source),
            figure.trust.words()
        );
        text += &Format::Markdown.render(&[table]);
        text += "\n";
        for difference in self.plan.differences() {
            text += &format!("- Departs: {}.\n", markdown::literal(&difference));
        }
        let scored = self.records.iter();
        for record in scored.filter(|it| it.outcome == Outcome::Scored) {
            let made = &record.provenance;
            text += &format!(
                "- {}: {}, lra {}{}, {} on {} with {}.\n",
                markdown::literal(&record.id),
                markdown::code(&made.command),
                markdown::literal(&made.versions.lra),
                made.revision.as_ref().map_or(String::new(), |it| format!(
                    " ({})",
                    markdown::literal(&it.commit)
                )),
                markdown::literal(&made.device),
                markdown::literal(&made.host.cpu),
                counted(made.threads, "thread")
            );
        }
        text
    }
}
