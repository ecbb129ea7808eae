//! Reversible residual blocks. Gomez et al., 2017, "The Reversible Residual Network",
//! arXiv:1707.04585; in Transformers since the Reformer (arXiv:2001.04451).
//!
//! ```text
//! a <- a + drop(mix(norm(b)));   b <- b + drop(feed(norm(a)))        at first a = b = x, at the end (a + b) / 2
//! ```
//!
//! Every step can be undone, b = b' - drop(feed(norm(a))) and so on, so the backward pass
//! recomputes what it needs from the last streams alone: memory does not grow with the number of
//! blocks, at the price of a second forward pass. Recomputed values differ from the first ones by
//! rounding.

use std::sync::Arc;

use candle_core::{Tensor, Var};

use super::Block;
use crate::{
    Mask, Pass, Result, RngKey,
    ops::checkpoint::{Checkpointed, GradInputs, backward_from, note_variables, with_history},
};

/// Runs x (B, L, D) through all blocks, to (B, L, D).
pub(super) fn forward(blocks: &Arc<Vec<Block>>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
    let mut streams = [x.detach(), x.detach()];
    let mut variables = Vec::new();
    for step in steps(blocks) {
        let change = step.forward(&streams[step.from], pass)?;
        note_variables(&change, &mut variables);
        streams[step.to] = (&streams[step.to] + change.detach())?;
    }
    let [a, b] = streams;
    if variables.is_empty() && !x.track_op() {
        return halfway(&a, &b);
    }
    let stack = Stack {
        blocks: blocks.clone(),
        train: pass.train,
        rng: pass.rng,
        mask: pass.mask().cloned(),
    };
    let y = Tensor::stack(&[a, b], 0)?; // (2, B, L, D)
    let y = with_history(x, &y, &variables, stack)?;
    halfway(&y.get(0)?, &y.get(1)?)
}

fn halfway(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Ok(((a + b)? * 0.5)?)
}

/// One residual step: stream `to` changes by the output of half a block on stream `from`.
struct Step<'a> {
    block: &'a Block,
    to: usize,
    from: usize,
}

impl Step<'_> {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self.to {
            0 => self.block.mix(x, pass),
            _ => match self.block.feed(x, pass)? {
                Some(change) => Ok(change),
                None => Ok(x.zeros_like()?),
            },
        }
    }
}

fn steps(blocks: &[Block]) -> impl DoubleEndedIterator<Item = Step<'_>> {
    blocks
        .iter()
        .flat_map(|block| [(0, 1), (1, 0)].map(|(to, from)| Step { block, to, from }))
}

/// The blocks, with all that is needed to run their steps again.
struct Stack {
    blocks: Arc<Vec<Block>>,
    train: bool,
    rng: RngKey,
    mask: Option<Mask>,
}

impl Checkpointed for Stack {
    const READS_OUTPUT: bool = true;

    fn backward(&self, y: &Tensor, dy: &Tensor, inputs: &GradInputs) -> Result<Tensor> {
        let pass = Pass::new(self.train, self.rng);
        let pass = pass.with_mask(self.mask.as_ref());
        let mut streams = [y.get(0)?, y.get(1)?];
        let mut gradients = [dy.get(0)?, dy.get(1)?];
        for step in steps(&self.blocks).rev() {
            let (to, from) = (step.to, step.from);
            let source = Var::from_tensor(&streams[from])?;
            let change = step.forward(&source, &pass)?;
            streams[to] = (&streams[to] - change.detach())?;
            let mut inner = backward_from(&change, &gradients[to])?;
            if let Some(gradient) = inner.remove(&source) {
                gradients[from] = (&gradients[from] + gradient)?;
            }
            inputs.accumulate_grads(&mut inner)?;
        }
        let [da, db] = gradients;
        Ok((da + db)?)
    }
}

#[cfg(test)]
mod tests;
