//! Sequences of a batch one after the other, without the padding between them: PyTorch's jagged
//! layout, the `cu_seqlens` of attention kernels.
//!
//! Layers that treat every position alike compute the same on (1, T, D) as on (B, L, D), for the T
//! positions that are valid. Layers that look along a sequence get the offset of each; random
//! numbers are those of the padded batch.

use std::sync::Arc;

use candle_core::{DType, Tensor};

use crate::{
    Mask, Result,
    ops::{IGNORE_INDEX, move_rows},
};

/// Layout of the sequences of a batch.
#[derive(Clone, Copy)]
pub enum Sequences<'a> {
    /// Sequences (B, L, D), every position of which is valid.
    Full,
    /// Sequences (B, L, D), some positions of which are padding.
    Padded(&'a Mask),
    /// Sequences (1, T, D) in place of (B, L, D): the T valid positions, without padding.
    Packed(&'a Packing),
}

/// Packed form (1, T, D) of the sequences of a batch (B, L, D). It has only the T valid positions,
/// one sequence after the other.
pub struct Packing {
    mask: Mask,
    /// (B + 1): where each sequence begins, and where the last one ends.
    offsets: Arc<[usize]>,
    /// (B, L) before packing.
    padded: (usize, usize),
    /// (T): where each row lies in the padded batch.
    to_packed: Arc<[u32]>,
    /// (B L): where each row lies in the packed batch; nowhere if it is padding.
    to_padded: Arc<[u32]>,
}

impl Packing {
    /// Returns the packing of the valid positions of `mask` (B, L). `None` if no position is valid,
    /// if a sequence has padding before a valid position, or if there are more positions than a u32
    /// can number.
    ///
    /// # Errors
    /// If the mask cannot be read.
    pub fn new(mask: &Mask) -> Result<Option<Self>> {
        let (batch, length) = mask.valid().dims2()?;
        let valid = mask.valid().to_dtype(DType::F32)?.flatten_all()?;
        let valid: Vec<f32> = valid.to_vec1()?;
        let mut offsets = vec![0];
        let mut to_packed = Vec::with_capacity(valid.len());
        let mut to_padded = vec![IGNORE_INDEX; valid.len()];
        for (example, row) in valid.chunks_exact(length.max(1)).enumerate() {
            let count = row.iter().take_while(|valid| **valid != 0.0).count();
            if row[count..].iter().any(|valid| *valid != 0.0) {
                return Ok(None);
            }
            let first = example * length;
            for (l, place) in to_padded[first..first + count].iter_mut().enumerate() {
                let (Ok(from), Ok(to)) = (u32::try_from(first + l), u32::try_from(to_packed.len()))
                else {
                    return Ok(None);
                };
                to_packed.push(from);
                *place = to;
            }
            offsets.push(to_packed.len());
        }
        Ok((!to_packed.is_empty()).then(|| Self {
            mask: mask.clone(),
            offsets: offsets.into(),
            padded: (batch, length),
            to_packed: to_packed.into(),
            to_padded: to_padded.into(),
        }))
    }

    /// Returns the mask (B, L) of the padded batch.
    #[must_use]
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Returns B + 1 indices of rows of the packed batch: the first row of each of the B sequences,
    /// and the number T of all rows.
    #[must_use]
    pub fn offsets(&self) -> &Arc<[usize]> {
        &self.offsets
    }

    /// Returns T, the number of valid positions.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.to_packed.len()
    }

    /// Packs token ids (B, L) to (1, T).
    ///
    /// # Errors
    /// If there are not as many.
    pub(crate) fn pack_ids(&self, ids: &Tensor) -> Result<Tensor> {
        let places = Tensor::from_slice(&self.to_packed, self.rows(), ids.device())?;
        Ok(ids.flatten_all()?.index_select(&places, 0)?.unsqueeze(0)?)
    }

    /// Packs x (B, L, D) to (1, T, D), where T is the number of valid positions.
    ///
    /// # Errors
    /// If x does not have the B and L of the mask.
    pub fn pack(&self, x: &Tensor) -> Result<Tensor> {
        let ((batch, length), width) = (self.padded, x.dim(2)?);
        let rows = x.reshape((1, batch * length, width))?;
        move_rows(&rows, &self.to_packed, &self.to_padded)
    }

    /// Unpacks x (1, T, D) to (B, L, D), with zeros where there is padding. T is the number of
    /// valid positions.
    ///
    /// # Errors
    /// If x does not have T rows.
    pub fn unpack(&self, x: &Tensor) -> Result<Tensor> {
        let ((batch, length), width) = (self.padded, x.dim(2)?);
        let rows = move_rows(x, &self.to_padded, &self.to_packed)?;
        Ok(rows.reshape((batch, length, width))?)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        ops::testing::{Sampler, agree},
        testing::check_gradient,
    };

    fn packing(lengths: &[usize], most: usize) -> Option<Packing> {
        let row = |length: usize| (0..most).map(move |l| f64::from(u8::from(l < length)));
        let rows: Vec<f64> = lengths.iter().copied().flat_map(row).collect();
        let valid = Tensor::from_vec(rows, (lengths.len(), most), &Device::Cpu).unwrap();
        Packing::new(&Mask::new(&valid).unwrap()).unwrap()
    }

    #[test]
    fn what_is_packed_and_unpacked_has_zeros_for_padding() {
        let packing = packing(&[3, 0, 4, 1], 4).unwrap();
        assert_eq!(**packing.offsets(), [0, 3, 3, 7, 8]);
        let x = crate::testing::normal("x", &[4, 4, 2]);
        let packed = packing.pack(&x).unwrap();
        assert_eq!(packed.dims(), [1, 8, 2]);
        let back: Vec<Vec<Vec<f64>>> = packing.unpack(&packed).unwrap().to_vec3().unwrap();
        let x: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
        for (b, length) in [3, 0, 4, 1].into_iter().enumerate() {
            for l in 0..4 {
                let expected = if l < length { &x[b][l] } else { &vec![0.0; 2] };
                assert_eq!(&back[b][l], expected, "row {l} of sequence {b}");
            }
        }
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let packing = packing(&[3, 0, 4, 1], 4).unwrap();
        let mut sampler = Sampler::new(17);
        let inputs = [sampler.normal(&[4, 4, 5], 1.0)];
        let f = |x: &[Tensor]| Ok(packing.pack(&x[0])?);
        agree("pack", &inputs, f, f);
        let inputs = [sampler.normal(&[1, 8, 5], 1.0)];
        let f = |x: &[Tensor]| Ok(packing.unpack(&x[0])?);
        agree("unpack", &inputs, f, f);
        check_gradient("pack", &[&[4, 4, 2]], |x| packing.pack(&x[0]));
        check_gradient("unpack", &[&[1, 8, 2]], |x| packing.unpack(&x[0]));
    }

    #[test]
    fn gaps_and_nothing_at_all_are_not_packed() {
        assert!(packing(&[0, 0], 3).is_none());
        let valid = Tensor::new(&[[1.0, 0.0, 1.0f64]], &Device::Cpu).unwrap();
        assert!(Packing::new(&Mask::new(&valid).unwrap()).unwrap().is_none());
    }
}
