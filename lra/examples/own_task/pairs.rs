//! Equal markers: a task of your own.
//!
//! Two sequences of 16 to `max_length` tokens, one in four of them a marker, A to D. The label is 1
//! if their last markers are equal.

use lra::datasets::prelude::*;

/// Tokens: the markers A to D are stored as 0 to 3, the filler as 4 to 11.
const MARKERS: u32 = 4;
const FILLERS: u32 = 8;
const SHORTEST: u32 = 16;

static INFO: TaskInfo = TaskInfo {
    name: "equal_markers",
    title: "Equal markers",
    summary: "Are the last markers of two noisy sequences equal?",
    paper: "none: an example",
    version: 1,
    // Id 0 is padding, and byte b is id b + 1.
    vocabulary: 1 + (MARKERS + FILLERS) as usize,
    first_id: 1,
    classes: 2,
    towers: 2,
    mask_ratio: 0.15,
    sources: &[Source::Generated],
    probe: true,
};

/// The keys under `data.`.
#[derive(Serialize, Deserialize)]
struct Options {
    #[serde(flatten)]
    drawn: DrawOptions,
    max_length: u32,
}

const DEFAULTS: Options = Options {
    drawn: DrawOptions {
        seed: 0,
        train: 20_000,
        val: 1000,
        test: 2000,
    },
    max_length: 64,
};

fn read(options: &Value) -> Result<Options> {
    let read: Options = parse(&INFO, &DEFAULTS, options)?;
    read.drawn.check(&INFO)?;
    within(&INFO, "max_length", read.max_length, SHORTEST..=65_536)?;
    Ok(read)
}

/// The task.
pub struct EqualMarkers;

impl Task for EqualMarkers {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn source(&self) -> &'static str {
        include_str!("pairs.rs")
    }

    fn defaults(&self) -> Value {
        json!(DEFAULTS)
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let length = read(options)?.max_length as usize;
        Ok(Shape::drawn(&INFO, length, &DEFAULTS, options))
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = read(request.options)?;
        let drawn = &options.drawn;
        // Classes are drawn in turn, so that both are equally frequent.
        drawn.draw(&INFO, request.progress, |split, rng, label| {
            let first = draw(rng, options.max_length);
            let mut second = draw(rng, options.max_length);
            while (last_marker(&first) == last_marker(&second)) != (label == 1) {
                second = draw(rng, options.max_length);
            }
            writer.row(split, &[&first, &second], label)
        })
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let lines = towers.iter().map(|tokens| tokens.iter().map(spell));
        let lines: Vec<String> = lines.map(Iterator::collect).collect();
        let answer = if label == 1 { "equal" } else { "different" };
        format!("{}\nlast markers: {answer}\n", lines.join("\n"))
    }
}

/// Draws a sequence with a marker in one of four places, and one at its beginning at least.
fn draw(rng: &mut ChaCha8Rng, longest: u32) -> Vec<u8> {
    let length = between(rng, SHORTEST..=longest);
    let token = |place| match place == 0 || below(rng, 4) == 0 {
        true => below(rng, MARKERS) as u8,
        false => (MARKERS + below(rng, FILLERS)) as u8,
    };
    (0..length).map(token).collect()
}

fn last_marker(tokens: &[u8]) -> u8 {
    let mut markers = tokens.iter().filter(|token| u32::from(**token) < MARKERS);
    markers.next_back().copied().unwrap_or_default()
}

fn spell(token: &u8) -> char {
    match u32::from(*token) {
        token @ 0..MARKERS => char::from(b'A' + token as u8),
        _ => '·',
    }
}

#[cfg(test)]
mod tests {
    use lra::datasets::conformance;

    use super::*;

    #[test]
    fn it_keeps_what_every_task_promises() {
        conformance::assert_kept(&EqualMarkers);
    }
}
