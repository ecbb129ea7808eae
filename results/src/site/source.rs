//! The page of a published source: every row that it prints.

use super::evidence::{self, Origin};
use super::{Book, prose};
use crate::format::counted;
use crate::page::{Link, table_section};
use crate::published::Source;
use crate::table::{Cell, Column, Row, Table};

/// Returns the page.
pub(super) fn page(book: &Book, source: &'static Source) -> String {
    let shown = || {
        let all = book.evidence.iter();
        all.filter(
            |one| matches!(one.origin, Origin::Printed(own, ..) if std::ptr::eq(own, source)),
        )
    };
    let mut documents: Vec<&str> = Vec::new();
    for one in shown() {
        if !documents.contains(&one.document()) {
            documents.push(one.document());
        }
    }
    let about = prose::facts([
        ("title", source.title.to_owned()),
        ("first author", source.author.to_owned()),
        ("year", source.year.to_string()),
        ("address", source.url.to_owned()),
        ("citation key", source.key.to_owned()),
        ("read in", documents.join("; ")),
        ("recipes that follow it", source.recipes.join(", ")),
    ]);
    let mut figures = evidence::table(&book.names, shown(), true);
    figures.name = "figures".to_owned();
    figures.title = "Every figure it prints".to_owned();
    figures.notes = vec![
        "task and model are links where this program has them. figure: accuracies in percent."
            .to_owned(),
    ];
    let ways = ways(shown());
    let mut parts = vec![
        Link::to_part("about", "About"),
        Link::to_part("figures", "Figures"),
    ];
    let mut main = prose::section("about", "About", &about);
    main += &table_section(&figures);
    if !ways.rows.is_empty() {
        parts.push(Link::to_part(&ways.name, "Ways to reproduce"));
        main += &table_section(&ways);
    }
    let figures = counted(source.figures.len() as u64, "figure");
    let made = format!("{figures} of {} ({})", source.key, source.year);
    book.document(source.alias, &made, parts, &main)
}

/// Returns the table of commands that reproduce figures, and of reasons where there is none.
pub(super) fn ways<'a>(shown: impl Iterator<Item = &'a evidence::Evidence<'a>>) -> Table {
    let mut rows = Vec::new();
    for one in shown {
        let (command, cost, remarks) = match one.offer() {
            None => continue,
            Some(Err(reason)) => (Cell::default(), Cell::default(), reason.clone()),
            Some(Ok(offer)) => (
                Cell::text(offer.command.clone()),
                Cell::with(super::cells::in_petaflop(offer), "value", offer.petaflop()),
                match offer.differences.as_slice() {
                    [] => "no known difference".to_owned(),
                    [one] => format!("1 known difference: {one}"),
                    all => {
                        let numbered = all.iter().zip(1..);
                        let numbered: Vec<String> = numbered
                            .map(|(difference, number)| format!("({number}) {difference}"))
                            .collect();
                        let count = counted(all.len() as u64, "known difference");
                        format!("{count}: {}", numbered.join("; "))
                    }
                },
            ),
        };
        rows.push(Row::new(vec![
            Cell::text(one.source()),
            Cell::text(one.task),
            Cell::text(one.model),
            Cell::text(one.text.clone()),
            command,
            cost,
            Cell::text(remarks),
        ]));
    }
    Table {
        name: "ways".to_owned(),
        title: "Ways to reproduce them here".to_owned(),
        columns: vec![
            Column::text("source"),
            Column::key("task"),
            Column::key("model"),
            Column::value("printed"),
            Column::text("command"),
            Column::value("PFLOP a seed"),
            Column::text("differences, or why there is no way"),
        ],
        rows,
        notes: vec![
            "PFLOP a seed: floating point operations in units of 10¹⁵, every sequence at its full length; > where evaluations are not \
             counted, because the sizes of the splits are those of files that were not at hand. The command with --dry-run says how \
             long it takes on your machine."
                .to_owned(),
        ],
        ..Table::default()
    }
}
