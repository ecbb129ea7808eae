//! Initial decays of gated recurrences.

use serde::{Deserialize, Serialize};

use super::inverse_softplus_of_steps;
use crate::rng::Stream;

/// Value of the option `decay_init`: the initial rates r at which states fade. A state is
/// multiplied by a = e^-r at each position. The rates decide whether a model keeps a token for one
/// step or for a thousand (LION, arXiv:2502.16249).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayInit {
    /// r = Δ / 2, as for the real part of HiPPO's modes. Δ is drawn from 0.001 to 0.1, uniformly in
    /// its logarithm.
    Hippo,
    /// r = Δ, as in Mamba (arXiv:2312.00752). Δ is drawn from 0.001 to 0.1, uniformly in its
    /// logarithm.
    LogUniform,
    /// a = 1 - 2^(-5 - h) in head h, from 0, as in RetNet (arXiv:2307.08621).
    Retention,
    /// Rates are those of a gate whose bias is 0 and whose weights are random, as in any linear
    /// map.
    Random,
}

impl DecayInit {
    /// Returns the rates r of `each` channels in each of `heads` heads, head by head. Random rates
    /// are drawn from `stream`. `None` for [`DecayInit::Random`], for which the caller sets the
    /// gate's bias to 0.
    #[must_use]
    pub fn rates(self, stream: &Stream, heads: usize, each: usize) -> Option<Vec<f64>> {
        let steps = || {
            let biases = inverse_softplus_of_steps(stream, heads * each).into_iter();
            biases.map(|bias| bias.exp().ln_1p())
        };
        match self {
            Self::Hippo => Some(steps().map(|step| 0.5 * step).collect()),
            Self::LogUniform => Some(steps().collect()),
            Self::Retention => {
                // Heads beyond the 48th remember as long as f64 can tell.
                let rate = |head: usize| -(-(-5.0 - head.min(47) as f64).exp2()).ln_1p();
                let rates = (0..heads).flat_map(|head| vec![rate(head); each]);
                Some(rates.collect())
            }
            Self::Random => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RngKey, StreamKey};

    #[test]
    fn rates_are_those_of_their_names() {
        let stream = RngKey::new(1, 0, 0).shared(StreamKey::new("decay"));
        let rates = |init: DecayInit| init.rates(&stream, 3, 200);
        let within = |rates: Vec<f64>, least: f64, most: f64| {
            assert!(rates.iter().all(|rate| (least..=most).contains(rate)));
            rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64
        };
        let (hippo, steps) = (rates(DecayInit::Hippo), rates(DecayInit::LogUniform));
        let hippo = within(hippo.unwrap(), 0.0005, 0.05);
        let steps = within(steps.unwrap(), 0.001, 0.1);
        assert!((steps - 0.01f64.ln()).abs() < 0.3, "{steps}");
        assert!((steps - hippo - 2.0f64.ln()).abs() < 1e-9);
        let retention = rates(DecayInit::Retention).unwrap();
        let decays = [0, 200, 400].map(|place| (-retention[place]).exp());
        for (decay, expected) in decays.iter().zip([31.0 / 32.0, 63.0 / 64.0, 127.0 / 128.0]) {
            assert!((decay - expected).abs() < 1e-12);
        }
        assert_eq!(rates(DecayInit::Random), None);
        let many = DecayInit::Retention.rates(&stream, 2000, 1).unwrap();
        assert!(many.iter().all(|rate| *rate > 0.0));
    }
}
