//! Toy: the first of four markers in a sequence. The task takes seconds, for tests and first steps.
//!
//! A sequence of 8 to `max_length` tokens is mostly filler; one position in four holds a marker.
//! The label is the first marker. Markers are uniform and independent, so classes are equally
//! likely, counting markers answers about half of the examples, and finding the first one answers
//! all. Stored bytes: 0 to 3 the markers A to D, 4 to 10 the fillers; model ids are one more, 0 is
//! padding.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Result;
use crate::options::{parse, within};
use crate::rng::{below, stream};
use crate::synthetic::DrawOptions;
use crate::{Request, Shape, Source, SplitName, SplitWriter, Task, TaskInfo};

const MARKERS: u32 = 4;
const FILLERS: u32 = 7;
const MIN_LENGTH: u32 = 8;

static INFO: TaskInfo = TaskInfo {
    name: "toy",
    title: "Toy",
    summary: "Which of four markers comes first in a short noisy sequence?",
    paper: "made for this program's own tests",
    version: 1,
    vocabulary: 1 + (MARKERS + FILLERS) as usize,
    first_id: 1,
    classes: MARKERS as usize,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Generated],
    probe: false,
};

/// The toy task.
pub struct Toy;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Options {
    #[serde(flatten)]
    drawn: DrawOptions,
    max_length: u32,
}

const DEFAULTS: Options = Options {
    drawn: DrawOptions {
        seed: 0,
        train: 2000,
        val: 256,
        test: 256,
    },
    max_length: 32,
};

impl Options {
    fn read(options: &Value) -> Result<Options> {
        let read: Options = parse(&INFO, &DEFAULTS, options)?;
        read.drawn.check(&INFO)?;
        within(&INFO, "max_length", read.max_length, MIN_LENGTH..=65_536)?;
        Ok(read)
    }

    /// Returns whether all options but the seed have their defaults.
    fn is_default(&self) -> bool {
        let mut defaults = DEFAULTS;
        defaults.drawn.seed = self.drawn.seed;
        *self == defaults
    }
}

impl Task for Toy {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Value {
        json!(DEFAULTS)
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let read = Options::read(options)?;
        let length = read.max_length;
        let departures = [(!read.is_default()).then(|| length.to_string())];
        Ok(Shape::new(&INFO, length as usize, departures))
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = Options::read(request.options)?;
        let DrawOptions {
            seed,
            train,
            val,
            test,
        } = options.drawn;
        request.progress.begin("drawing toy examples", None);
        for (number, (split, rows)) in SplitName::ALL
            .into_iter()
            .zip([train, val, test])
            .enumerate()
        {
            let mut rng = stream("toy", seed, number as u64);
            for _ in 0..rows {
                let tokens = draw_example(&mut rng, options.max_length);
                let label = first_marker(&tokens).unwrap_or_default();
                writer.row(split, &[&tokens], label)?;
            }
        }
        request.progress.finish();
        Ok(())
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let spell = |&token: &u8| match u32::from(token) {
            token if token < MARKERS => char::from(b'A' + token as u8),
            token if token < MARKERS + FILLERS => '·',
            _ => '?',
        };
        let text: String = towers
            .iter()
            .flat_map(|tokens| tokens.iter())
            .map(spell)
            .collect();
        format!("{text}\nfirst marker: {}\n", spell(&label))
    }
}

fn draw_example(rng: &mut ChaCha8Rng, max_length: u32) -> Vec<u8> {
    let length = MIN_LENGTH + below(rng, max_length - MIN_LENGTH + 1);
    let mut tokens: Vec<u8> = Vec::with_capacity(length as usize);
    let mut seen = false;
    for left in (0..length).rev() {
        let is_marker = below(rng, 4) == 0;
        let token = if is_marker || (!seen && left == 0) {
            seen = true;
            below(rng, MARKERS)
        } else {
            MARKERS + below(rng, FILLERS)
        };
        tokens.push(token as u8);
    }
    tokens
}

fn first_marker(tokens: &[u8]) -> Option<u8> {
    tokens
        .iter()
        .copied()
        .find(|&token| u32::from(token) < MARKERS)
}
