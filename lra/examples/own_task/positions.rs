//! Markers so far: a task of your own.
//!
//! A sequence of 16 to `max_length` tokens, one in four of them a marker, A to D. The label of each
//! position is the last marker up to there, and that of the sequence the one at its end.

use lra::datasets::prelude::*;

/// Tokens: the markers A to D are stored as 0 to 3, the filler as 4 to 11.
const MARKERS: u32 = 4;
const FILLERS: u32 = 8;
const SHORTEST: u32 = 16;

static INFO: TaskInfo = TaskInfo {
    name: "markers_so_far",
    title: "Markers so far",
    summary: "The last marker up to each position of a noisy sequence.",
    paper: "none: an example",
    version: 1,
    // Id 0 is padding, and byte b is id b + 1.
    vocabulary: 1 + (MARKERS + FILLERS) as usize,
    first_id: 1,
    classes: MARKERS as usize,
    towers: 1,
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
pub struct MarkersSoFar;

impl Task for MarkersSoFar {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn source(&self) -> &'static str {
        include_str!("positions.rs")
    }

    fn defaults(&self) -> Value {
        json!(DEFAULTS)
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let length = read(options)?.max_length as usize;
        let dense = Dense::new(MARKERS as usize, &["all"]);
        Ok(Shape::drawn(&INFO, length, &DEFAULTS, options).with_dense(Some(dense)))
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = read(request.options)?;
        let drawn = &options.drawn;
        drawn.draw(&INFO, request.progress, |split, rng, _| {
            let tokens = draw(rng, options.max_length);
            let mut positions = DenseRow::unlabelled(tokens.len());
            let mut label = 0;
            for (place, &token) in tokens.iter().enumerate() {
                if u32::from(token) < MARKERS {
                    label = token;
                }
                // Class, and group 0: scores are reported by group.
                positions.label(place, label, 0);
            }
            writer.dense_row(split, &tokens, label, &positions)
        })
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let tokens = towers.iter().copied().flatten();
        let text: String = tokens.map(spell).collect();
        format!("{text}\nlast marker: {}\n", spell(&label))
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
        conformance::assert_kept(&MarkersSoFar);
    }
}
