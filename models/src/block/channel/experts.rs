//! Sparsely gated mixture of experts. Shazeer et al., 2017, "Outrageously Large Neural Networks",
//! arXiv:1701.06538; two experts per token with weights renormalised: Lepikhin et al., 2020,
//! "GShard", arXiv:2006.16668; one expert per token: Fedus et al., 2021, "Switch Transformers",
//! arXiv:2101.03961.
//!     p = softmax(x W_r);   switch: y = p_e FFN_e(x), e = arg max p;   moe: y = Σ_{e in the two largest} p_e / (p_e1 + p_e2) FFN_e(x)
//! x, y (B, L, D), W_r (D, X), X experts, each a feed-forward network with its own weights.
//! In training an expert takes at most ⌈c n / X⌉ of a sequence's n valid tokens,
//! c = `block.expert_capacity`, in the order of positions, first choices before second ones (0: no
//! limit; evaluation has no limit). A token that is turned away gets 0 from that expert. Losses,
//! per sequence: `balance` = X Σ_e f_e P_e, with f_e the fraction of its valid tokens whose first
//! choice is e and P_e their mean p_e; `router_z` = their mean (log Σ exp(x W_r))² (Zoph et al.,
//! 2022, "ST-MoE", arXiv:2202.08906). The latter has weight 0 unless `train.aux.router_z` is set.
//! Departures: capacity and balance refer to one sequence, so no result depends on the rest of the
//! batch; padded tokens are not routed; the second expert is always used, where GShard draws; no
//! dropout within experts. Time O(L·k·D·F), k experts per token.

use candle_core::{D, DType, Tensor};

use super::ChannelMixer;
use crate::{
    Mask, Pass, Result, VarBuilder,
    layers::{FeedForward, FusedSublayer, Linear},
    loss::Loss,
    ops::softmax,
    options::BlockOptions,
    params::xavier_uniform,
};

const BALANCE: Loss = Loss::new("balance", 0.01);
const ROUTER_Z: Loss = Loss::new("router_z", 0.0);
/// Losses that routing adds to the cross-entropy.
pub const LOSSES: &[Loss] = &[BALANCE, ROUTER_Z];

/// A router and its experts.
pub struct Experts {
    router: Linear,
    experts: Vec<FeedForward>,
    /// Experts per token, 1 or 2.
    chosen: usize,
    /// c; 0 for no limit.
    capacity: f64,
}

impl Experts {
    /// Creates parameters `router` and one feed-forward network per expert under `expert.<number>`.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions, chosen: usize) -> Result<Self> {
        let (dim, count) = (block.dim, block.experts);
        let weight = xavier_uniform(dim, count);
        Ok(Self {
            router: Linear::new(&vb.pp("router"), dim, count, weight, None)?,
            experts: (0..count)
                .map(|expert| FeedForward::new(&vb.pp("expert").pp(expert), block))
                .collect::<Result<_>>()?,
            chosen: chosen.min(count),
            capacity: block.expert_capacity,
        })
    }

    /// Returns the experts of every token (B, L), first choice first, from probabilities (B, L, X);
    /// none for padding. Ties go to the lower number. Taken from one computation in f32, so that
    /// all types of numbers choose alike.
    fn choices(&self, probabilities: &Tensor, mask: Option<&Mask>) -> Result<Vec<Vec<Vec<usize>>>> {
        let host = |x: &Tensor| x.detach().to_dtype(DType::F32);
        let probabilities = host(probabilities)?.to_vec3::<f32>()?;
        let valid = mask
            .map(|mask| host(mask.valid())?.to_vec2::<f32>())
            .transpose()?;
        let token = |row: usize, position: usize, p: &Vec<f32>| {
            if valid
                .as_ref()
                .is_some_and(|valid| valid[row][position] == 0.0)
            {
                return Vec::new();
            }
            let mut order: Vec<usize> = (0..p.len()).collect();
            order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
            order.truncate(self.chosen);
            order
        };
        let rows = probabilities.iter().enumerate();
        Ok(rows
            .map(|(row, tokens)| {
                let tokens = tokens.iter().enumerate();
                tokens
                    .map(|(position, p)| token(row, position, p))
                    .collect()
            })
            .collect())
    }

    /// Returns the rows of (B L) that each expert takes.
    fn assign(&self, choices: &[Vec<Vec<usize>>], limited: bool) -> Vec<Vec<u32>> {
        let count = self.experts.len();
        let mut assigned = vec![Vec::new(); count];
        let mut first = 0;
        for tokens in choices {
            let valid = tokens.iter().filter(|token| !token.is_empty()).count() as f64;
            let room = match limited && self.capacity > 0.0 {
                true => (self.capacity * valid / count as f64).ceil() as usize,
                false => usize::MAX,
            };
            let mut taken = vec![0; count];
            for turn in 0..self.chosen {
                for (position, token) in tokens.iter().enumerate() {
                    if let Some(&expert) = token.get(turn)
                        && taken[expert] < room
                    {
                        taken[expert] += 1;
                        assigned[expert].push((first + position) as u32);
                    }
                }
            }
            first += tokens.len();
        }
        assigned
    }

    fn add_losses(
        &self,
        logits: &Tensor,
        probabilities: &Tensor,
        choices: &[Vec<Vec<usize>>],
        pass: &Pass,
    ) -> Result<()> {
        let (batch, length, count) = probabilities.dims3()?;
        // Each token's share of its sequence, (B, L): 1 / n, 0 for padding.
        let mut share = Vec::with_capacity(batch * length);
        let mut first_choices = vec![0.0; batch * count];
        for (row, tokens) in choices.iter().enumerate() {
            let valid = tokens.iter().filter(|token| !token.is_empty()).count();
            let weight = 1.0 / valid.max(1) as f64;
            for token in tokens {
                share.push(if token.is_empty() { 0.0 } else { weight });
                if let Some(expert) = token.first() {
                    first_choices[row * count + expert] += weight;
                }
            }
        }
        let constant = |values: Vec<f64>, shape: (usize, usize)| {
            Tensor::from_vec(values, shape, probabilities.device())?.to_dtype(probabilities.dtype())
        };
        let share = constant(share, (batch, length))?;
        let first_choices = constant(first_choices, (batch, count))?;
        let mean = probabilities.broadcast_mul(&share.unsqueeze(2)?)?.sum(1)?; // (B, X)
        let balance = ((mean * first_choices)?.sum(1)? * count as f64)?;
        pass.add_loss(&BALANCE, &balance)?;
        let max = logits.detach().max_keepdim(D::Minus1)?;
        let log_sum = logits
            .broadcast_sub(&max)?
            .exp()?
            .sum_keepdim(D::Minus1)?
            .log()?;
        let squares = (log_sum + max)?.squeeze(2)?.sqr()?; // (B, L)
        pass.add_loss(&ROUTER_Z, &(squares * share)?.sum(1)?)
    }
}

