//! A chart with its legend, whose entries hide series, and its notes.

use crate::chart::Chart;
use crate::markup::escaped;

/// Legends with more entries than this have buttons that show all series or none.
const FEW: usize = 6;

/// Returns a section with the chart.
pub(crate) fn html(chart: &Chart) -> String {
    let names = chart
        .series
        .iter()
        .map(|series| series.name.chars().count());
    let mut text = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<figure>\n{}<ul class=\"legend\" style=\"--name: {}ch\">\n",
        escaped(&chart.name),
        escaped(&chart.title),
        chart.elements(),
        names.max().unwrap_or(0)
    );
    for (index, series) in chart.series.iter().enumerate() {
        text += &format!(
            "<li><label><input type=\"checkbox\" class=\"scripted\" checked data-index=\"{index}\">{}<span>{}</span></label></li>\n",
            series.key(),
            escaped(&series.name)
        );
    }
    text += "</ul>\n";
    if chart.series.len() > FEW {
        text += "<p class=\"scripted\"><button type=\"button\" data-show=\"all\">Show all</button> \
                 <button type=\"button\" data-show=\"none\">Show none</button></p>\n";
    }
    text += "<figcaption>\n";
    for note in &chart.notes {
        text += &format!("<p class=\"note\">{}</p>\n", escaped(note));
    }
    text + "</figcaption>\n</figure>\n</section>\n"
}
