//! HiPPO-LegS, the matrix that state spaces begin with. Gu et al., 2020, arXiv:2008.07669; Gupta et
//! al., 2022, arXiv:2203.14343.
//!
//! A = -(√(2n+1) √(2k+1) for n > k, n + 1 for n = k, else 0) is a normal matrix less one of rank 1:
//! S = A + p pᵀ, p_n = √(n + ½). The diagonal of S is -½ and the rest antisymmetric, so S = V (-½ +
//! i diag ω) V* with unitary V. This module computes ω and V.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Eigenvalues and eigenvectors of S (N, N).
pub struct Legs {
    /// ω (N), ascending; they lie around 0 in pairs.
    pub omega: Vec<f64>,
    /// V (N, N) by rows: `vectors[n][m]` is number n of the eigenvector m, as real and imaginary
    /// part.
    pub vectors: Vec<Vec<[f64; 2]>>,
}

/// The largest number of rows that [`legs`] is meant for, which take about a second.
pub const LARGEST: usize = 256;

/// Returns the eigenvalues and eigenvectors of S (N, N) for N = `size`. Each size is computed once.
#[must_use]
pub fn legs(size: usize) -> Arc<Legs> {
    static KNOWN: Mutex<BTreeMap<usize, Arc<Legs>>> = Mutex::new(BTreeMap::new());
    // A panicking thread leaves the map whole.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = known.entry(size);
    entry.or_insert_with(|| Arc::new(diagonalise(size))).clone()
}

/// The largest imaginary part of B that the published code of S4 begins with.
pub const LARGEST_B: f64 = 2.0;

/// HiPPO-LegS with its input, A x + b u, in the basis of the eigenvectors of S: diagonal, less P
/// P*. One of each pair of conjugates.
pub struct Modes {
    /// ω > 0 (N/2), ascending; the real parts are -½.
    pub omega: Vec<f64>,
    /// B = V* b (N/2), b_n = √(2n+1).
    pub b: Vec<[f64; 2]>,
    /// P = V* p (N/2).
    pub p: Vec<[f64; 2]>,
}

/// Returns the modes of S of `size` rows, the imaginary part of B within ±`clip`.
///
/// The phase of an eigenvector is free, and LAPACK's `heevd`, by which the published code finds
/// them, makes the first component real: then the real part of B is that component, at most 0.65,
/// and the clip meets all that grows with N.
#[must_use]
pub fn modes(size: usize, clip: Option<f64>) -> Modes {
    let basis = legs(size);
    let Legs { omega, vectors } = &*basis;
    let upper = size - size / 2..size;
    // V* times √2 p, which is b.
    let b = |m: usize| {
        let terms = vectors.iter().enumerate().map(|(n, row)| {
            let root = (2.0 * n as f64 + 1.0).sqrt();
            [row[m][0] * root, -row[m][1] * root]
        });
        let [re, im] = terms.fold([0.0; 2], |sum, x| [sum[0] + x[0], sum[1] + x[1]]);
        // Without a clip the phase has no effect: C has the same distribution at each.
        if clip.is_none() {
            return [re, im];
        }
        let first = vectors[0][m];
        let modulus = first[0].hypot(first[1]);
        let [cos, sin] = first.map(|part| part / modulus);
        [re * cos - im * sin, re * sin + im * cos]
    };
    let whole: Vec<[f64; 2]> = upper.clone().map(b).collect();
    let clipped = |[re, im]: [f64; 2]| match clip {
        Some(most) => [re, im.clamp(-most, most)],
        None => [re, im],
    };
    Modes {
        omega: upper.map(|m| omega[m]).collect(),
        b: whole.iter().copied().map(clipped).collect(),
        p: whole
            .iter()
            .map(|b| b.map(|part| part * 0.5f64.sqrt()))
            .collect(),
    }
}

fn diagonalise(size: usize) -> Legs {
    // -i times the antisymmetric part is Hermitian, with ω as its eigenvalues.
    let root = |n: usize| (2.0 * n as f64 + 1.0).sqrt();
    let entry = |n: usize, k: usize| {
        let half = 0.5 * root(n) * root(k);
        match n.cmp(&k) {
            std::cmp::Ordering::Greater => [0.0, half],
            std::cmp::Ordering::Less => [0.0, -half],
            std::cmp::Ordering::Equal => [0.0, 0.0],
        }
    };
    let matrix = (0..size).map(|n| (0..size).map(|k| entry(n, k)).collect());
    eigen(matrix.collect())
}

