//! Multinomial logistic regression on few features, deterministic and without a learning rate.
//!
//! Each step solves the quadratic lower bound of the likelihood whose curvature is fixed (Böhning,
//! 1992, "Multinomial logistic regression algorithm", Ann. Inst. Statist. Math. 44): W += 2 (XᵀX +
//! λI)⁻¹ (Xᵀ(Y - P) - λW). The likelihood rises with every step, regardless of the scale of the
//! features. With N rows, F features and K classes, the cost is O(N·F²) once and O(N·F·K) a step.

use rayon::prelude::*;

/// Rows per unit of parallel work. Sums are computed per unit and added in order, so threads do not
/// change the result.
const CHUNK: usize = 1024;

/// Strength of the L2 penalty on all weights; keeps constant or equal features harmless.
const RIDGE: f64 = 1e-3;

/// Weights of a fitted classifier.
pub(crate) struct Logistic {
    features: usize,
    /// Shape (F, K), row by row.
    weights: Vec<f64>,
}

impl Logistic {
    /// Fits on (N, F) features and N labels below `classes`.
    pub(crate) fn fit(
        x: &[f64],
        labels: &[u8],
        features: usize,
        classes: usize,
        steps: usize,
    ) -> Logistic {
        let mut factor = in_order(x, labels, features, features * features, |sum, row, _| {
            for i in 0..features {
                for j in 0..=i {
                    sum[i * features + j] += row[i] * row[j];
                }
            }
        });
        for i in 0..features {
            factor[i * features + i] += RIDGE * (1.0 + factor[i * features + i]);
        }
        cholesky(&mut factor, features);

        let mut model = Logistic {
            features,
            weights: vec![0.0; features * classes],
        };
        for _ in 0..steps {
            let mut gradient = in_order(
                x,
                labels,
                features,
                features * classes,
                |sum, row, label| {
                    let mut error = model.probabilities(row);
                    for (class, error) in error.iter_mut().enumerate() {
                        *error = f64::from(u8::from(class == usize::from(label))) - *error;
                    }
                    for (sum, x) in sum.chunks_mut(classes).zip(row) {
                        for (sum, error) in sum.iter_mut().zip(&error) {
                            *sum += x * error;
                        }
                    }
                },
            );
            for (gradient, weight) in gradient.iter_mut().zip(&model.weights) {
                *gradient -= RIDGE * weight;
            }
            solve(&factor, features, &mut gradient, classes);
            for (weight, step) in model.weights.iter_mut().zip(&gradient) {
                *weight += 2.0 * step;
            }
        }
        model
    }

    /// Returns the most probable class of one row; the first of equals.
    pub(crate) fn predict(&self, row: &[f64]) -> usize {
        let scores = self.scores(row);
        (1..scores.len()).fold(0, |best, class| {
            if scores[class] > scores[best] {
                class
            } else {
                best
            }
        })
    }

    fn probabilities(&self, row: &[f64]) -> Vec<f64> {
        let mut scores = self.scores(row);
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        scores
            .iter_mut()
            .for_each(|score| *score = (*score - highest).exp());
        let total: f64 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= total);
        scores
    }

    fn scores(&self, row: &[f64]) -> Vec<f64> {
        let classes = self.weights.len() / self.features;
        let mut scores = vec![0.0; classes];
        for (x, weights) in row.iter().zip(self.weights.chunks(classes)) {
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score += x * weight;
            }
        }
        scores
    }
}

/// Adds up `add(sum, row, label)` over all rows into `size` numbers, in parallel, always in the
/// same order.
fn in_order(
    x: &[f64],
    labels: &[u8],
    features: usize,
    size: usize,
    add: impl Fn(&mut [f64], &[f64], u8) + Sync,
) -> Vec<f64> {
    let sums: Vec<Vec<f64>> = x
        .par_chunks(CHUNK * features)
        .zip(labels.par_chunks(CHUNK))
        .map(|(rows, labels)| {
            let mut sum = vec![0.0; size];
            for (row, &label) in rows.chunks(features).zip(labels) {
                add(&mut sum, row, label);
            }
            sum
        })
        .collect();
    let mut total = vec![0.0; size];
    for sum in sums {
        total
            .iter_mut()
            .zip(sum)
            .for_each(|(total, sum)| *total += sum);
    }
    total
}

