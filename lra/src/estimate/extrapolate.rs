//! Curves through two measured points.

/// A measured point: a size, and the value measured at it.
pub type Point = (f64, f64);

/// Returns the value at `size` of the line through two points. A falling line is taken as constant:
/// measurements are noisy, and costs do not fall.
pub fn line(first: Point, second: Point, size: f64) -> f64 {
    let slope = (second.1 - first.1) / (second.0 - first.0);
    first.1 + slope.max(0.0) * (size - first.0)
}

/// Returns the value at `size`, beyond the second point, of the power law through two points. Its
/// exponent is at most 2, that of the costliest model, and at least 0.
pub fn power_law(first: Point, second: Point, size: f64) -> f64 {
    let exponent = (second.1 / first.1).ln() / (second.0 / first.0).ln();
    second.1 * (size / second.0).powf(exponent.clamp(0.0, 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_go_through_their_points_and_never_fall() {
        assert_eq!(line((1.0, 10.0), (2.0, 13.0), 5.0), 22.0);
        assert_eq!(line((1.0, 10.0), (2.0, 9.0), 5.0), 10.0);
        let near = |is: f64, expected: f64| assert!((is - expected).abs() < 1e-9, "{is}");
        near(power_law((1.0, 10.0), (2.0, 20.0), 8.0), 80.0);
        near(power_law((1.0, 10.0), (2.0, 40.0), 8.0), 640.0);
        near(power_law((1.0, 10.0), (2.0, 160.0), 8.0), 160.0 * 16.0);
        near(power_law((1.0, 10.0), (2.0, 5.0), 8.0), 5.0);
    }
}
