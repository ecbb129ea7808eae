//! A sequence as `stride` interleaved ones: position i goes to sequence i mod stride, place i /
//! stride.
//!
//! Attention over strided or dilated positions is then attention over neighbours.

use candle_core::Tensor;

use crate::Result;

/// Returns every `stride`-th position as a sequence of its own: x (B, H, L, E) becomes (B * stride,
/// H, ⌈L / stride⌉, E). Position i goes to sequence i mod stride. A sequence that is one position
/// shorter than the others ends in zeros.
///
/// # Errors
/// If a tensor operation fails.
pub fn deinterleave(x: &Tensor, stride: usize) -> Result<Tensor> {
    let (batch, heads, length, width) = x.dims4()?;
    let places = length.div_ceil(stride);
    Ok(x.pad_with_zeros(2, 0, places * stride - length)?
        .reshape((batch, heads, places, stride, width))?
        .permute((0, 3, 1, 2, 4))?
        .reshape((batch * stride, heads, places, width))?)
}

/// Returns the inverse of [`deinterleave`]: x (B * stride, H, ⌈L / stride⌉, E) becomes (B, H, L, E)
/// for L = `length`.
///
/// # Errors
/// If a tensor operation fails.
pub fn interleave(x: &Tensor, stride: usize, length: usize) -> Result<Tensor> {
    let (rows, heads, places, width) = x.dims4()?;
    let batch = rows / stride;
    Ok(x.reshape((batch, stride, heads, places, width))?
        .permute((0, 2, 3, 1, 4))?
        .reshape((batch, heads, places * stride, width))?
        .narrow(2, 0, length)?
        .contiguous()?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn positions_of_one_remainder_come_together_and_go_back() {
        let x = Tensor::arange(0.0, 14.0, &Device::Cpu).unwrap();
        let x = x.reshape((2, 1, 7, 1)).unwrap();
        let folded = deinterleave(&x, 3).unwrap();
        let rows: Vec<Vec<f64>> = folded.reshape((6, 3)).unwrap().to_vec2().unwrap();
        assert_eq!(rows[0], [0.0, 3.0, 6.0]);
        assert_eq!(rows[1], [1.0, 4.0, 0.0]);
        assert_eq!(rows[5], [9.0, 12.0, 0.0]);
        let back = interleave(&folded, 3, 7).unwrap();
        let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(values(&back), values(&x));
    }
}
