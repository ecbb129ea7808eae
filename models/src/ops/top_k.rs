//! The k largest or smallest elements along the last axis, ties in order of their index on every
//! device.

use candle_core::{D, DType, Tensor, WithDType};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::{check, take};
use crate::{Error, Result};

/// End of the order from which [`top_k`] takes elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The largest elements, in descending order.
    Largest,
    /// The smallest elements, in ascending order.
    Smallest,
}

/// Returns the `k` first elements of x (.., N) in `order` along the last axis, of length N: their
/// values (.., k), and their indices (.., k) of type u32.
///
/// Equal elements come in order of their index, which candle's own sort leaves open. NaN counts as
/// larger than every number, as in PyTorch. The choice is made on the host, so that it is the same
/// everywhere. A tensor on another device is copied to it. The gradient of the values goes to the
/// elements chosen. The choice itself has none.
///
/// It takes O(N + k log k) time for each row.
///
/// # Errors
/// If k is 0 or larger than N, if N does not fit a u32, or for a type without exact order here
/// (i64).
pub fn top_k(x: &Tensor, k: usize, order: Order) -> Result<(Tensor, Tensor)> {
    let width = x.dim(D::Minus1)?;
    check(
        (1..=width).contains(&k) && u32::try_from(width).is_ok(),
        "top-k",
        || format!("k = {k} of x {:?}", x.shape()),
    )?;
    let indices = match x.dtype() {
        DType::F32 | DType::BF16 | DType::F16 | DType::U8 => first::<f32>(x, DType::F32, k, order)?,
        DType::F64 | DType::U32 => first::<f64>(x, DType::F64, k, order)?,
        other => return Err(Error::Input(format!("top-k: x is {other:?}"))),
    };
    let mut shape = x.dims().to_vec();
    shape[x.rank() - 1] = k;
    let indices = Tensor::from_vec(indices, shape.as_slice(), x.device())?;
    let values = take(&x.unsqueeze(D::Minus1)?, &indices)?.squeeze(D::Minus1)?;
    Ok((values, indices))
}

/// Elements of a task, or one row if that has more.
const ELEMENTS: usize = 4096;

/// Elements with an integer of the same order.
trait Ordered: WithDType {
    /// An integer of twice the width: the element's order in the upper half, its index in the lower
    /// half.
    type Key: Copy + Ord + Send;

    /// Returns the sort key: equal for both zeros but for the index; largest for every NaN, or
    /// smallest if `reversed`.
    fn key(self, reversed: bool, index: usize) -> Self::Key;
    fn index(key: Self::Key) -> u32;
}

macro_rules! ordered {
    ($float:ty, $bits:ty, $key:ty) => {
        impl Ordered for $float {
            type Key = $key;

            fn key(self, reversed: bool, index: usize) -> $key {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                // Adding zero turns -0 into +0.
                let bits = (self + 0.0).to_bits();
                let order = match self.is_nan() {
                    true => <$bits>::MAX,
                    false if bits & SIGN == 0 => bits | SIGN,
                    false => !bits,
                };
                let order = if reversed { !order } else { order };
                (<$key>::from(order) << <$bits>::BITS) | index as $key
            }

            fn index(key: $key) -> u32 {
                key as u32
            }
        }
    };
}

ordered!(f32, u32, u64);
ordered!(f64, u64, u128);