impl ChannelMixer for Experts {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, dim) = x.dims3()?;
        let logits = self.router.forward(x)?; // (B, L, X)
        let probabilities = softmax::masked(&logits, None)?;
        let choices = self.choices(&probabilities, pass.mask())?;
        if pass.wants_losses() {
            self.add_losses(&logits, &probabilities, &choices, pass)?;
        }
        let weights = match self.chosen {
            1 => probabilities,
            // Divided by the sum over the chosen experts, which a constant mask of 1 selects.
            _ => {
                let count = self.experts.len();
                let mut picked = vec![0f32; batch * length * count];
                for (token, experts) in choices.iter().flatten().enumerate() {
                    for expert in experts {
                        picked[token * count + expert] = 1.0;
                    }
                }
                let picked = Tensor::from_vec(picked, (batch, length, count), x.device())?;
                let chosen = (&probabilities * picked.to_dtype(x.dtype())?)?;
                // A padded token has chosen none: its sum is kept from 0.
                let total = chosen.sum_keepdim(D::Minus1)?.affine(1.0, 1e-9)?;
                chosen.broadcast_div(&total)?
            }
        };
        let x = x.reshape((batch * length, dim))?;
        let weights = weights.reshape((batch * length, self.experts.len()))?;
        let mut y = x.zeros_like()?;
        let inside = Pass::new(false, pass.rng);
        let assigned = self.assign(&choices, pass.train).into_iter();
        for (expert, rows) in assigned.enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let rows = Tensor::new(rows, x.device())?;
            let weight = weights.narrow(1, expert, 1)?.contiguous()?; // (B L, 1)
            let weight = weight.index_select(&rows, 0)?; // (n, 1)
            let taken = x.index_select(&rows, 0)?;
            let given = self.experts[expert].forward(&taken, FusedSublayer::default(), &inside)?;
            y = y.index_add(&rows, &given.broadcast_mul(&weight)?, 0)?;
        }
        Ok(y.reshape((batch, length, dim))?)
    }

    fn flops(&self, length: usize) -> u64 {
        let expert = self
            .experts
            .first()
            .map_or(0, |expert| expert.flops(length));
        self.router.flops(length) + self.chosen as u64 * expert
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        loss::AuxLosses,
        testing::{close, normal, parameters},
    };

    fn experts(count: usize, chosen: usize, capacity: f64) -> (crate::Parameters, Experts) {
        let block = BlockOptions {
            dim: 3,
            mlp_dim: 5,
            experts: count,
            expert_capacity: capacity,
            ..BlockOptions::default()
        };
        let parameters = parameters();
        let experts = Experts::new(&parameters.builder(), &block, chosen).unwrap();
        (parameters, experts)
    }

    fn pass(train: bool) -> Pass<'static> {
        Pass::new(train, RngKey::new(1, 0, 0))
    }

    /// Computes the definition, token by token: every expert computes every token, weighted by the
    /// router.
    fn by_definition(experts: &Experts, x: &Tensor) -> Tensor {
        let p = softmax::masked(&experts.router.forward(x).unwrap(), None).unwrap();
        let rows: Vec<Vec<Vec<f64>>> = p.to_vec3().unwrap();
        let mut weights = rows.clone();
        for (tokens, weights) in rows.iter().zip(&mut weights) {
            for (p, weights) in tokens.iter().zip(weights) {
                let mut order: Vec<usize> = (0..p.len()).collect();
                order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
                let total: f64 = match experts.chosen {
                    1 => 1.0,
                    k => order[..k].iter().map(|e| p[*e]).sum(),
                };
                for (place, expert) in order.iter().enumerate() {
                    weights[*expert] = if place < experts.chosen {
                        p[*expert] / total
                    } else {
                        0.0
                    };
                }
            }
        }
        let weights = Tensor::new(weights, &Device::Cpu).unwrap();
        let mut y = x.zeros_like().unwrap();
        for (expert, feed) in experts.experts.iter().enumerate() {
            let out = feed
                .forward(x, FusedSublayer::default(), &pass(false))
                .unwrap();
            let weight = weights.narrow(2, expert, 1).unwrap();
            y = (y + out.broadcast_mul(&weight).unwrap()).unwrap();
        }
        y
    }

    #[test]
    fn every_token_gets_its_experts_by_their_weights() {
        let x = normal("x", &[2, 7, 3]);
        for chosen in [1, 2] {
            let (_, experts) = experts(4, chosen, 0.0);
            let y = experts.forward(&x, &pass(true)).unwrap();
            close(&y, &by_definition(&experts, &x), 1e-7, &format!("{chosen}"));
        }
    }

    #[test]
    fn of_equal_probabilities_the_lower_number_wins() {
        let (_, experts) = experts(3, 2, 0.0);
        let probabilities = [[[0.2, 0.4, 0.4], [0.3, 0.3, 0.4], [0.2, 0.2, 0.2f64]]];
        let probabilities = Tensor::new(&probabilities, &Device::Cpu).unwrap();
        let choices = experts.choices(&probabilities, None).unwrap();
        assert_eq!(choices, [[[1, 2], [2, 0], [0, 1]]]);
    }

    /// Training that diverges is reported as such by the loss.
    #[test]
    fn a_token_of_no_numbers_has_experts_too() {
        let (_, experts) = experts(3, 2, 0.0);
        let probabilities = Tensor::new(&[[[f64::NAN; 3]]], &Device::Cpu).unwrap();
        let choices = experts.choices(&probabilities, None).unwrap();
        assert_eq!(choices[0][0].len(), 2);
    }

    #[test]
    fn one_expert_is_the_dense_network() {
        let x = normal("x", &[2, 7, 3]);
        let (_, experts) = experts(1, 1, 1.0);
        let dense = experts.experts[0].forward(&x, FusedSublayer::default(), &pass(false));
        close(
            &experts.forward(&x, &pass(true)).unwrap(),
            &dense.unwrap(),
            1e-12,
            "dense",
        );
    }

    #[test]
    fn gradients_agree_with_differences() {
        for chosen in [1, 2] {
            let (parameters, experts) = experts(3, chosen, 0.0);
            crate::testing::check_layer("experts", &parameters, &[2, 4, 3], |x| {
                experts.forward(x, &pass(true))
            });
        }
    }

    #[test]
    fn capacity_turns_later_tokens_away_and_padding_takes_no_place() {
        let (_, experts) = experts(2, 1, 1.0);
        // All tokens choose expert 0; row 1 has two valid tokens.
        let choices = vec![vec![vec![0]; 4], vec![vec![], vec![0], vec![0], vec![]]];
        let rows = |limited| -> Vec<u32> {
            let assigned = experts.assign(&choices, limited);
            assert!(assigned[1].is_empty());
            assigned[0].clone()
        };
        assert_eq!(rows(true), [0, 1, 5]);
        assert_eq!(rows(false), [0, 1, 2, 3, 5, 6]);
    }

    #[test]
    fn balanced_routing_has_the_least_loss_and_padding_none() {
        let (_, experts) = experts(2, 1, 0.0);
        let pass = pass(true);
        let probabilities = [
            [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]],
            [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9f64]],
        ];
        let probabilities = Tensor::new(&probabilities, &Device::Cpu).unwrap();
        let logits = probabilities.log().unwrap();
        let choices = [
            vec![vec![0], vec![1], vec![]],
            vec![vec![0], vec![0], vec![]],
        ];
        // log Σ exp(l + c) is c, also where an exponential would overflow.
        for c in [0.0, 1000.0] {
            let losses = AuxLosses::default();
            experts
                .add_losses(
                    &(&logits + c).unwrap(),
                    &probabilities,
                    &choices,
                    &pass.with_losses(&losses),
                )
                .unwrap();
            let means = losses.means().unwrap();
            assert_eq!((means[0].0, means[1].0), ("balance", "router_z"));
            // Row 0: 2 (1/2 1/2 + 1/2 1/2) = 1; row 1: 2 · 0.9.
            let balance = means[0].1.to_scalar::<f64>().unwrap();
            assert!((balance - 1.4).abs() < 1e-12, "{balance}");
            let router_z = means[1].1.to_scalar::<f64>().unwrap();
            assert!(
                (router_z - c * c).abs() < 1e-12 * (1.0 + c * c),
                "{router_z}"
            );
        }
    }
}
