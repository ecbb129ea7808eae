//! k-means in Hamming space, after Lloyd, over the hashes of one sequence. Nearly all of the work
//! is counting bits, many words at a time where a processor has instructions for that. Numbers are
//! integers, so that the instruction set does not affect the result.

/// Settings shared by all sequences that are clustered together.
#[derive(Clone, Copy)]
pub(crate) struct HammingKMeans<'a> {
    /// Bits of a hash, at most 63.
    pub(crate) bits: usize,
    /// Rounds of assignment and majority vote, the last of which only assigns.
    pub(crate) rounds: usize,
    /// Centroids for clusters that have lost all positions, as many for each round but the last.
    pub(crate) refills: &'a [u64],
}

/// Centroids of the clusters of one sequence, and the votes of its hashes for the next.
#[derive(Default)]
pub(crate) struct Centroids {
    hashes: Vec<u64>,
    /// Of each bit, the number of hashes that have it.
    ones: Vec<[u64; 64]>,
    sizes: Vec<u64>,
}

impl Centroids {
    /// Allocates memory for this many centroids.
    pub(crate) fn with_capacity(clusters: usize) -> Self {
        Centroids {
            hashes: Vec::with_capacity(clusters),
            ones: Vec::with_capacity(clusters),
            sizes: Vec::with_capacity(clusters),
        }
    }

