//! Documentation as HTML: paragraphs, headings, lists, equations and code.

use crate::markup::escaped;

/// Returns a text as HTML. A line that begins with `# ` is a heading, one with `- ` an item of a
/// list; lines indented by four spaces are equations; an empty line ends a paragraph; words between
/// backticks are code.
pub(super) fn html(text: &str) -> String {
    let mut html = String::new();
    let mut open = Kind::None;
    for line in text.lines() {
        let (kind, content) = Kind::of(line, open);
        let begins = line.starts_with("- ") || kind == Kind::Heading;
        let goes_on = kind == open && !begins;
        if goes_on {
            html += if kind == Kind::None { "" } else { "\n" };
        } else {
            html += open.end();
            html += kind.start();
        }
        html += &match kind {
            Kind::Equation => escaped(content),
            _ => inline(content),
        };
        open = kind;
    }
    html + open.end()
}

/// Kind of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Paragraph,
    Heading,
    Item,
    Equation,
}

impl Kind {
    /// Returns the kind of a line behind a block, and its content.
    fn of(line: &str, before: Kind) -> (Kind, &str) {
        if line.trim().is_empty() {
            return (Kind::None, "");
        }
        if let Some(heading) = line.strip_prefix("# ") {
            return (Kind::Heading, heading);
        }
        if let Some(item) = line.strip_prefix("- ") {
            return (Kind::Item, item);
        }
        match line.strip_prefix("    ") {
            Some(equation) => (Kind::Equation, equation),
            // An item goes on in indented lines.
            None if before == Kind::Item && line.starts_with(' ') => {
                (Kind::Item, line.trim_start())
            }
            None => (Kind::Paragraph, line),
        }
    }

    fn start(self) -> &'static str {
        match self {
            Kind::None => "",
            Kind::Paragraph => "<p>",
            Kind::Heading => "<h3>",
            Kind::Item => "<p class=\"item\">• ",
            Kind::Equation => "<pre>",
        }
    }

    fn end(self) -> &'static str {
        match self {
            Kind::None => "",
            Kind::Paragraph | Kind::Item => "</p>\n",
            Kind::Heading => "</h3>\n",
            Kind::Equation => "</pre>\n",
        }
    }
}

/// Returns a line with code between backticks.
pub(super) fn inline(line: &str) -> String {
    let mut html = String::new();
    let parts: Vec<&str> = line.split('`').collect();
    // A backtick without its second one is a character like others.
    let pairs = (parts.len() - 1) / 2;
    for (index, part) in parts.iter().enumerate() {
        let is_code = index % 2 == 1 && index < 2 * pairs;
        let is_left = index % 2 == 1 && index > 2 * pairs;
        html += match (is_code, is_left) {
            (true, _) => "<code>",
            (_, true) => "`",
            _ => "",
        };
        html += &escaped(part);
        html += if is_code { "</code>" } else { "" };
    }
    html
}

/// Returns a text as HTML, with a link for each address of the web that stands as a word of its
/// own.
fn linked(text: &str) -> String {
    let word = |word: &str| match word.strip_prefix("https://") {
        Some(shown) if !shown.is_empty() => {
            format!("<a href=\"{}\">{}</a>", escaped(word), escaped(shown))
        }
        _ => escaped(word),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns facts by name as a list; facts without a value are left out.
pub(super) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let rows = facts
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), linked(&value)));
    format!("<dl>\n{}</dl>\n", rows.collect::<String>())
}

/// Returns a section with a heading around HTML.
pub(super) fn section(id: &str, title: &str, html: &str) -> String {
    format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n{html}</section>\n",
        escaped(id),
        escaped(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_links_and_stay_text() {
        assert_eq!(
            linked("A <b>, https://arxiv.org/abs/1 or http://c"),
            "A &lt;b&gt;, <a href=\"https://arxiv.org/abs/1\">arxiv.org/abs/1</a> or http://c"
        );
        let hostile = linked("https://\"onclick=x");
        assert!(!hostile.contains("\"\"onclick"), "{hostile}");
        assert_eq!(linked("https://"), "https://");
    }

    #[test]
    fn blocks_are_told_apart_and_text_is_escaped() {
        let text = "A <b> of `c<d` here\nand there.\n    y = x < z\n    w = 1\n\n# Options\n\n- one\n- two ` odd\n";
        assert_eq!(
            html(text),
            "<p>A &lt;b&gt; of <code>c&lt;d</code> here\nand there.</p>\n<pre>y = x &lt; z\nw = 1</pre>\n\
             <h3>Options</h3>\n<p class=\"item\">• one</p>\n<p class=\"item\">• two ` odd</p>\n"
        );
    }
}
