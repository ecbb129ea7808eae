//! The frame of a page: title, links, filter, style and script.

use crate::chart::style;
use crate::markup::escaped;

/// A link of the contents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    /// Address, relative to the page.
    pub(crate) to: String,
    /// Words to click on.
    pub(crate) words: String,
}

impl Link {
    /// Returns a link to a part of the same page.
    pub(crate) fn to_part(id: &str, words: impl Into<String>) -> Link {
        Link {
            to: format!("#{id}"),
            words: words.into(),
        }
    }

    /// Returns the link as HTML.
    pub(crate) fn html(&self) -> String {
        format!(
            "<a href=\"{}\">{}</a>",
            escaped(&self.to),
            escaped(&self.words)
        )
    }
}

/// An HTML document in one file.
pub(crate) struct Document<'a> {
    /// The title line.
    pub(crate) title: &'a str,
    /// The line below it.
    pub(crate) made: &'a str,
    /// Groups of links above the content, or beside it.
    pub(crate) links: &'a [Vec<Link>],
    /// Rules in addition to those of every page, as CSS.
    pub(crate) style: &'a str,
    /// The content, as HTML.
    pub(crate) main: &'a str,
}

impl Document<'_> {
    /// Returns the document as text.
    pub(crate) fn render(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{colours}{style}{own}</style>\n</head>\n<body>\n\
             <header>\n<h1>{title}</h1>\n<p class=\"note\">{made}</p>\n</header>\n{contents}\
             <main>\n{main}</main>\n<script>\n{script}</script>\n</body>\n</html>\n",
            title = escaped(self.title),
            made = escaped(self.made),
            contents = self.contents(),
            colours = style::css(),
            style = include_str!("page.css"),
            own = self.style,
            main = self.main,
            script = include_str!("page.js"),
        )
    }

    /// Returns the links, and the box that filters rows.
    fn contents(&self) -> String {
        let item = |link: &Link| format!("<li>{}</li>\n", link.html());
        let groups = self.links.iter().filter(|group| !group.is_empty());
        let groups: String = groups
            .map(|group| {
                let items: String = group.iter().map(item).collect();
                format!("<ul>\n{items}</ul>\n")
            })
            .collect();
        format!(
            "<nav aria-label=\"Contents\">\n\
             <label class=\"scripted\">Filter rows <input type=\"search\" id=\"filter\" placeholder=\"such as performer\"></label>\n\
             <p class=\"note\" id=\"found\" aria-live=\"polite\"></p>\n{groups}</nav>\n"
        )
    }
}
