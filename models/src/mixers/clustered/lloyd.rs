//! Clusters of vectors by their hashes: k-means in Hamming space, after Lloyd.
//!
//! A centroid has as many bits as a hash. Each position joins the nearest centroid, the first one
//! in case of a tie. A bit of a centroid becomes 1 if more than half of its positions have it. All
//! arithmetic is on integers and on the host, so the clusters are the same on every machine.

use rayon::prelude::*;

use crate::{
    RngKey,
    ops::{Centroids, HammingKMeans, IGNORE_INDEX, Workspaces, linear},
    prelude::*,
};

/// Clustering of vectors by Lloyd's algorithm on hashes.
pub(super) struct Lloyd {
    pub(super) clusters: usize,
    /// Bits of a hash, at most 63.
    pub(super) bits: usize,
    /// Number of rounds, the last of which only assigns.
    pub(super) iterations: usize,
    /// Whether planes miss the origin.
    pub(super) bias: bool,
    pub(super) max_length: usize,
    /// Names the random streams.
    pub(super) path: String,
}

/// Random numbers of the clustering, the same for all examples and heads.
struct Draws {
    /// (bits, E + 1): normal vectors and thresholds.
    planes: Tensor,
    /// Positions, in the order in which they become centroids.
    starts: Vec<u32>,
    /// Centroids for clusters that have lost all positions, round after round.
    refills: Vec<u64>,
}

