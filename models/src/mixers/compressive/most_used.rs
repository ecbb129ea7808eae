//! Selection of the most used rows of the memory, by attention from segment to segment.

use std::ops::Range;

use super::Compressive;
use super::Evictions;
use crate::{
    mask::PADDED,
    ops::{
        IGNORE_INDEX,
        attention::{scores, with_columns},
    },
    prelude::*,
};

impl Compressive {
    /// Returns for each eviction but the last, which no segment sees, the ⌈S/c⌉ valid positions with
    /// the largest mean attention over heads and queries of the segment that pushes them out, in
    /// order; fewer if fewer are valid. (B, n).
    pub(super) fn most_used(
        &self,
        x: &Tensor,
        valid: &Tensor,
        evictions: &Evictions,
        seen: &[Range<usize>],
    ) -> Result<Tensor> {
        let recurrence = &self.recurrence;
        let batch = x.dim(0)?;
        let size = recurrence.segment;
        let [q, k, _] = recurrence.projections.unrotated(&x.detach())?;
        let (q, k) = (q.detach(), k.detach());
        let is_valid = valid.to_dtype(DType::F32)?.to_vec2::<f32>()?;
        let mut chosen: Vec<Vec<u32>> = vec![Vec::new(); batch];
        let pushing = seen.iter().enumerate().skip(evictions.first);
        for (segment, older) in pushing.take(evictions.count - 1) {
            let start = segment * size;
            let first = start.saturating_sub(recurrence.memory);
            let tokens = first..start + size; // all of them there: another segment follows
            // Older rows, memory and segment, as attention has them.
            let row = |chosen: &Vec<u32>| -> Vec<u32> {
                let older = chosen[older.clone()].iter().copied();
                older.chain(tokens.clone().map(|at| at as u32)).collect()
            };
            let keys: Vec<u32> = chosen.iter().flat_map(row).collect();
            let count = keys.len() / batch;
            let keys = Tensor::from_vec(keys, (batch, count), x.device())?;
            let last = start as i64 - recurrence.memory as i64;
            let positions = last - older.len() as i64..last;
            let positions = positions.chain(tokens.clone().map(|at| at as i64));
            let weights = self.weights(
                &q.narrow(1, start, size)?.contiguous()?,
                &take(&k, &keys)?,
                &Mask::new(&take(&valid.unsqueeze(2)?, &keys)?.squeeze(2)?)?,
                (start, positions.collect()),
            )?;
            let queries = valid.narrow(1, start, size)?.unsqueeze(2)?; // (B, S, 1)
            let used = weights.sum(1)?.broadcast_mul(&queries)?.sum(1)?;
            let used = used.to_dtype(DType::F32)?.to_vec2::<f32>()?;
            let out = first..start + size - recurrence.memory;
            for (row, chosen) in chosen.iter_mut().enumerate() {
                let mut rows: Vec<usize> =
                    out.clone().filter(|at| is_valid[row][*at] > 0.0).collect();
                let use_of = |at: &usize| used[row][older.len() + at - first];
                rows.sort_by(|a, b| use_of(b).total_cmp(&use_of(a)));
                rows.truncate(size.div_ceil(self.rate));
                rows.sort_unstable();
                let missing = size.div_ceil(self.rate) - rows.len();
                chosen.extend(std::iter::repeat_n(IGNORE_INDEX, missing));
                chosen.extend(rows.iter().map(|at| *at as u32));
            }
        }
        let count = chosen.first().map_or(0, Vec::len);
        Ok(Tensor::from_vec(
            chosen.concat(),
            (batch, count),
            x.device(),
        )?)
    }

    /// Returns attention (B, H, S, n) of the queries of the segment at `start` on keys at these
    /// positions.
    fn weights(
        &self,
        q: &Tensor,
        k: &Tensor,
        valid: &Mask,
        (start, positions): (usize, Vec<i64>),
    ) -> Result<Tensor> {
        let recurrence = &self.recurrence;
        let (relative, heads) = (&recurrence.relative, recurrence.heads);
        let queries = start as i64..(start + q.dim(1)?) as i64;
        let width = q.dim(2)? / heads;
        let q = relative.queries(q, start)?;
        let places = positions.iter().map(|position| Some(*position));
        let k = with_columns(k, heads, Some(&relative.places(places, k)?))?;
        let by_head = |x: &Tensor| x.reshape((x.dim(0)?, x.dim(1)?, heads, ()));
        let (q, k) = (by_head(&q)?, by_head(&k)?);
        let wider = (q.dim(3)? as f64 / width as f64).sqrt();
        let z = scores(&q.affine(wider, 0.0)?, &k)?; // (B, H, S, n)
        let z = match recurrence.causal {
            true => {
                let later = queries.flat_map(|i| positions.iter().map(move |j| *j > i));
                let hidden = later.map(|later| if later { -PADDED } else { 0.0 });
                let shape = (1, 1, z.dim(2)?, z.dim(3)?);
                let hidden = Tensor::from_vec(hidden.collect::<Vec<_>>(), shape, z.device())?;
                z.broadcast_add(&hidden.to_dtype(z.dtype())?)?
            }
            false => z,
        };
        softmax::masked(&z.detach(), Some(valid))
    }
}
