//! A page with only the tables.

use crate::page::Page;
use crate::table::Table;

pub(super) fn render(tables: &[Table]) -> String {
    let page = Page {
        title: "Results".to_owned(),
        tables: tables.to_vec(),
        ..Page::default()
    };
    page.render()
}
