//! Elementary functions on registers: exponentials and functions based on them.

use crate::simd::Lanes;

/// 1.5 * 2^23. Adding it leaves no bits for a fraction: the sum is rounded to the nearest integer,
/// which is in its low bits.
const TO_INTEGER: f32 = 12_582_912.0;

/// 2^f = 1 + f p(f) for |f| <= 1/2: interpolation at Chebyshev nodes, relative error 5.1e-9 before
/// rounding.
const POWER: [f32; 6] = [
    std::f32::consts::LN_2,
    0.240_226_5,
    0.055_503_57,
    0.009_618_083,
    0.001_339_086_4,
    0.000_154_531_63,
];

/// ln 2 split in two. The first part has so few bits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// The largest number below 128 ln 2. At the next one, 88.722839, the exponent field would be that
/// of NaN.
const EXP_MAX: f32 = 88.722_83;
/// The bound below which e^x is subnormal, and flushed to zero.
const EXP_MIN: f32 = -87.336_54;

/// Computes 2^fraction * 2^n, where `rounded` is n + [`TO_INTEGER`].
#[inline(always)]
fn power<S: Lanes>(s: S, fraction: S::f32s, rounded: S::f32s) -> S::f32s {
    let mut p = s.splat_f32s(POWER[5]);
    for i in (0..5).rev() {
        p = s.fma(p, fraction, s.splat_f32s(POWER[i]));
    }
    let p = s.fma(p, fraction, s.splat_f32s(1.0));
    // The exponent field starts at bit 23, and everything of `rounded` above its low bits is
    // shifted out.
    let n = s.wrapping_dyn_shl_u32s(s.transmute_u32s_f32s(rounded), s.splat_u32s(23));
    s.transmute_f32s_u32s(s.add_u32s(s.transmute_u32s_f32s(p), n))
}

/// Computes 2^x for x <= 127; 0 where the result would be subnormal. NaN stays NaN.
#[inline(always)]
pub fn exp2_bounded<S: Lanes>(s: S, x: S::f32s) -> S::f32s {
    let rounded = s.add_f32s(x, s.splat_f32s(TO_INTEGER));
    let n = s.sub_f32s(rounded, s.splat_f32s(TO_INTEGER));
    let y = power(s, s.sub_f32s(x, n), rounded);
    s.zero_below(x, -126.0, y)
}

/// Computes e^x, within 2 units in the last place; infinity or 0 where the result is not a normal
/// number. NaN stays NaN.
#[inline(always)]
pub fn exp<S: Lanes>(s: S, x: S::f32s) -> S::f32s {
    let log2e = s.splat_f32s(std::f32::consts::LOG2_E);
    let rounded = s.add_f32s(s.mul_f32s(x, log2e), s.splat_f32s(TO_INTEGER));
    let n = s.sub_f32s(rounded, s.splat_f32s(TO_INTEGER));
    let rest = s.fma(n, s.splat_f32s(-LN_2_HIGH), x);
    let rest = s.fma(n, s.splat_f32s(-LN_2_LOW), rest);
    let y = power(s, s.mul_f32s(rest, log2e), rounded);
    let y = s.zero_below(x, EXP_MIN, y);
    let overflows = s.greater_than_f32s(x, s.splat_f32s(EXP_MAX));
    s.select_f32s(overflows, s.splat_f32s(f32::INFINITY), y)
}

/// Computes 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<S: Lanes>(s: S, x: S::f32s) -> S::f32s {
    let one = s.splat_f32s(1.0);
    s.div_f32s(one, s.add_f32s(one, exp(s, s.neg_f32s(x))))
}

