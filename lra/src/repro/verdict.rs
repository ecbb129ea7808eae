//! Outcome of reproducing a cell.

use results::table::Table;
use results::{Format, Outcome, Record, markdown, tables};

use crate::error::{Class, Classify, Result};
use crate::repro::cell::PublishedCell;
use crate::repro::plan::Plan;

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

    /// Returns the comparison as a block to paste; `None` if no run is scored.
    pub fn block(&self) -> Result<Option<String>> {
        let scored = self.records.iter().any(|it| it.outcome == Outcome::Scored);
        match scored {
            true => Ok(Some(self.markdown(self.comparison()?))),
            false => Ok(None),
        }
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
                results::counted(made.threads as u64, "thread")
            );
        }
        text
    }
}