    /// Starts with these centroids.
    pub(crate) fn set(&mut self, hashes: impl Iterator<Item = u64>) {
        self.hashes.clear();
        self.hashes.extend(hashes);
        self.ones.resize(self.hashes.len(), [0; 64]);
        self.sizes.resize(self.hashes.len(), 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

impl HammingKMeans<'_> {
    /// Writes the cluster of each hash to `clusters`, beginning with these centroids, of which
    /// there is one at least.
    pub(crate) fn run(self, hashes: &[u64], centroids: &mut Centroids, clusters: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vpopcntdq") {
                // SAFETY: the processor has these instructions, by the check above.
                return unsafe { run_avx512(self, hashes, centroids, clusters) };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: as above.
                return unsafe { run_avx2(self, hashes, centroids, clusters) };
            }
        }
        run_portable(self, hashes, centroids, clusters);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
fn run_avx512(
    k_means: HammingKMeans,
    hashes: &[u64],
    centroids: &mut Centroids,
    clusters: &mut [u32],
) {
    run_portable(k_means, hashes, centroids, clusters);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2(
    k_means: HammingKMeans,
    hashes: &[u64],
    centroids: &mut Centroids,
    clusters: &mut [u32],
) {
    run_portable(k_means, hashes, centroids, clusters);
}

/// Runs the rounds. Inlined into each of the versions above, so that the compiler vectorizes it for
/// each; closures would not be.
#[inline(always)]
fn run_portable(
    k_means: HammingKMeans,
    hashes: &[u64],
    centroids: &mut Centroids,
    clusters: &mut [u32],
) {
    let per_round = k_means.refills.len() / k_means.rounds.saturating_sub(1).max(1);
    let Centroids {
        hashes: centroids,
        ones,
        sizes,
    } = centroids;
    for round in 0..k_means.rounds {
        for (cluster, hash) in clusters.iter_mut().zip(hashes) {
            *cluster = nearest(centroids, *hash);
        }
        if round + 1 == k_means.rounds {
            return;
        }
        ones.fill([0; 64]);
        sizes.fill(0);
        for (cluster, hash) in clusters.iter().zip(hashes) {
            sizes[*cluster as usize] += 1;
            add_bits(*hash, &mut ones[*cluster as usize]);
        }
        let refills = &k_means.refills[round * per_round..];
        let mut moved = false;
        for (cluster, centroid) in centroids.iter_mut().enumerate() {
            let next = match sizes[cluster] {
                0 => refills[cluster],
                size => majority(&ones[cluster][..k_means.bits], size),
            };
            moved |= next != *centroid || sizes[cluster] == 0;
            *centroid = next;
        }
        if !moved {
            return; // Nothing would ever move again.
        }
    }
}

/// Returns the first of the centroids, one at least, that have the fewest bits other than `hash`.
#[inline(always)]
fn nearest(centroids: &[u64], hash: u64) -> u32 {
    // Bits above, number below: the least of these words.
    let mut least = u64::MAX;
    for (number, centroid) in (0_u64..).zip(centroids) {
        let apart = u64::from((centroid ^ hash).count_ones());
        least = least.min(apart << 32 | number);
    }
    least as u32
}

/// Adds each bit of a hash to its count.
#[inline(always)]
fn add_bits(hash: u64, ones: &mut [u64; 64]) {
    for (place, ones) in ones.iter_mut().enumerate() {
        *ones += hash >> place & 1;
    }
}

/// Returns the bits that more than half of `size` hashes have, of which as many have each.
#[inline(always)]
fn majority(ones: &[u64], size: u64) -> u64 {
    let mut word = 0;
    for (place, ones) in ones.iter().enumerate() {
        word |= u64::from(2 * ones > size) << place;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Sampler;

    /// Returns clusters by the definition, with all rounds, ties going to the first.
    fn by_definition(k_means: HammingKMeans, hashes: &[u64], mut centroids: Vec<u64>) -> Vec<u32> {
        let count = centroids.len();
        let nearest = |centroids: &[u64]| -> Vec<u32> {
            let of = |hash: &u64| {
                let apart = |cluster: &usize| (centroids[*cluster] ^ hash).count_ones();
                (0..count).min_by_key(apart).map(|cluster| cluster as u32)
            };
            hashes.iter().filter_map(of).collect()
        };
        for round in 1..k_means.rounds {
            let clusters = nearest(&centroids);
            for (cluster, centroid) in centroids.iter_mut().enumerate() {
                let members = hashes.iter().zip(&clusters);
                let members = members.filter(|(_, of)| **of as usize == cluster);
                let members: Vec<u64> = members.map(|(hash, _)| *hash).collect();
                let majority = |bit: usize| {
                    let ones: u64 = members.iter().map(|hash| *hash >> bit & 1).sum();
                    u64::from(2 * ones > members.len() as u64) << bit
                };
                *centroid = match members.is_empty() {
                    true => k_means.refills[(round - 1) * count + cluster],
                    false => (0..k_means.bits).map(majority).sum(),
                };
            }
        }
        nearest(&centroids)
    }

    /// With few bits there are ties, and clusters that lose all positions.
    #[test]
    fn wide_registers_change_nothing_and_clusters_are_those_of_the_definition() {
        let mut sampler = Sampler::new(5);
        for (bits, positions, count) in [(63, 300, 100), (5, 200, 37), (1, 9, 3), (40, 1, 1)] {
            let mut words = |count: usize| -> Vec<u64> {
                (0..count).map(|_| sampler.bits() >> (64 - bits)).collect()
            };
            let (hashes, refills) = (words(positions), words(3 * count));
            let centroids = hashes[..count].to_vec();
            for rounds in [1, 4] {
                let k_means = HammingKMeans {
                    bits,
                    rounds,
                    refills: &refills[..(rounds - 1) * count],
                };
                let [mut actual, mut portable] = [(); 2].map(|()| vec![u32::MAX; positions]);
                let mut own = Centroids::default();
                own.set(centroids.iter().copied());
                k_means.run(&hashes, &mut own, &mut actual);
                own.set(centroids.iter().copied());
                run_portable(k_means, &hashes, &mut own, &mut portable);
                assert_eq!(actual, portable, "{bits} bits");
                let expected = by_definition(k_means, &hashes, centroids.clone());
                assert_eq!(actual, expected, "{bits} bits, {rounds} rounds");
            }
        }
    }
}