/// Replaces the lower triangle of a positive definite (n, n) matrix A by L with A = L·Lᵀ.
fn cholesky(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - sum;
            // Rounding may leave a tiny or negative pivot; the ridge is the minimum of the
            // diagonal.
            a[i * n + j] = if i == j {
                rest.max(RIDGE).sqrt()
            } else {
                rest / a[j * n + j]
            };
        }
    }
}

/// Solves L·Lᵀ·X = B in place; L is (n, n), B is (n, columns).
fn solve(l: &[f64], n: usize, b: &mut [f64], columns: usize) {
    for column in 0..columns {
        for i in 0..n {
            let sum: f64 = (0..i).map(|k| l[i * n + k] * b[k * columns + column]).sum();
            b[i * columns + column] = (b[i * columns + column] - sum) / l[i * n + i];
        }
        for i in (0..n).rev() {
            let sum: f64 = (i + 1..n)
                .map(|k| l[k * n + i] * b[k * columns + column])
                .sum();
            b[i * columns + column] = (b[i * columns + column] - sum) / l[i * n + i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solves_a_linear_system() {
        let mut a = vec![4.0, 0.0, 2.0, 3.0]; // lower triangle of [[4, 2], [2, 3]]
        cholesky(&mut a, 2);
        let mut b = vec![8.0, 7.0]; // [[4, 2], [2, 3]] · (1.25, 1.5)
        solve(&a, 2, &mut b, 1);
        assert!(
            (b[0] - 1.25).abs() < 1e-12 && (b[1] - 1.5).abs() < 1e-12,
            "{b:?}"
        );
    }

    #[test]
    fn recovers_the_odds_of_a_table() {
        // One binary feature and a bias; class 1 in 30 of 100 without the feature, in 80 of 100
        // with it.
        let mut x = Vec::new();
        let mut labels = Vec::new();
        for row in 0..200 {
            let feature = f64::from(u8::from(row >= 100));
            x.extend([1.0, feature]);
            labels.push(u8::from(row % 100 < if row < 100 { 30 } else { 80 }));
        }
        // A step leaves a third of the distance at most.
        for steps in [8, 100] {
            let model = Logistic::fit(&x, &labels, 2, 2, steps);
            let without = model.probabilities(&[1.0, 0.0])[1];
            let with = model.probabilities(&[1.0, 1.0])[1];
            assert!(
                (without - 0.3).abs() < 1e-3 && (with - 0.8).abs() < 1e-3,
                "{steps} steps: {without} {with}"
            );
        }
    }

    /// At the optimum, the gradient of the likelihood is that of the penalty, for each weight.
    #[test]
    fn weights_are_penalized() {
        let x = [1.0, -1.0, 1.0, 0.5, 1.0, 2.0, 1.0, 3.0];
        let labels = [0, 1, 0, 1];
        let model = Logistic::fit(&x, &labels, 2, 2, 2000);
        for feature in 0..2 {
            for class in 0..2 {
                let rows = x.chunks(2).zip(labels);
                let gradient: f64 = rows
                    .map(|(row, label)| {
                        let is_class = f64::from(u8::from(usize::from(label) == class));
                        row[feature] * (is_class - model.probabilities(row)[class])
                    })
                    .sum();
                let weight = model.weights[2 * feature + class];
                assert!((gradient - RIDGE * weight).abs() < 1e-9, "{gradient}");
                assert!(weight.abs() > 0.01, "{weight}");
            }
        }
    }
}
