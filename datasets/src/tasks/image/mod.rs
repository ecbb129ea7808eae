//! Image: classify a small picture into ten classes, read pixel by pixel in grey.
//!
//! The published task is CIFAR-10 (Krizhevsky 2009): 32 x 32 pixels, row by row, as 1,024 tokens.
//! Model id = grey value; there is no padding. 45,000 pictures are for training, 5,000 for
//! validation and 10,000 for test. The choice of the validation pictures from train is part of the
//! published task ([`membership`]), the same under both protocols. Rows are in the order of the
//! published files.
//!
//! Grey ([`grey`]): every channel over 255, 0.2989 R + 0.5870 G + 0.1140 B, times 255.5, truncated
//! to a whole number; all in 32-bit floats, from left to right.
//!
//! Files that lack pictures are refused; with the option `allow_partial` they are read, and the
//! data is marked. `max_length` 256 or 64 is the same task on 16 x 16 or 8 x 8 pixels, each the
//! mean of four or sixteen: `image@256`.
//!
//! Stand-in (`synthetic`): a dark and a bright disc of the same size on grey noise. The class is
//! the direction from the dark one to the bright one, in ten sectors. All classes have the same
//! grey values in the same number. The position of one disc relative to the other gives the class.
//! The place of one disc alone says little: the other one has to fit beside it (25 % of the classes
//! are right by the dark disc alone at 32 x 32 pixels, 10 % by chance).

mod checksums;
mod grey;
mod membership;
mod pickles;
mod pictures;
mod published;
mod records;
mod synthetic;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Result;
use crate::options::{parse, refused};
use crate::synthetic::{DRAW_OPTIONS, DrawOptions};
use crate::{Known, Remote, Request, Shape, Source, SplitWriter, Task, TaskInfo};

/// Names of the classes, by label.
const CLASSES: [&str; 10] = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
];

/// Other names of classes, which loaders use.
const OTHER_WORDS: [(&str, u8); 4] = [("plane", 0), ("aeroplane", 0), ("car", 1), ("auto", 1)];

/// Returns the label of a class, by its name, another word for it, or its number.
fn label_of(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    let named = |label: &usize| CLASSES[*label] == word || label.to_string() == word;
    let other = || OTHER_WORDS.iter().find(|(other, _)| *other == word);
    let label = (0..CLASSES.len()).find(named).map(|label| label as i64);
    label.or_else(|| other().map(|(_, label)| i64::from(*label)))
}

/// Pixels on a side.
const SIDE: usize = 32;

/// Pixels of a picture.
const PIXELS: usize = SIDE * SIDE;

static INFO: TaskInfo = TaskInfo {
    name: "image",
    title: "Image",
    summary: "Which of ten things does a small picture show, read pixel by pixel in grey?",
    paper: "Krizhevsky 2009 (CIFAR-10); as a sequence of grey pixels in Tay et al. 2021 (arXiv:2011.04006)",
    version: 1,
    vocabulary: 256,
    first_id: 0,
    classes: CLASSES.len(),
    towers: 1,
    mask_ratio: 0.5,
    sources: &[Source::Official, Source::Synthetic],
    probe: false,
};

static REMOTE: [Remote; 1] = [Remote {
    url: "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    file: published::ARCHIVE,
    bytes: Some(170_052_171),
    sha256: Some("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    note: "no open licence: for research, not to be passed on",
}];

/// The image task.
pub struct Image;

#[derive(Debug, Serialize, Deserialize)]
struct Options {
    max_length: u32,
    /// Option for published pictures: whether some may be missing.
    allow_partial: bool,
    /// Options for the stand-in.
    #[serde(flatten)]
    drawn: DrawOptions,
}

const DEFAULTS: Options = Options {
    max_length: PIXELS as u32,
    allow_partial: false,
    drawn: DrawOptions {
        seed: 0,
        train: 8000,
        val: 500,
        test: 1000,
    },
};

impl Options {
    fn read(options: &Value) -> Result<Options> {
        let read: Options = parse(&INFO, &DEFAULTS, options)?;
        if ![64, 256, 1024].contains(&read.max_length) {
            let allowed = "1024 (32 x 32 pixels), 256 (16 x 16) or 64 (8 x 8)";
            return Err(refused(&INFO, "max_length", read.max_length, allowed));
        }
        read.drawn.check(&INFO)?;
        Ok(read)
    }

    /// Returns the pixels on a side of the stored pictures.
    fn side(&self) -> usize {
        self.max_length.isqrt() as usize
    }
}

impl Task for Image {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Value {
        json!(DEFAULTS)
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let options = Options::read(options)?;
        let (length, side) = (options.max_length as usize, options.side());
        let departures = [(length != PIXELS).then(|| length.to_string())];
        Ok(Shape::new(&INFO, length, departures).of_image(side, side))
    }

    /// Returns false: the choice of the validation pictures is part of the published task.
    fn has_protocols(&self, _source: Source) -> bool {
        false
    }

    fn unused_options(&self, source: Source) -> &'static [&'static str] {
        match source {
            Source::Official => &DRAW_OPTIONS,
            _ => &["allow_partial"],
        }
    }

    fn reads(&self, name: &str) -> bool {
        published::reads(name)
    }

    fn remote(&self) -> &'static [Remote] {
        &REMOTE
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = Options::read(request.options)?;
        match request.source {
            Source::Synthetic => synthetic::draw(&options, request.progress, writer),
            _ => published::build(&options, request, writer),
        }
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let mut text = String::new();
        for pixels in towers {
            let width = match pixels.len().isqrt() {
                side if side * side == pixels.len() => side.max(1),
                _ => SIDE,
            };
            for row in pixels.chunks(width) {
                text.extend(row.iter().flat_map(|&grey| [shade(grey); 2]));
                text.push('\n');
            }
        }
        let class = CLASSES.get(usize::from(label));
        text.push_str(class.unwrap_or(&"none of the ten classes"));
        text.push('\n');
        text
    }

    fn known(&self) -> Vec<Known> {
        published::known()
    }
}

/// Returns a character about as light as a grey value, on a dark terminal.
fn shade(grey: u8) -> char {
    const SHADES: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];
    SHADES[usize::from(grey) * SHADES.len() / 256]
}
