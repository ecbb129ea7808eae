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

/// Computes e^x - 1, within 3 units in the last place, for x between -87 and 88; -1 for smaller x.
#[inline(always)]
pub fn exp_m1<S: Lanes>(s: S, x: S::f32s) -> S::f32s {
    // Near 0 by x (1 + x/2 (1 + x/3 (..))), since 1 has too few digits beside a small x.
    let mut series = s.splat_f32s(1.0);
    for n in (2..=9).rev() {
        let term = s.mul_f32s(x, s.splat_f32s(1.0 / n as f32));
        series = s.fma(term, series, s.splat_f32s(1.0));
    }
    let is_near = s.less_than_f32s(s.abs_f32s(x), s.splat_f32s(0.5));
    let far = s.sub_f32s(exp(s, x), s.splat_f32s(1.0));
    s.select_f32s(is_near, s.mul_f32s(x, series), far)
}

/// pi / 2 in three parts. Products of the first two with whole numbers below 2^13 are exact.
const HALF_PI: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_789_5e-8];
/// sin r = r + r^3 p(r^2) and cos r = 1 - r^2 / 2 + r^4 p(r^2) for |r| <= pi / 4, highest powers
/// first (Cephes library, `sinf` and `cosf`).
const SIN: [f32; 3] = [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1];
const COS: [f32; 3] = [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2];

/// The largest argument of a sine. Larger numbers are half a radian or more apart, so they say
/// nothing about the angle.
const LARGEST_ANGLE: f32 = 4_194_304.0;

/// Computes (sin x, cos x), within 1.5e-7 for |x| below 3000; (0, 1) for |x| above 2²². NaN stays
/// NaN.
#[inline(always)]
pub fn sin_cos<S: Lanes>(s: S, x: S::f32s) -> (S::f32s, S::f32s) {
    let too_large = s.greater_than_f32s(s.abs_f32s(x), s.splat_f32s(LARGEST_ANGLE));
    let x = s.select_f32s(too_large, s.splat_f32s(0.0), x);
    let quarters = s.mul_f32s(x, s.splat_f32s(std::f32::consts::FRAC_2_PI));
    let rounded = s.add_f32s(quarters, s.splat_f32s(TO_INTEGER));
    let n = s.sub_f32s(rounded, s.splat_f32s(TO_INTEGER));
    let mut r = x;
    for part in HALF_PI {
        r = s.fma(n, s.splat_f32s(-part), r);
    }
    let square = s.mul_f32s(r, r);
    let one = s.splat_f32s(1.0);
    let p = s.fma(s.splat_f32s(SIN[0]), square, s.splat_f32s(SIN[1]));
    let p = s.fma(p, square, s.splat_f32s(SIN[2]));
    let sin = s.fma(s.mul_f32s(p, square), r, r);
    let p = s.fma(s.splat_f32s(COS[0]), square, s.splat_f32s(COS[1]));
    let p = s.fma(p, square, s.splat_f32s(COS[2]));
    let p = s.fma(p, s.mul_f32s(square, square), one);
    let cos = s.fma(square, s.splat_f32s(-0.5), p);
    // The low two bits count the quarter turns: the lower one swaps sine and cosine, and the upper
    // one changes the sign of the sine. That of the cosine changes one quarter earlier.
    let bits = s.transmute_u32s_f32s(rounded);
    let next = s.add_u32s(bits, s.splat_u32s(1));
    let lowest = s.wrapping_dyn_shl_u32s(bits, s.splat_u32s(31));
    let is_odd = s.transmute_f32s_u32s(s.or_u32s(lowest, s.transmute_u32s_f32s(one)));
    let swaps = s.less_than_f32s(is_odd, s.splat_f32s(0.0));
    (
        signed(s, s.select_f32s(swaps, cos, sin), bits),
        signed(s, s.select_f32s(swaps, sin, cos), next),
    )
}