/// Returns indices of the first `k` elements of each row, one row after the other.
fn first<T: Ordered>(x: &Tensor, dtype: DType, k: usize, order: Order) -> Result<Vec<u32>> {
    let width = x.dim(D::Minus1)?;
    let data = x.detach().to_dtype(dtype)?.flatten_all()?.to_vec1::<T>()?;
    let mut indices = vec![0; data.len() / width * k];
    let reversed = order == Order::Largest;
    let of_task = (ELEMENTS / width).max(1);
    let tasks = indices.par_chunks_mut(of_task * k);
    let tasks = tasks.zip(data.par_chunks(of_task * width));
    let keys = || Vec::with_capacity(if k > 1 { width } else { 0 });
    let workspaces = Workspaces::new(tasks.len(), keys);
    let run = |keys: &mut Vec<T::Key>, indices: &mut [u32], row: &[T]| {
        let row = row.iter().enumerate();
        let all = row.map(|(index, x)| x.key(reversed, index));
        if let [index] = indices {
            *index = all.min().map_or(0, T::index);
            return;
        }
        keys.clear();
        keys.extend(all);
        if k < width {
            keys.select_nth_unstable(k);
        }
        let first = &mut keys[..k];
        first.sort_unstable();
        for (index, key) in indices.iter_mut().zip(first) {
            *index = T::index(*key);
        }
    };
    tasks.for_each(|(indices, rows)| {
        workspaces.lend(|keys| {
            let rows = indices.chunks_mut(k).zip(rows.chunks(width));
            rows.for_each(|(indices, row)| run(keys, indices, row));
        });
    });
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::ops::testing::{Sampler, agree};
    use crate::testing::check_gradient;

    /// Returns indices by a stable sort of the whole row.
    fn sorted(row: &[f64], k: usize, order: Order) -> Vec<u32> {
        let mut indices: Vec<u32> = (0..row.len() as u32).collect();
        indices.sort_by(|a, b| {
            let (a, b) = (row[*a as usize], row[*b as usize]);
            let ascending = a.partial_cmp(&b).unwrap();
            match order {
                Order::Largest => ascending.reverse(),
                Order::Smallest => ascending,
            }
        });
        indices.truncate(k);
        indices
    }

    #[test]
    fn the_first_k_are_those_of_a_stable_sort() {
        let mut sampler = Sampler::new(61);
        let short = (1..38).flat_map(|width| (1..=width).map(move |k| (2, width, k)));
        // Tasks of two rows, and rows of more elements than a task has.
        for (count, width, k) in short.chain([(5, 1500, 3), (2, ELEMENTS + 1, 2)]) {
            // Few distinct values, so that most are tied.
            let rows: Vec<f64> = (0..count * width)
                .map(|_| (sampler.uniform() * 5.0).floor() - 2.0)
                .collect();
            let x = Tensor::from_vec(rows.clone(), (count, width), &Device::Cpu).unwrap();
            for order in [Order::Largest, Order::Smallest] {
                for dtype in [DType::F32, DType::F64, DType::BF16] {
                    let x = x.to_dtype(dtype).unwrap();
                    let (values, indices) = top_k(&x, k, order).unwrap();
                    let values = values.to_dtype(DType::F64).unwrap();
                    let (values, indices) = (
                        values.to_vec2::<f64>().unwrap(),
                        indices.to_vec2::<u32>().unwrap(),
                    );
                    for (i, row) in rows.chunks(width).enumerate() {
                        assert_eq!(indices[i], sorted(row, k, order), "{row:?}");
                        for (value, index) in values[i].iter().zip(&indices[i]) {
                            assert_eq!(*value, row[*index as usize]);
                        }
                    }
                }
            }
        }
    }

    /// The neighbours are one number in f32.
    #[test]
    fn whole_numbers_are_compared_exactly() {
        let x = Tensor::new(&[16_777_216u32, 16_777_217], &Device::Cpu).unwrap();
        let (values, indices) = top_k(&x, 1, Order::Largest).unwrap();
        assert_eq!(values.to_vec1::<u32>().unwrap(), [16_777_217]);
        assert_eq!(indices.to_vec1::<u32>().unwrap(), [1]);
    }

    #[test]
    fn zeros_are_equal_and_nan_is_the_largest() {
        let row = [0.0f32, f32::NAN, -0.0, f32::INFINITY, f32::NEG_INFINITY];
        let x = Tensor::new(&row, &Device::Cpu).unwrap();
        let indices = |order| {
            let (_, indices) = top_k(&x, 5, order).unwrap();
            indices.to_vec1::<u32>().unwrap()
        };
        assert_eq!(indices(Order::Largest), [1, 3, 0, 2, 4]);
        assert_eq!(indices(Order::Smallest), [4, 0, 2, 3, 1]);
    }

    #[test]
    fn the_gradient_goes_to_the_elements_chosen() {
        check_gradient("top-k", &[&[2, 3, 7]], |x| {
            Ok(top_k(&x[0], 4, Order::Largest)?.0)
        });
        let x = [Sampler::new(62).normal(&[3, 40], 1.0)];
        let f = |x: &[Tensor]| Ok(top_k(&x[0], 5, Order::Smallest)?.0);
        agree("top-k", &x, f, f);
    }

    #[test]
    fn a_k_out_of_range_is_an_error() {
        let x = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
        for k in [0, 4] {
            let message = top_k(&x, k, Order::Largest).unwrap_err().to_string();
            assert!(
                message.contains(&format!("k = {k} of x [2, 3]")),
                "{message}"
            );
        }
        assert!(top_k(&x.to_dtype(DType::I64).unwrap(), 1, Order::Largest).is_err());
    }
}
