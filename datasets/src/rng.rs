//! Random numbers as a pure function of (purpose, seed, stream): ChaCha8 with SHA-256(purpose,
//! seed) as its key and `stream` as its stream number. Each chunk of work takes its own stream, so
//! that results do not depend on threads.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// Returns the generator for `purpose` (a name that no other use has), `seed` and `stream`.
pub fn stream(purpose: &str, seed: u64, stream: u64) -> ChaCha8Rng {
    let key = Sha256::new()
        .chain_update(purpose.as_bytes())
        .chain_update(seed.to_le_bytes())
        .finalize();
    let mut rng = ChaCha8Rng::from_seed(key.into());
    rng.set_stream(stream);
    rng
}

/// Returns a whole number from 0 to `bound - 1`, each equally likely (Lemire, 2019,
/// arXiv:1805.10941). `bound` is at least 1.
pub fn below(rng: &mut ChaCha8Rng, bound: u32) -> u32 {
    debug_assert!(bound > 0);
    let mut product = u64::from(rng.next_u32()) * u64::from(bound);
    if (product as u32) < bound {
        let unfair = bound.wrapping_neg() % bound;
        while (product as u32) < unfair {
            product = u64::from(rng.next_u32()) * u64::from(bound);
        }
    }
    (product >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |purpose, seed, number| stream(purpose, seed, number).next_u32();
        assert_eq!(first("a", 1, 2), first("a", 1, 2));
        let all = [
            first("a", 1, 2),
            first("a", 1, 3),
            first("a", 2, 2),
            first("b", 1, 2),
        ];
        for (index, value) in all.iter().enumerate() {
            assert!(!all[..index].contains(value));
        }
    }

    /// Of four random words, three numbers get one each: without a redraw one would get two.
    #[test]
    fn below_is_uniform_for_large_bounds() {
        let mut rng = stream("test", 0, 0);
        let mut counts = [0_u32; 3];
        for _ in 0..3000 {
            counts[below(&mut rng, 3 << 30) as usize % 3] += 1;
        }
        // Standard deviation 26: five of them either side.
        assert!(
            counts.iter().all(|&count| count.abs_diff(1000) < 130),
            "{counts:?}"
        );
    }

    #[test]
    fn below_is_uniform() {
        let mut rng = stream("test", 0, 0);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[below(&mut rng, 7) as usize] += 1;
        }
        // Standard deviation 93: five of them either side.
        assert!(
            counts.iter().all(|&count| count.abs_diff(10_000) < 465),
            "{counts:?}"
        );
    }
}