/// Computes -x where the second lowest bit is set, else x.
#[inline(always)]
fn signed<S: Lanes>(s: S, x: S::f32s, bits: S::u32s) -> S::f32s {
    let sign = s.wrapping_dyn_shl_u32s(bits, s.splat_u32s(30));
    let sign = s.and_u32s(sign, s.splat_u32s(1 << 31));
    s.transmute_f32s_u32s(s.xor_u32s(s.transmute_u32s_f32s(x), sign))
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

    struct ExpM1;
    impl Unary for ExpM1 {
        fn at<S: Lanes>(&self, s: S, x: S::f32s) -> S::f32s {
            exp_m1(s, x)
        }
    }
    struct Sin;
    impl Unary for Sin {
        fn at<S: Lanes>(&self, s: S, x: S::f32s) -> S::f32s {
            sin_cos(s, x).0
        }
    }
    struct Cos;
    impl Unary for Cos {
        fn at<S: Lanes>(&self, s: S, x: S::f32s) -> S::f32s {
            sin_cos(s, x).1
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
    fn exponentials_less_one_keep_the_digits_of_small_numbers() {
        let small = (0..60).flat_map(|i| [1.0, -1.0].map(|sign| sign * 2f32.powi(-i)));
        let x: Vec<f32> = (0..200_003)
            .map(|i| -87.0 + 175.0 * i as f32 / 200_003.0)
            .chain((0..20_003).map(|i| -1.0 + 2.0 * i as f32 / 20_003.0))
            .chain(small)
            .collect();
        for isa in Isa::all() {
            let worst = ulps(&x, &apply(isa, ExpM1, &x), f64::exp_m1);
            assert!(worst < 3.0, "{isa:?} {worst}");
        }
    }

    #[test]
    fn sines_and_cosines_are_those_of_f64() {
        let x: Vec<f32> = (0..400_003)
            .map(|i| -3000.0 + 6000.0 * i as f32 / 400_003.0)
            .chain((0..40_003).map(|i| -10.0 + 20.0 * i as f32 / 40_003.0))
            .collect();
        let error = |y: &[f32], truth: fn(f64) -> f64| {
            let errors = x.iter().zip(y);
            let errors = errors.map(|(x, y)| (f64::from(*y) - truth(f64::from(*x))).abs());
            errors.fold(0.0, f64::max)
        };
        for isa in Isa::all() {
            let (sin, cos) = (apply(isa, Sin, &x), apply(isa, Cos, &x));
            let worst = [error(&sin, f64::sin), error(&cos, f64::cos)];
            assert!(worst.iter().all(|it| *it < 1.5e-7), "{isa:?} {worst:?}");
            // Small angles keep their digits.
            let small: Vec<f32> = (1..40).map(|i| 2f32.powi(-i)).collect();
            let worst = ulps(&small, &apply(isa, Sin, &small), f64::sin);
            assert!(worst < 2.0, "{isa:?} {worst}");
        }
    }

    #[test]
    fn sines_and_cosines_of_large_numbers_are_bounded() {
        let large = (12..128).map(|i| 1.3 * 2f32.powi(i));
        let large: Vec<f32> = large.chain([f32::MAX, f32::INFINITY]).collect();
        let x: Vec<f32> = large.iter().flat_map(|x| [*x, -x]).collect();
        for isa in Isa::all() {
            let (sin, cos) = (apply(isa, Sin, &x), apply(isa, Cos, &x));
            for ((x, sin), cos) in x.iter().zip(sin).zip(cos) {
                let is_in_range = sin.abs() < 1.001 && cos.abs() < 1.001;
                assert!(is_in_range, "{isa:?} {x}: {sin} {cos}");
                let known = x.abs() <= LARGEST_ANGLE;
                assert!(
                    known || (sin, cos) == (0.0, 1.0),
                    "{isa:?} {x}: {sin} {cos}"
                );
            }
            let none = [f32::NAN];
            assert!(apply(isa, Sin, &none)[0].is_nan() && apply(isa, Cos, &none)[0].is_nan());
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
            let y = apply(isa, ExpM1, &[f32::NEG_INFINITY, -1e38, -88.0]);
            assert_eq!(y, [-1.0; 3]);
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