impl Lloyd {
    /// Returns the cluster of each vector of x (B, H, L, E), (B, H, L) of u32: a number below
    /// `clusters`, or [`IGNORE_INDEX`] at padding.
    ///
    /// Draws may be fixed: `planes` (bits, E + 1), `starts` (any number of positions) and `refills`
    /// (iterations - 1, clusters, bits), which are 1 or 0.
    pub(super) fn assign(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, heads, length, width) = x.dims4()?;
        let draws = self.draws(width, pass)?;
        let hashes = self.hashes(x, &draws.planes)?;
        let host = |valid: &Tensor| valid.to_device(&Device::Cpu)?.to_dtype(DType::F32);
        let valid = match pass.mask() {
            Some(mask) => host(mask.valid())?.to_vec2::<f32>()?,
            None => vec![vec![1.0; length]; batch],
        };
        let mut all = vec![IGNORE_INDEX; hashes.len()];
        let k_means = HammingKMeans {
            bits: self.bits,
            rounds: self.iterations,
            refills: &draws.refills,
        };
        let rows = all.par_chunks_mut(length).zip(hashes.par_chunks(length));
        let workspaces = Workspaces::new(rows.len(), || {
            let (hashes, found) = (Vec::with_capacity(length), Vec::with_capacity(length));
            (Centroids::with_capacity(self.clusters), hashes, found)
        });
        let run = |(centroids, of_valid, found): &mut (Centroids, Vec<u64>, Vec<u32>),
                   row: usize,
                   (clusters, hashes): (&mut [u32], &[u64])| {
            let valid = &valid[row / heads];
            let positions = || (0..length).filter(|&at| valid[at] > 0.0);
            let starts = draws.starts.iter().map(|start| *start as usize);
            let starts = starts.filter(|&start| start < length && valid[start] > 0.0);
            centroids.set(starts.take(self.clusters).map(|start| hashes[start]));
            if centroids.is_empty() {
                return;
            }
            of_valid.clear();
            of_valid.extend(positions().map(|at| hashes[at]));
            found.clear();
            found.resize(of_valid.len(), IGNORE_INDEX);
            k_means.run(of_valid, centroids, found);
            for (at, cluster) in positions().zip(found) {
                clusters[at] = *cluster;
            }
        };
        let rows = rows.enumerate();
        rows.for_each(|(row, of_row)| workspaces.lend(|memory| run(memory, row, of_row)));
        Ok(Tensor::from_vec(all, (batch, heads, length), &Device::Cpu)?)
    }

    /// Returns the hashes of x (.., E): bit b of a vector tells whether its product with plane b
    /// exceeds the plane's threshold. In f32 for any type of x.
    fn hashes(&self, x: &Tensor, planes: &Tensor) -> Result<Vec<u64>> {
        let width = x.dim(3)?;
        let x = x.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        let x = x.reshape(((), width))?.contiguous()?;
        let weights = planes.narrow(1, 0, width)?.contiguous()?;
        let thresholds: Vec<f32> = planes.narrow(1, width, 1)?.flatten_all()?.to_vec1()?;
        let products = linear(&x, &weights, None)?
            .flatten_all()?
            .to_vec1::<f32>()?;
        let hash = |products: &[f32]| {
            let pairs = products.iter().zip(&thresholds);
            word(pairs.map(|(product, threshold)| product > threshold))
        };
        Ok(products.par_chunks(self.bits).map(hash).collect())
    }

    fn draws(&self, width: usize, pass: &Pass) -> Result<Draws> {
        let rng = RngKey::new(pass.rng.seed(), pass.rng.step(), 0);
        let stream = |name: &str| rng.shared(StreamKey::new(&format!("{}.{name}", self.path)));
        let fixed = |name: &str| -> Result<Option<Vec<f64>>> {
            let numbers = pass
                .fixed(name)
                .map(|x| x.flatten_all()?.to_dtype(DType::F64)?.to_vec1());
            Ok(numbers.transpose()?)
        };
        let planes = match fixed("planes")? {
            Some(planes) => planes,
            None => stream("planes").normal(self.bits, width + 1),
        };
        let planes = Tensor::from_vec(planes, (self.bits, width + 1), &Device::Cpu)?;
        let planes = planes.to_dtype(DType::F32)?;
        let planes = match self.bias {
            true => planes,
            false => planes.narrow(1, 0, width)?.pad_with_zeros(1, 0, 1)?,
        };
        let starts = match fixed("starts")? {
            Some(starts) => starts.into_iter().map(|start| start as u32).collect(),
            None => {
                let keys = stream("starts").uniform(1, self.max_length);
                let mut order: Vec<u32> = (0..self.max_length as u32).collect();
                order.sort_by(|a, b| keys[*a as usize].total_cmp(&keys[*b as usize]));
                order
            }
        };
        let words = (self.iterations - 1) * self.clusters;
        let refills = match fixed("refills")? {
            Some(refills) => refills,
            None => stream("refills").uniform(words, self.bits),
        };
        if refills.len() != words * self.bits {
            let reason = format!(
                "{} fixed bits to begin {words} clusters with",
                refills.len()
            );
            return Err(Error::Input(reason));
        }
        let refills = refills.chunks(self.bits);
        let refills = refills.map(|bits| word(bits.iter().map(|bit| *bit > 0.5)));
        Ok(Draws {
            planes,
            starts,
            refills: refills.collect(),
        })
    }
}