/// Computes the standard normal distribution at x: (density, cumulative probability), the latter
/// within 4e-7.
///
/// The cumulative probability is 1 - ½ t P(t) exp(-x²/2) with t = 1 / (1 + 0.3275911 |x| / √2) and
/// a polynomial P of degree 4 for x >= 0 (Abramowitz and Stegun, 1964, 7.1.26, an approximation of
/// erf at x / √2), and one minus that for x < 0.
#[inline(always)]
pub fn normal<S: Lanes>(s: S, x: S::f32s) -> (S::f32s, S::f32s) {
    const COEFFICIENTS: [f32; 5] = [
        1.061_405_4,
        -1.453_152,
        1.421_413_7,
        -0.284_496_74,
        0.254_829_6,
    ];
    let half = s.splat_f32s(0.5);
    let one = s.splat_f32s(1.0);
    let bell = exp(s, s.mul_f32s(s.mul_f32s(x, x), s.splat_f32s(-0.5)));
    let z = s.mul_f32s(s.abs_f32s(x), s.splat_f32s(std::f32::consts::FRAC_1_SQRT_2));
    let t = s.div_f32s(one, s.fma(z, s.splat_f32s(0.327_591_1), one));
    let mut p = s.splat_f32s(COEFFICIENTS[0]);
    for c in &COEFFICIENTS[1..] {
        p = s.fma(p, t, s.splat_f32s(*c));
    }
    let outside = s.mul_f32s(half, s.mul_f32s(s.mul_f32s(p, t), bell));
    let negative = s.less_than_f32s(x, s.splat_f32s(0.0));
    let share = s.select_f32s(negative, outside, s.sub_f32s(one, outside));
    let density = s.mul_f32s(bell, s.splat_f32s(0.398_942_3));
    (density, share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::Kernel;

    struct Apply<'a, F>(&'a [f32], &'a mut [f32], F);
    /// A function of one register, usable on every instruction set.
    trait Unary {
        fn at<S: Lanes>(&self, s: S, x: S::f32s) -> S::f32s;
    }
    impl<F: Unary> Kernel for Apply<'_, F> {
        type Output = ();
        #[inline(always)]
        fn run<S: Lanes>(self, s: S) {
            for (x, y) in self
                .0
                .chunks(S::F32_LANES)
                .zip(self.1.chunks_mut(S::F32_LANES))
            {
                s.partial_store_f32s(y, self.2.at(s, s.partial_load_f32s(x)));
            }
        }
    }

    struct Exp;
    impl Unary for Exp {
        fn at<S: Lanes>(&self, s: S, x: S::f32s) -> S::f32s {
            exp(s, x)
        }
    }
    struct Exp2;
    impl Unary for Exp2 {
        fn at<S: Lanes>(&self, s: S, x: S::f32s) -> S::f32s {
            exp2_bounded(s, x)
        }
    }
    struct Share;
    impl Unary for Share {
        fn at<S: Lanes>(&self, s: S, x: S::f32s) -> S::f32s {
            normal(s, x).1
        }
    }

    fn apply(isa: Isa, f: impl Unary, x: &[f32]) -> Vec<f32> {
        let mut y = vec![f32::NAN; x.len()];
        isa.run(Apply(x, &mut y, f));
        y
    }

    /// Largest error in units of the last place of the true value.
    fn ulps(x: &[f32], y: &[f32], truth: impl Fn(f64) -> f64) -> f64 {
        let error = |(x, y): (&f32, &f32)| {
            let truth = truth(f64::from(*x));
            let unit = f64::from((truth as f32).next_up()) - f64::from(truth as f32);
            (f64::from(*y) - truth).abs() / unit
        };
        x.iter().zip(y).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn exponentials_are_within_two_units_in_the_last_place() {
        let x: Vec<f32> = (0..200_003)
            .map(|i| -87.3 + 176.0 * i as f32 / 200_003.0)
            .collect();
        let x2: Vec<f32> = (0..200_003)
            .map(|i| -126.0 + 252.9 * i as f32 / 200_003.0)
            .collect();
        for isa in Isa::all() {
            let worst = ulps(&x, &apply(isa, Exp, &x), f64::exp);
            assert!(worst < 2.0, "{isa:?} exp {worst}");
            let worst = ulps(&x2, &apply(isa, Exp2, &x2), f64::exp2);
            assert!(worst < 2.0, "{isa:?} exp2 {worst}");
        }
    }

    #[test]
    fn exponentials_at_the_ends() {
        let x = [
            f32::NEG_INFINITY,
            -1e30,
            -88.0,
            0.0,
            88.72,
            88.73,
            1e30,
            f32::INFINITY,
            f32::NAN,
        ];
        for isa in Isa::all() {
            let y = apply(isa, Exp, &x);
            assert_eq!(y[..4], [0.0, 0.0, 0.0, 1.0]);
            assert!(y[4].is_finite());
            assert_eq!(y[5..8], [f32::INFINITY; 3]);
            assert!(y[8].is_nan());
            let y = apply(
                isa,
                Exp2,
                &[f32::NEG_INFINITY, -1e30, -127.0, 0.0, 3.0, f32::NAN],
            );
            assert_eq!(y[..5], [0.0, 0.0, 0.0, 1.0, 8.0]);
            assert!(y[5].is_nan());
        }
    }

    /// The payload of a NaN reaches into the bits that become the exponent.
    #[test]
    fn exponentials_of_what_is_not_a_number_are_none() {
        let payloads = (0..0x800).chain([0x3f_ffff]);
        let numbers = payloads.flat_map(|payload| [0x7fc0_0000, 0xffc0_0000].map(|x| x | payload));
        let x: Vec<f32> = numbers.map(f32::from_bits).collect();
        for isa in Isa::all() {
            for (name, y) in [("exp", apply(isa, Exp, &x)), ("exp2", apply(isa, Exp2, &x))] {
                for (x, y) in x.iter().zip(y) {
                    assert!(y.is_nan(), "{isa:?} {name} of {:x} is {y}", x.to_bits());
                }
            }
        }
    }

    #[test]
    fn every_number_near_the_ends_has_an_exponential() {
        let from = |first: f32, last: f32| (first.to_bits()..=last.to_bits()).map(f32::from_bits);
        let ends = from(88.5, 88.8).chain(from(87.2, 87.5));
        let x: Vec<f32> = ends.flat_map(|x| [x, -x]).collect();
        for isa in Isa::all() {
            for (x, y) in x.iter().zip(apply(isa, Exp, &x)) {
                let truth = f64::from(*x).exp();
                let expected = match *x {
                    x if x > EXP_MAX => y == f32::INFINITY,
                    x if x < EXP_MIN => y == 0.0,
                    _ => (f64::from(y) / truth - 1.0).abs() < 3e-7,
                };
                assert!(expected, "{isa:?} e^{x:e} is {y:e}");
            }
        }
    }

    #[test]
    fn the_normal_share_matches_erf() {
        let x: Vec<f32> = (0..40_001).map(|i| -10.0 + i as f32 / 2000.0).collect();
        for isa in Isa::all() {
            for (y, x) in apply(isa, Share, &x).iter().zip(&x) {
                let share = 0.5 + 0.5 * libm::erf(f64::from(*x) / 2f64.sqrt());
                assert!((f64::from(*y) - share).abs() < 4e-7);
            }
        }
    }
}
