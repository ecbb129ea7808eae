//! Reproducible inputs for tests and benchmarks.

/// Generator of random numbers: SplitMix64 (Steele et al., 2014, "Fast splittable pseudorandom
/// number generators").
pub struct Sampler(u64);

impl Sampler {
    /// Returns a generator that begins from `seed`.
    pub fn new(seed: u64) -> Self {
        Sampler(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the next number of the interval [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns `len` roughly normal numbers of mean 0 and standard deviation `deviation`: scaled
    /// sums of six uniform ones.
    pub fn normal(&mut self, len: usize, deviation: f64) -> Vec<f32> {
        let one =
            |_| (((0..6).map(|_| self.uniform()).sum::<f64>() - 3.0) * 1.414 * deviation) as f32;
        (0..len).map(one).collect()
    }
}
