//! Tokens predicted from hidden states, beside a classification or before it: the predicted
//! positions, and their loss.
//!
//! Sequences are independent: a loss is the mean over the predicted positions of one sequence, and
//! draws are by row and position, so that neither padding nor the rest of the batch has an effect.

use candle_core::{D, DType, Tensor};

use crate::{
    Result, VarBuilder,
    head::PositionHead,
    loss::cross_entropies,
    ops::{segment_mean, take},
    rng::Stream,
};

/// A batch of sequences in host memory.
pub(crate) struct Sequences {
    ids: Vec<Vec<u32>>,
    /// Mask of valid tokens; all are valid if there is none.
    valid: Option<Vec<Vec<f32>>>,
}

/// Prediction targets of each sequence of a batch: positions, and the correct ids there.
pub(crate) struct Targets(Vec<Vec<(usize, u32)>>);

impl Sequences {
    /// Reads ids (B, L) and a mask (B, L), 1 for valid tokens; waits for the device.
    pub(crate) fn read(ids: &Tensor, valid: Option<&Tensor>) -> Result<Self> {
        let valid = valid.map(|valid| valid.to_dtype(DType::F32)?.to_vec2());
        Ok(Self {
            ids: ids.to_vec2()?,
            valid: valid.transpose()?,
        })
    }

    fn is_valid(&self, row: usize, position: usize) -> bool {
        let valid = self.valid.as_ref();
        valid.is_none_or(|valid| valid[row][position] > 0.0)
    }

    /// Returns as targets, at each valid position, the valid token `ahead` positions later.
    pub(crate) fn following(&self, ahead: usize) -> Targets {
        let row = |(row, ids): (usize, &Vec<u32>)| {
            let both = |at: &usize| self.is_valid(row, *at) && self.is_valid(row, at + ahead);
            let positions = (0..ids.len().saturating_sub(ahead)).filter(both);
            positions.map(|at| (at, ids[at + ahead])).collect()
        };
        Targets(self.ids.iter().enumerate().map(row).collect())
    }

    /// Returns about `share` of the valid tokens as targets, each drawn for itself, and one at least
    /// of every sequence that has any.
    pub(crate) fn some(&self, share: f64, stream: &Stream) -> Targets {
        let length = self.ids.first().map_or(0, Vec::len);
        let draws = stream.uniform(self.ids.len(), length);
        let row = |(row, ids): (usize, &Vec<u32>)| {
            let draws = &draws[row * length..][..length];
            let valid = || (0..length).filter(|at| self.is_valid(row, *at));
            let least = valid().map(|at| draws[at]).fold(1.0, f64::min);
            let drawn = valid().filter(|at| draws[*at] <= share.max(least));
            drawn.map(|at| (at, ids[at])).collect()
        };
        Targets(self.ids.iter().enumerate().map(row).collect())
    }

    /// Returns the ids (B, L) with `id` at every target position.
    pub(crate) fn hiding(&self, targets: &Targets, id: u32, like: &Tensor) -> Result<Tensor> {
        let mut ids = self.ids.clone();
        for (ids, targets) in ids.iter_mut().zip(&targets.0) {
            targets.iter().for_each(|(at, _)| ids[*at] = id);
        }
        let ids: Vec<u32> = ids.into_iter().flatten().collect();
        Ok(Tensor::from_vec(ids, like.dims(), like.device())?)
    }
}

/// Predicts tokens: softmax(W h + b) over ids.
pub(crate) struct Decoder(PositionHead);

impl Decoder {
    /// Creates parameters `weight` (V, D) and `bias` (V).
    pub(crate) fn new(vb: &VarBuilder, dim: usize, vocabulary: usize) -> Result<Self> {
        PositionHead::new(vb, dim, vocabulary).map(Self)
    }

    /// Predicts tokens from the hidden states (B, S, D) at the target positions, which stand
    /// `first` slots further on.
    pub(crate) fn answer(
        &self,
        hidden: &Tensor,
        first: usize,
        targets: &Targets,
    ) -> Result<TokenLosses> {
        let (batch, slots, _) = hidden.dims3()?;
        let (mut places, mut rows, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for (row, targets) in targets.0.iter().enumerate() {
            for (at, label) in targets {
                places.push((row * slots + first + at) as u32);
                rows.push(row as u32);
                labels.push(*label);
            }
        }
        let nothing = Tensor::zeros(batch, hidden.dtype(), hidden.device())?;
        if places.is_empty() {
            return Ok(TokenLosses {
                losses: nothing.clone(),
                right: nothing,
            });
        }
        let (count, device) = (places.len(), hidden.device());
        let rows = Tensor::from_vec(rows, (1, count), device)?;
        let labels = Tensor::from_vec(labels, count, device)?;
        let logits = self.0.forward(&pick(hidden, places)?)?; // (count, V)
        let by_row = |x: &Tensor| -> Result<Tensor> {
            let x = x.reshape((1, count, 1))?;
            Ok(segment_mean(&x, &rows, batch)?.flatten_all()?)
        };
        let right = logits.detach().argmax(D::Minus1)?.eq(&labels)?;
        Ok(TokenLosses {
            losses: by_row(&cross_entropies(&logits, &labels)?)?,
            right: by_row(&right.to_dtype(hidden.dtype())?)?,
        })
    }
}

/// Returns the rows (N, D) of x (B, S, D) at these `places`, N at least 1: state s of example b
/// stands at b · S + s.
pub(crate) fn pick(x: &Tensor, places: Vec<u32>) -> Result<Tensor> {
    let (batch, slots, dim) = x.dims3()?;
    let count = places.len();
    let places = Tensor::from_vec(places, (1, count), x.device())?;
    Ok(take(&x.reshape((1, batch * slots, dim))?, &places)?.squeeze(0)?)
}

/// Results of the predictions of each sequence, (B); zeros for a sequence without targets.
pub(crate) struct TokenLosses {
    /// Mean cross-entropy, in nats.
    pub(crate) losses: Tensor,
    /// Share of correct predictions; no gradient.
    pub(crate) right: Tensor,
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        rng::StreamKey,
        testing::{check_layer, parameters},
    };