/// Returns the number with these bits, the lowest first.
fn word(bits: impl Iterator<Item = bool>) -> u64 {
    bits.enumerate()
        .fold(0, |word, (place, bit)| word | u64::from(bit) << place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, rng::FixedDraws, testing::normal};

    fn lloyd(clusters: usize, iterations: usize) -> Lloyd {
        Lloyd {
            clusters,
            bits: 2,
            iterations,
            bias: true,
            max_length: 6,
            path: "clustered".to_owned(),
        }
    }

    /// Assigns clusters to six positions on a plane, hashed by the signs of their coordinates.
    fn assign(lloyd: &Lloyd, valid: Option<[f64; 6]>, starts: [f64; 3]) -> Vec<u32> {
        let signs = [
            [1.0, 1.0],
            [1.0, -1.0],
            [1.0, 1.0],
            [-1.0, -1.0],
            [-1.0, 1.0],
            [1.0, 1.0],
        ];
        let x = Tensor::new(&[[signs]], &Device::Cpu).unwrap();
        let planes = Tensor::new(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], &Device::Cpu).unwrap();
        let starts = Tensor::new(&starts, &Device::Cpu).unwrap();
        let words = (lloyd.iterations - 1) * lloyd.clusters;
        let refills = Tensor::zeros((words, lloyd.bits), DType::F64, &Device::Cpu).unwrap();
        let draws = [("planes", planes), ("starts", starts), ("refills", refills)];
        let draws = draws.map(|(name, draw)| (name.to_owned(), draw));
        let draws = FixedDraws::new(draws.into());
        let mask =
            valid.map(|valid| Mask::new(&Tensor::new(&[valid], &Device::Cpu).unwrap()).unwrap());
        let pass = Pass::new(false, RngKey::new(1, 0, 0)).with_fixed_draws(&draws);
        let found = lloyd.assign(&x, &pass.with_mask(mask.as_ref())).unwrap();
        found.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn positions_go_to_the_first_of_the_nearest_centroids() {
        // Centroids 11, 01 (first bit only) and 00: the first of those at one bit's distance from
        // 10 is taken.
        let clusters = assign(&lloyd(3, 1), None, [0.0, 1.0, 3.0]);
        assert_eq!(clusters, [0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn centroids_are_votes_and_ties_are_zeros() {
        // Start: 00 alone. Votes 4 of 6 and 4 of 6 make it 11, and with one cluster no position
        // moves.
        assert_eq!(assign(&lloyd(1, 2), None, [3.0, 0.0, 0.0]), [0; 6]);
        // Start: 01 and 00. The first takes 11 (thrice) and 01, whose votes are 4 and 3 of 4: 11.
        // The second has 00 and 10, a tie in the second bit: 00.
        let clusters = assign(&lloyd(2, 2), None, [1.0, 3.0, 0.0]);
        assert_eq!(clusters, [0, 0, 0, 1, 0, 0]);
        assert_eq!(
            assign(&lloyd(2, 1), None, [1.0, 3.0, 0.0]),
            [0, 0, 0, 1, 1, 0]
        );
    }

    #[test]
    fn what_has_lost_its_positions_begins_anew() {
        // With the same centroid twice, the second is empty, and starts again from 00, which is
        // nearer to the fourth position.
        let clusters = assign(&lloyd(2, 2), None, [0.0, 2.0, 0.0]);
        assert_eq!(clusters, [0, 0, 0, 1, 0, 0]);
        assert_eq!(assign(&lloyd(2, 1), None, [0.0, 2.0, 0.0]), [0; 6]);
    }

    #[test]
    fn padding_is_in_no_cluster_and_starts_none() {
        let valid = Some([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        let clusters = assign(&lloyd(2, 3), valid, [5.0, 3.0, 0.0]);
        assert_eq!(
            clusters,
            [0, 0, 0, IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX]
        );
        let nothing = assign(&lloyd(2, 3), Some([0.0; 6]), [5.0, 3.0, 0.0]);
        assert_eq!(nothing, [IGNORE_INDEX; 6]);
    }

    #[test]
    fn the_longest_length_decides_the_draws_and_this_one_does_not() {
        let lloyd = Lloyd {
            bits: 9,
            ..lloyd(3, 4)
        };
        let x = normal("x", &[2, 2, 6, 5]);
        let mask =
            Mask::new(&Tensor::new(&[[1.0, 1.0, 1.0, 1.0, 0.0, 0.0f64]; 2], &Device::Cpu).unwrap());
        let (mask, pass) = (mask.unwrap(), Pass::new(false, RngKey::new(1, 0, 0)));
        let padded = lloyd.assign(&x, &pass.with_mask(Some(&mask))).unwrap();
        let alone = x.narrow(2, 0, 4).unwrap().contiguous().unwrap();
        let alone = lloyd.assign(&alone, &pass).unwrap().to_vec3::<u32>();
        assert_eq!(
            padded.narrow(2, 0, 4).unwrap().to_vec3::<u32>().unwrap(),
            alone.unwrap()
        );
    }
}
