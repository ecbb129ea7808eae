//! The width at which a model has a given number of parameters.

use super::Resolved;

/// Settings that fix a width. If one of them is given, the width is not solved for.
pub(super) const FIXED_BY: [&str; 4] =
    ["block.dim", "block.qkv_dim", "block.mlp_dim", "head.hidden"];

/// Largest allowed distance from the wanted number of parameters, as a share of it.
const TOLERANCE: f64 = 0.2;

/// Preferred divisor of widths, the number of elements that kernels process at a time; used if the
/// result is near enough.
const COARSE: usize = 8;
/// Divisor of widths otherwise: two heads of equal width.
const FINE: usize = 2;
/// Largest width.
const WIDEST: usize = 512;

/// Sets the width at which the model has nearly `wanted` parameters. All widths of the block and
/// the head keep their ratio to `block.dim`.
///
/// If no width comes within a fifth of that number, as for models with weights for every pair of
/// positions, the model keeps the recipe's width, and a message is returned.
pub(super) fn solve(resolved: &mut Resolved, wanted: usize) -> Option<String> {
    let mut search = Search {
        start: resolved.spec.clone(),
        resolved,
        wanted,
    };
    let mut nearest = search.bisect();
    if !nearest.is_some_and(|found| search.fits(found)) {
        for width in (FINE..=WIDEST).step_by(FINE) {
            let Some(found) = search.at(width) else {
                continue;
            };
            nearest = search.nearer(nearest, found);
            if found.parameters > 2 * wanted {
                break;
            }
        }
    }
    match nearest.filter(|found| search.fits(*found)) {
        Some(found) => {
            search.set(found.width);
            None
        }
        None => {
            let width = search.start.block.dim;
            search.set(width);
            Some(format!(
                "the model has about {wanted} parameters at no width, so block.dim stays {width}"
            ))
        }
    }
}

/// A width, and the number of parameters at it.
#[derive(Clone, Copy)]
struct Found {
    width: usize,
    parameters: usize,
}

struct Search<'a> {
    resolved: &'a mut Resolved,
    /// The settings with the recipe's own widths.
    start: super::Spec,
    wanted: usize,
}

impl Search<'_> {
    /// Sets the width.
    fn set(&mut self, width: usize) {
        let (block, head) = (&self.start.block, &self.start.head);
        let scaled = |size: usize| (size * width).div_ceil(block.dim);
        let spec = &mut self.resolved.spec;
        spec.block.qkv_dim = scaled(block.qkv_dim);
        spec.block.mlp_dim = scaled(block.mlp_dim);
        spec.head.hidden = scaled(head.hidden);
        spec.block.dim = width;
    }

    /// Returns the number of parameters at a width; `None` if the model cannot have it.
    fn at(&mut self, width: usize) -> Option<Found> {
        self.set(width);
        let (_, parameters) = self.resolved.meta().ok()?;
        Some(Found {
            width,
            parameters: parameters.elements(),
        })
    }

    fn fits(&self, found: Found) -> bool {
        found.parameters.abs_diff(self.wanted) as f64 <= TOLERANCE * self.wanted as f64
    }

    fn nearer(&self, best: Option<Found>, found: Found) -> Option<Found> {
        let distance = |it: Found| it.parameters.abs_diff(self.wanted);
        Some(match best {
            Some(best) if distance(best) <= distance(found) => best,
            _ => found,
        })
    }

    /// Searches the multiples of [`COARSE`] for the nearest one, as the number of parameters grows
    /// with the width; gives up at a width that the model cannot have.
    fn bisect(&mut self) -> Option<Found> {
        let (mut low, mut high) = (0, WIDEST / COARSE + 1);
        let mut best = None;
        while high - low > 1 {
            let middle = match low {
                // A model of 2^17 parameters is seldom wider than 128.
                0 => high.min(16) / 2,
                _ => (low + high) / 2,
            };
            let Some(found) = self.at(middle.max(1) * COARSE) else {
                return best;
            };
            best = self.nearer(best, found);
            match found.parameters < self.wanted {
                true => low = middle.max(1),
                false => high = middle.max(1),
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::RunRequest;

    /// Returns a model of which all widths are the same.
    fn linear() -> Resolved {
        let request = RunRequest {
            task: "toy",
            model: "linear",
            recipe: "smoke",
            source: None,
            protocol: datasets::Protocol::Clean,
            seed: 0,
            assignments: &[],
        };
        request.resolve().unwrap()
    }

    fn parameters_at(width: usize) -> usize {
        let mut resolved = linear();
        let spec = &mut resolved.spec;
        (spec.block.dim, spec.block.qkv_dim) = (width, width);
        (spec.block.mlp_dim, spec.head.hidden) = (width, width);
        resolved.meta().unwrap().1.elements()
    }

    #[test]
    fn the_width_is_the_multiple_of_eight_that_comes_nearest() {
        let middle = (parameters_at(112) + parameters_at(120)) / 2;
        for (wanted, width) in [
            (parameters_at(16), 16),
            (parameters_at(56) * 97 / 100, 56),
            (parameters_at(64) * 103 / 100, 64),
            (middle - 10, 112),
            (middle + 10, 120),
        ] {
            let mut resolved = linear();
            assert_eq!(solve(&mut resolved, wanted), None);
            let (block, head) = (&resolved.spec.block, &resolved.spec.head);
            let widths = [block.dim, block.qkv_dim, block.mlp_dim, head.hidden];
            assert_eq!(widths, [width; 4], "{wanted}");
        }
    }

    #[test]
    fn an_even_width_is_taken_where_no_multiple_of_eight_comes_near() {
        for width in [12, 10] {
            let mut resolved = linear();
            assert_eq!(solve(&mut resolved, parameters_at(width)), None);
            assert_eq!(resolved.spec.block.dim, width);
        }
    }
}