    fn sequences() -> Sequences {
        let ids = Tensor::new(&[[1u32, 2, 3, 2], [3, 1, 0, 0], [0; 4]], &Device::Cpu).unwrap();
        let valid = [
            [1f64, 1.0, 1.0, 1.0],
            [1.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0],
        ];
        Sequences::read(&ids, Some(&Tensor::new(&valid, &Device::Cpu).unwrap())).unwrap()
    }

    #[test]
    fn what_follows_is_real_on_both_sides() {
        let sequences = sequences();
        let next = vec![vec![(0, 2), (1, 3), (2, 2)], vec![(0, 1)], vec![]];
        assert_eq!(sequences.following(1).0, next);
        assert_eq!(
            sequences.following(2).0,
            [vec![(0, 3), (1, 2)], vec![], vec![]]
        );
        assert!(sequences.following(4).0.iter().all(Vec::is_empty));
    }

    /// Padding in the middle is no token that could be asked for the one behind it.
    #[test]
    fn gaps_predict_nothing_and_are_not_predicted() {
        let ids = Tensor::new(&[[1u32, 2, 3, 4]], &Device::Cpu).unwrap();
        let valid = Tensor::new(&[[1f64, 0.0, 1.0, 1.0]], &Device::Cpu).unwrap();
        let sequences = Sequences::read(&ids, Some(&valid)).unwrap();
        assert_eq!(sequences.following(1).0, [vec![(2, 4)]]);
        assert_eq!(sequences.following(2).0, [vec![(0, 3)]]);
    }

    #[test]
    fn what_is_hidden_depends_on_the_row_alone_and_is_something() {
        let sequence = |rows: usize, length: usize| Sequences {
            ids: vec![vec![5; length]; rows],
            valid: None,
        };
        let stream =
            |first: u64| RngKey::new(3, 8, first).per_example(StreamKey::new("pretrain.hidden"));
        let whole = sequence(6, 500).some(0.15, &stream(0)).0;
        assert_eq!(sequence(2, 500).some(0.15, &stream(4)).0, whole[4..]);
        let targets: usize = whole.iter().map(Vec::len).sum();
        assert!((380..520).contains(&targets), "{targets} of 3000");
        // If a row is cut or padded, the draws of the remaining positions stay.
        let short = sequence(6, 300).some(0.15, &stream(0)).0;
        for (short, whole) in short.iter().zip(&whole) {
            assert_eq!(short[..], whole[..short.len()]);
        }
        let least = sequences().some(0.0, &stream(0)).0;
        let counts: Vec<usize> = least.iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 1, 0], "one of each row that has tokens");
    }

    #[test]
    fn hidden_tokens_are_replaced_and_nothing_else() {
        let like = Tensor::zeros((3, 4), DType::U32, &Device::Cpu).unwrap();
        let targets = Targets(vec![vec![(1, 2), (3, 2)], vec![(0, 3)], vec![]]);
        let hidden = sequences().hiding(&targets, 9, &like).unwrap();
        let expected = [[1, 9, 3, 9], [9, 1, 0, 0], [0; 4]];
        assert_eq!(hidden.to_vec2::<u32>().unwrap(), expected);
    }

    #[test]
    fn losses_are_means_over_what_each_row_was_asked() {
        let parameters = parameters();
        let decoder = Decoder::new(&parameters.builder(), 3, 4).unwrap();
        let hidden = crate::testing::normal("hidden", &[3, 5, 3]);
        let answers = |targets: &[(usize, u32)]| {
            let targets = Targets(vec![targets.to_vec(), vec![(0, 3)], vec![]]);
            let answers = decoder.answer(&hidden, 1, &targets).unwrap();
            (
                answers.losses.to_vec1::<f64>().unwrap(),
                answers.right.to_vec1::<f64>().unwrap(),
            )
        };
        let (both, first, second) = (
            answers(&[(0, 1), (3, 2)]),
            answers(&[(0, 1)]),
            answers(&[(3, 2)]),
        );
        assert!((both.0[0] - (first.0[0] + second.0[0]) / 2.0).abs() < 1e-12);
        assert!((both.1[0] - (first.1[0] + second.1[0]) / 2.0).abs() < 1e-12);
        assert_eq!((both.0[1], both.0[2]), (first.0[1], 0.0));
        // The state at slot 1 + position is the one that is read.
        let weights = parameters.all();
        let read = |name: &str| {
            let (_, actual) = weights.iter().find(|(path, _)| path == name).unwrap();
            actual.as_tensor().clone()
        };
        let state = hidden.get(0).unwrap().narrow(0, 4, 1).unwrap();
        let logits = state.matmul(&read("weight").t().unwrap()).unwrap();
        let logits = logits.broadcast_add(&read("bias")).unwrap();
        let label = Tensor::new(&[2u32], &Device::Cpu).unwrap();
        let expected = crate::loss::cross_entropy(&logits, &label).unwrap();
        assert!((second.0[0] - expected.to_scalar::<f64>().unwrap()).abs() < 1e-12);
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let decoder = Decoder::new(&parameters.builder(), 2, 4).unwrap();
        let targets = sequences().following(1);
        check_layer("decoder", &parameters, &[3, 5, 2], |x| {
            Ok(decoder.answer(x, 1, &targets)?.losses)
        });
    }
}
