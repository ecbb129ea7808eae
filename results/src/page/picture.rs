//! Pictures within a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::markup::escaped;

/// A picture of a page.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Name of the part, for links.
    pub name: String,
    /// The heading, which also describes the picture to those who do not see it.
    pub title: String,
    /// The file, as PNG.
    pub png: Vec<u8>,
}

/// Returns the section with the picture, whose file is part of the page.
pub(crate) fn html(picture: &Picture) -> String {
    let [name, title] = [&picture.name, &picture.title].map(|text| escaped(text));
    let data = STANDARD.encode(&picture.png);
    format!(
        "<section id=\"{name}\">\n<h2>{title}</h2>\n<img alt=\"{title}\" src=\"data:image/png;base64,{data}\">\n</section>\n"
    )
}
