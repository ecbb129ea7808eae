//! Directions and steps on the pixel grid, in the floating point of the original generator.
//!
//! Points and vectors are (y, x) with y down; an angle is measured from +x toward +y.

use std::f64::consts::PI;

/// Returns a whole degree in radians.
pub(super) fn radians(degree: i32) -> f64 {
    f64::from(degree) * PI / 180.0
}

/// Returns the opposite direction, radians within -pi..=pi.
pub(super) fn reversed(angle: f64) -> f64 {
    if angle < 0.0 { angle + PI } else { angle - PI }
}

/// Returns the vector (y, x) of this length in the direction `angle` (radians).
pub(super) fn vector(angle: f64, length: f64) -> (f64, f64) {
    (length * angle.sin(), length * angle.cos())
}

/// Returns the pixel at the offset `by` from another one: both coordinates are always rounded up.
/// The sum is taken before rounding, because the sine of a multiple of pi is not exactly zero, and
/// the error vanishes only when it is added to a large coordinate.
pub(super) fn step(from: (i32, i32), by: (f64, f64)) -> (i32, i32) {
    (
        ceil(f64::from(from.0) + by.0),
        ceil(f64::from(from.1) + by.1),
    )
}

/// Returns the ceiling of a value that fits an `i32`; `f64::ceil` is a library call where the
/// processor's rounding instruction is not enabled.
fn ceil(value: f64) -> i32 {
    let whole = value as i32;
    whole + i32::from(f64::from(whole) < value)
}