/// Returns a b.
fn mul(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

fn conj(a: [f64; 2]) -> [f64; 2] {
    [a[0], -a[1]]
}

/// Diagonalises a Hermitian matrix by Jacobi's rotations (Golub and Van Loan, 2013, section 8.5).
fn eigen(mut h: Vec<Vec<[f64; 2]>>) -> Legs {
    let size = h.len();
    let one = |n: usize, k: usize| [f64::from(u8::from(n == k)), 0.0];
    let mut v: Vec<Vec<[f64; 2]>> = (0..size)
        .map(|n| (0..size).map(|k| one(n, k)).collect())
        .collect();
    let scale = h
        .iter()
        .flatten()
        .map(|x| x[0].hypot(x[1]))
        .fold(0.0, f64::max);
    // Rotations of whole rounds converge quadratically; a dozen is more than 1,000 rows need.
    for _ in 0..60 {
        let mut largest = 0.0f64;
        for p in 0..size {
            for q in p + 1..size {
                let apart = h[p][q];
                let modulus = apart[0].hypot(apart[1]);
                largest = largest.max(modulus);
                if modulus <= 1e-17 * scale {
                    continue;
                }
                let phase = [apart[0] / modulus, -apart[1] / modulus];
                let tau = (h[q][q][0] - h[p][p][0]) / (2.0 * modulus);
                let t = tau.signum() / (tau.abs() + tau.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                let s = t * c;
                // New columns: p ← c p - s e^{-iφ} q, q ← s p + c e^{-iφ} q.
                let turned = |x: [f64; 2], y: [f64; 2]| {
                    let y = mul(y, phase);
                    let p = [c * x[0] - s * y[0], c * x[1] - s * y[1]];
                    (p, [s * x[0] + c * y[0], s * x[1] + c * y[1]])
                };
                for row in h.iter_mut().chain(&mut v) {
                    (row[p], row[q]) = turned(row[p], row[q]);
                }
                let (above, below) = h.split_at_mut(q);
                for (x, y) in above[p].iter_mut().zip(&mut below[0]) {
                    let (new_x, new_y) = turned(conj(*x), conj(*y));
                    (*x, *y) = (conj(new_x), conj(new_y));
                }
            }
        }
        if largest <= 1e-15 * scale {
            break;
        }
    }
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&a, &b| h[a][a][0].total_cmp(&h[b][b][0]));
    Legs {
        omega: order.iter().map(|&m| h[m][m][0]).collect(),
        vectors: v
            .iter()
            .map(|row| order.iter().map(|&m| row[m]).collect())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P stays what makes A of S.
    #[test]
    fn the_clip_changes_b_alone() {
        let (clipped, whole) = (modes(8, Some(LARGEST_B)), modes(8, None));
        assert_eq!(clipped.omega, whole.omega);
        let modulus = |x: &[f64; 2]| x[0].hypot(x[1]);
        for (m, (p, expected)) in clipped.p.iter().zip(&whole.p).enumerate() {
            let apart = modulus(p) - modulus(expected);
            assert!(apart.abs() < 1e-12, "{m}: {p:?} {expected:?}");
        }
        assert!(modulus(&clipped.b[3]) < 0.5 * modulus(&whole.b[3]));
    }

    #[test]
    fn vectors_are_unitary_and_diagonalise() {
        for size in [1, 2, 5, 16, 64] {
            let basis = legs(size);
            let Legs { omega, vectors } = &*basis;
            let root = |n: usize| (n as f64 + 0.5).sqrt();
            for m in 0..size {
                for n in 0..size {
                    // (S v)_n, of which -v/2 is left out on both sides.
                    let mut actual = [0.0; 2];
                    for (k, row) in vectors.iter().enumerate() {
                        let s = match n.cmp(&k) {
                            std::cmp::Ordering::Greater => -root(n) * root(k),
                            std::cmp::Ordering::Less => root(n) * root(k),
                            std::cmp::Ordering::Equal => 0.0,
                        };
                        actual = [actual[0] + s * row[m][0], actual[1] + s * row[m][1]];
                    }
                    let expected = mul([0.0, omega[m]], vectors[n][m]);
                    let apart = (actual[0] - expected[0]).hypot(actual[1] - expected[1]);
                    assert!(apart < 1e-9, "{size}: {apart}");
                    let product = vectors.iter().fold([0.0; 2], |sum, row| {
                        let term = mul(conj(row[m]), row[n]);
                        [sum[0] + term[0], sum[1] + term[1]]
                    });
                    let expected = f64::from(u8::from(m == n));
                    assert!((product[0] - expected).hypot(product[1]) < 1e-12);
                }
            }
            assert!(omega.is_sorted());
            assert!((omega[0] + omega[size - 1]).abs() < 1e-9, "pairs");
        }
    }
}
