//! Downscaling of a square picture with a Lanczos kernel that widens with the scale (no aliasing).
//!
//! Grey values of the release depend on the last bit of this filter, so it follows the behaviour of
//! the imaging library that was used: rows first, then columns; either in floating point without
//! clipping, or in 8 bits with fixed-point weights that clips after each pass.

/// Bits of the fixed-point weights of the 8-bit form.
const PRECISION: u32 = 22;

/// Weights of one output cell over the inputs `first..first + weights.len()`.
struct Window {
    first: usize,
    weights: Vec<f64>,
}

/// A filter from `inputs` to `outputs` cells per side.
pub(super) struct Lanczos {
    inputs: usize,
    outputs: usize,
    windows: Vec<Window>,
}

impl Lanczos {
    pub(super) fn new(inputs: usize, outputs: usize) -> Lanczos {
        let scale = inputs as f64 / outputs as f64;
        let support = 3.0 * scale;
        let inverse = 1.0 / scale;
        let windows = (0..outputs)
            .map(|output| {
                let centre = (output as f64 + 0.5) * scale;
                // The cast truncates and takes negative values to 0, both as intended.
                let first = (centre - support + 0.5) as usize;
                let end = ((centre + support + 0.5) as usize).min(inputs);
                let mut weights: Vec<f64> = (first..end)
                    .map(|input| lanczos3((input as f64 - centre + 0.5) * inverse))
                    .collect();
                let sum: f64 = weights.iter().sum();
                for weight in &mut weights {
                    *weight /= sum;
                }
                Window { first, weights }
            })
            .collect();
        Lanczos {
            inputs,
            outputs,
            windows,
        }
    }

    /// Shrinks a row-major `inputs` x `inputs` picture in floating point.
    pub(super) fn shrink_f32(&self, picture: &[f32]) -> Vec<f32> {
        self.two_passes(picture, |window, value| {
            let sum: f64 = window
                .weights
                .iter()
                .enumerate()
                .map(|(k, weight)| f64::from(value(window.first + k)) * weight)
                .sum();
            sum as f32
        })
    }

    /// Shrinks a row-major `inputs` x `inputs` picture in 8 bits.
    pub(super) fn shrink_u8(&self, picture: &[u8]) -> Vec<u8> {
        let one = f64::from(1u32 << PRECISION);
        self.two_passes(picture, |window, value| {
            let half = 1i64 << (PRECISION - 1);
            let sum = window
                .weights
                .iter()
                .enumerate()
                .fold(half, |sum, (k, weight)| {
                    sum + (weight * one).round() as i64 * i64::from(value(window.first + k))
                });
            (sum >> PRECISION).clamp(0, 255) as u8
        })
    }

    /// Shrinks, in floating point, a picture that is zero outside `rows` and `columns`. Returns the
    /// nonzero part of the result as (first row, first column, width, values).
    pub(super) fn shrink_patch(
        &self,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
        value: impl Fn(usize, usize) -> f32,
    ) -> Patch {
        let down = self.reached(&rows);
        let across = self.reached(&columns);
        let width = across.len();
        let mut half = vec![0.0f32; rows.len() * width];
        for (line, y) in half.chunks_exact_mut(width).zip(rows.clone()) {
            for (cell, x) in line.iter_mut().zip(across.clone()) {
                *cell = self.windows[x].sum_within(&columns, |input| value(y, input));
            }
        }
        let mut values = vec![0.0f32; down.len() * width];
        for (line, y) in values.chunks_exact_mut(width).zip(down.clone()) {
            for (x, cell) in line.iter_mut().enumerate() {
                *cell = self.windows[y]
                    .sum_within(&rows, |input| half[(input - rows.start) * width + x]);
            }
        }
        Patch {
            top: down.start,
            left: across.start,
            width,
            values,
        }
    }

    /// Returns the outputs whose windows touch any of `inputs`.
    fn reached(&self, inputs: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        let touches = |window: &Window| {
            window.first < inputs.end && window.first + window.weights.len() > inputs.start
        };
        let first = self.windows.iter().position(touches).unwrap_or(0);
        let end = self
            .windows
            .iter()
            .rposition(touches)
            .map_or(first, |last| last + 1);
        first..end
    }

    fn two_passes<T: Copy + Default>(
        &self,
        picture: &[T],
        weigh: impl Fn(&Window, &dyn Fn(usize) -> T) -> T,
    ) -> Vec<T> {
        assert_eq!(
            picture.len(),
            self.inputs * self.inputs,
            "a square picture of this filter's size"
        );
        let mut half = Vec::with_capacity(self.inputs * self.outputs);
        for row in picture.chunks_exact(self.inputs) {
            half.extend(
                self.windows
                    .iter()
                    .map(|window| weigh(window, &|input| row[input])),
            );
        }
        let mut result = Vec::with_capacity(self.outputs * self.outputs);
        for window in &self.windows {
            for x in 0..self.outputs {
                result.push(weigh(window, &|input| half[input * self.outputs + x]));
            }
        }
        result
    }
}

impl Window {
    fn sum_within(&self, inputs: &std::ops::Range<usize>, value: impl Fn(usize) -> f32) -> f32 {
        let first = self.first.max(inputs.start);
        let end = (self.first + self.weights.len()).min(inputs.end);
        let sum: f64 = (first..end)
            .map(|input| f64::from(value(input)) * self.weights[input - self.first])
            .sum();
        sum as f32
    }
}

/// Part of a shrunk picture; everything outside is zero.
pub(super) struct Patch {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) width: usize,
    pub(super) values: Vec<f32>,
}

fn lanczos3(u: f64) -> f64 {
    if (-3.0..3.0).contains(&u) {
        sinc(u) * sinc(u / 3.0)
    } else {
        0.0
    }
}

fn sinc(u: f64) -> f64 {
    if u == 0.0 {
        1.0
    } else {
        let angle = u * std::f64::consts::PI;
        angle.sin() / angle
    }
}
