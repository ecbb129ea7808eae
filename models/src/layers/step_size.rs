//! Step sizes Δ of state spaces, log-uniform between the options `dt_min` and `dt_max` at first, as
//! S4 draws them (arXiv:2111.00396).

use candle_nn::Init;

use crate::Result;
use crate::error::require;

/// Returns the initial values of log Δ, uniform from log `dt_min` to log `dt_max`.
#[must_use]
pub fn log_uniform(dt_min: f64, dt_max: f64) -> Init {
    Init::Uniform {
        lo: dt_min.ln(),
        up: dt_max.ln(),
    }
}

/// Checks that the bounds are in order.
///
/// # Errors
/// If `dt_min` is larger than `dt_max`.
pub fn check(dt_min: f64, dt_max: f64) -> Result<()> {
    require(
        dt_min <= dt_max,
        "model.dt_min",
        dt_min,
        format!("at most model.dt_max = {dt_max}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_are_not_in_order_are_refused() {
        assert!(check(1e-3, 1e-3).is_ok() && check(1e-3, 0.1).is_ok());
        let message = check(0.1, 1e-3).unwrap_err().to_string();
        assert!(message.contains("model.dt_min"), "{message}");
    }
}
