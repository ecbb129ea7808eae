//! Rows picked by position, in as few and as long copies as the positions allow.

use candle_core::Tensor;

use crate::Result;

/// Returns the rows of x (N, L, W) at `positions`, (N, n, W). Rows at positions from L on are any
/// finite numbers.
///
/// Neighbours are copied together, and if all are neighbours, no copy is made that can be avoided.
///
/// # Errors
/// If a tensor operation fails.
pub(super) fn gather(x: &Tensor, positions: &[u32]) -> Result<Tensor> {
    let ((rows, length, width), count) = (x.dims3()?, positions.len());
    let first = positions.first().map_or(0, |first| *first as usize);
    let end = positions.iter().max().map_or(0, |last| *last as usize + 1);
    let consecutive = (first as u32..).zip(positions).all(|(a, b)| a == *b);
    let unit = match consecutive {
        true => 1,
        false => common_unit(positions),
    };
    let x = match length.max(end).next_multiple_of(unit) - length {
        0 => x.clone(),
        missing => x.pad_with_zeros(1, 0, missing)?,
    };
    if consecutive {
        return Ok(x.narrow(1, first, count)?.contiguous()?);
    }
    let index = positions.iter().step_by(unit);
    let index: Vec<u32> = index.map(|start| start / unit as u32).collect();
    let index = Tensor::new(index, x.device())?;
    let x = x.reshape((rows, (), unit * width))?;
    Ok(x.index_select(&index, 1)?.reshape((rows, count, width))?)
}

/// Returns the greatest common divisor of all starts and lengths of runs of neighbours.
fn common_unit(positions: &[u32]) -> usize {
    let runs = positions.chunk_by(|one, next| one + 1 == *next);
    runs.fold(0, |unit, run| {
        greatest_common_divisor(greatest_common_divisor(unit, run[0] as usize), run.len())
    })
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => greatest_common_divisor(b, a % b),
    }
}

/// Returns positions of `blocks` counted from `first` on, each filled up to `size` by those after
/// its last, so that neighbours stay neighbours; and the first positions as often as it takes to
/// make `count` blocks.
pub(super) fn filled_up<'a>(
    blocks: impl Iterator<Item = &'a [u32]>,
    count: usize,
    size: usize,
    first: usize,
) -> Vec<u32> {
    let mut positions = Vec::with_capacity(count * size);
    for block in blocks {
        let end = positions.len() + size;
        positions.extend_from_slice(block);
        let next = block.last().map_or(0, |last| last + 1);
        positions.extend((next..).take(end - positions.len()));
    }
    while positions.len() < count * size {
        positions.extend(0..size as u32);
    }
    positions
        .iter_mut()
        .for_each(|position| *position += first as u32);
    positions
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::testing::check_gradient;

    #[test]
    fn rows_are_those_at_the_positions_whatever_runs_they_form() {
        let (rows, length) = (2, 10);
        let x = Tensor::arange(0u32, (rows * length) as u32, &Device::Cpu).unwrap();
        let x = x.to_dtype(DType::F64).unwrap();
        let x = x.reshape((rows, length, 1)).unwrap();
        for positions in [
            vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            vec![2, 3, 4],
            vec![8, 9, 10, 11],
            vec![4, 5, 0, 1, 4, 5],
            vec![8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7],
            vec![9, 3, 3],
            vec![1, 1, 3],
        ] {
            let actual = gather(&x, &positions).unwrap();
            let actual = actual.squeeze(2).unwrap().to_vec2::<f64>().unwrap();
            for (row, actual) in actual.iter().enumerate() {
                let valid = positions.iter().zip(actual).filter(|(at, _)| **at < 10);
                for (at, actual) in valid {
                    assert_eq!(
                        *actual,
                        (row * length) as f64 + f64::from(*at),
                        "{positions:?}"
                    );
                }
                assert_eq!(actual.len(), positions.len());
            }
        }
    }

    #[test]
    fn runs_are_copied_whole() {
        assert_eq!(common_unit(&[64, 65, 66, 67, 0, 1, 2, 3]), 4);
        assert_eq!(common_unit(&[6, 7, 8, 0, 1, 2]), 3);
        assert_eq!(common_unit(&[1, 2, 5, 6]), 1);
    }

    #[test]
    fn gradients_agree_with_differences() {
        for positions in [
            vec![2, 3, 0, 1, 2, 3, 4, 5],
            vec![1, 2, 0, 4, 4],
            vec![1, 2, 3],
        ] {
            check_gradient("gather", &[&[2, 5, 2]], |inputs| {
                gather(&inputs[0], &positions)
            });
        }
    }
}
