use candle_core::{D, DType, Device, Tensor};

use super::super::{AttentionDropout, AttentionOptions, attention, attention_packed};
use super::*;
use crate::ops::testing::{Sampler, agree};

const ODD: f32 = -2.0;

/// A block mask with the pairs that it stands for.
struct Drawn {
    block_mask: BlockMask,
    tiles: Vec<Pairs>,
}

/// The queries of a tile, its keys, and for each pair the bias of the score; none if it is hidden.
type Pairs = (Vec<u32>, Vec<u32>, Vec<Option<f64>>);

/// Draws blocks of random sizes and positions; every tile with random query ranges or none. A block
/// mask that repeats_queries has each query in several blocks.
fn draw(sampler: &mut Sampler, (queries, keys): (usize, usize), repeats_queries: bool) -> Drawn {
    let mut below = |bound: usize| (sampler.bits() % bound as u64) as usize;
    let mut block_mask = BlockMask::new(ODD);
    if repeats_queries {
        block_mask = block_mask.repeating_queries();
    }
    let key_blocks: Vec<Vec<u32>> = (0..1 + keys / 40)
        .map(|_| (0..1 + below(64)).map(|_| below(keys) as u32).collect())
        .collect();
    for block in &key_blocks {
        block_mask.key_block(block.iter().copied());
    }
    let mut tiles = Vec::new();
    for _ in 0..1 + usize::from(repeats_queries) {
        let mut order: Vec<u32> = (0..queries as u32).collect();
        for i in 0..queries {
            order.swap(i, below(queries));
        }
        let mut rest = order.as_slice();
        while !rest.is_empty() {
            let (block, others) = rest.split_at((1 + below(64)).min(rest.len()));
            rest = others;
            block_mask.query_block(block.iter().copied());
            for _ in 0..below(4) {
                let chosen = below(key_blocks.len());
                let positions = &key_blocks[chosen];
                let mut biases = vec![Some(0.0); positions.len() * block.len()];
                let ranges = (below(2) == 0).then(|| {
                    let ranges: Vec<QueryRange> = (0..positions.len())
                        .map(|key| {
                            let (one, other) = (below(block.len() + 1), below(block.len() + 1));
                            let range = one.min(other)..one.max(other);
                            let diagonal = (below(3) == 0).then(|| below(block.len()));
                            for query in 0..block.len() {
                                let bias = &mut biases[query * positions.len() + key];
                                *bias = range.contains(&query).then_some(0.0);
                                if diagonal == Some(query) {
                                    *bias = bias.map(|bias| bias + f64::from(ODD));
                                }
                            }
                            QueryRange::new(range, diagonal)
                        })
                        .collect();
                    block_mask.ranges(ranges)
                });
                block_mask.allow(chosen, ranges.as_ref());
                tiles.push((block.to_vec(), positions.clone(), biases));
            }
        }
    }
    Drawn { block_mask, tiles }
}

/// Computes the softmax over the pairs of all tiles in f64: a pair that occurs twice counts twice.
fn composed(
    [q, k, v]: [&Tensor; 3],
    drawn: &[Drawn],
    heads: usize,
    mask: Option<&Tensor>,
    dropout: Option<&AttentionDropout>,
) -> Result<Tensor> {
    let (batch, queries, width) = q.dims3()?;
    let keys = k.dim(1)?;
    let split = |x: &Tensor| {
        let (b, l, w) = x.dims3()?;
        x.reshape((b, l, heads, w / heads))?
            .transpose(1, 2)?
            .contiguous()
    };
    let (q, k, v) = (split(q)?, split(k)?, split(v)?);
    let scores = (q.matmul(&k.t()?)? * ((width / heads) as f64).powf(-0.5))?;
    let valid = mask.map(Tensor::to_vec2::<f32>).transpose()?;
    let shape = (batch, heads, queries, keys);
    // Sums of e^bias over the tiles that a pair is in, and of e^bias times the factor of dropout.
    let mut times = vec![0.0f64; batch * heads * queries * keys];
    let mut kept = times.clone();
    for example in 0..batch {
        for head in 0..heads {
            let index = example * heads + head;
            let tiles = &drawn[index % drawn.len()].tiles;
            for (number, (block, positions, biases)) in tiles.iter().enumerate() {
                let mut factors = vec![1.0; SIDE * SIDE];
                if let Some(dropout) = dropout {
                    let first = (head * (NUMBERED / heads) + number) * SIDE * SIDE;
                    dropout.fill(example, first, &mut factors);
                }
                for (i, query) in block.iter().enumerate() {
                    for (j, key) in positions.iter().enumerate() {
                        let hidden = valid
                            .as_ref()
                            .is_some_and(|valid| valid[example][*key as usize] == 0.0);
                        let Some(bias) = biases[i * positions.len() + j].filter(|_| !hidden) else {
                            continue;
                        };
                        let factor = f64::from(factors[i * SIDE + j]);
                        let at = (index * queries + *query as usize) * keys + *key as usize;
                        times[at] += bias.exp();
                        kept[at] += bias.exp() * factor;
                    }
                }
            }
        }
    }
    let [times, kept] = [times, kept].map(|x| Tensor::from_vec(x, shape, &Device::Cpu));
    let weights = scores.exp()?;
    let sums = (&weights * times?)?
        .sum_keepdim(D::Minus1)?
        .maximum(1e-100)?;
    let weights = (weights * kept?)?.broadcast_div(&sums)?;
    weights
        .matmul(&v)?
        .transpose(1, 2)?
        .reshape((batch, queries, width))
}

fn options(heads: usize, drawn: &[Drawn], mask: Option<&Tensor>) -> AttentionOptions {
    AttentionOptions {
        heads,
        mask: mask.cloned(),
        block_masks: Some(BlockMasks::new(
            drawn.iter().map(|drawn| drawn.block_mask.clone()).collect(),
        )),
        ..Default::default()
    }
}

/// Returns a mask with holes; the last example has no valid key.
fn holes(sampler: &mut Sampler, batch: usize, keys: usize) -> Tensor {
    let valid = |i: usize| i / keys + 1 < batch && sampler.uniform() < 0.6;
    let data: Vec<f32> = (0..batch * keys).map(valid).map(f32::from).collect();
    Tensor::from_vec(data, (batch, keys), &Device::Cpu).unwrap()
}

/// The ranges of a causal mask may end before they begin.
#[test]
fn a_range_that_ends_before_it_begins_is_empty() {
    for (start, end) in [(5, 3), (64, 0), (300, 2)] {
        assert_eq!(QueryRange::new(start..end, None), QueryRange::nothing());
    }
    assert_eq!(QueryRange::new(2..5, None).range(), 2..5);
}

#[test]
fn random_plans_meet_their_twin() {
    let mut sampler = Sampler::new(31);
    for (batch, queries, keys, heads, width, block_masks, repeats_queries) in [
        (1, 1, 1, 1, 4, 1, false),
        (2, 70, 90, 2, 5, 1, false),
        (2, 70, 90, 2, 16, 2, true),
        (2, 33, 200, 2, 33, 4, false),
        (1, 150, 64, 1, 70, 1, true),
        (1, 700, 150, 1, 8, 1, false),
    ] {
        let drawn: Vec<Drawn> = (0..block_masks)
            .map(|_| draw(&mut sampler, (queries, keys), repeats_queries))
            .collect();
        let q = sampler.normal(&[batch, queries, heads * width], 1.0);
        let [k, v] = [(); 2].map(|()| sampler.normal(&[batch, keys, heads * width], 1.0));
        let mask = holes(&mut sampler, batch, keys);
        for mask in [None, Some(&mask)] {
            agree(
                "sparse attention",
                &[q.clone(), k.clone(), v.clone()],
                |x| attention(&x[0], &x[1], &x[2], &options(heads, &drawn, mask)),
                |x| composed([&x[0], &x[1], &x[2]], &drawn, heads, mask, None),
            );
        }
    }
}

#[test]
fn packed_projections_and_dropout_meet_their_twin() {
    let mut sampler = Sampler::new(32);
    let (batch, length, heads, width) = (2, 100, 2, 8);
    let stream = crate::RngKey::new(5, 6, 7).per_example(crate::rng::StreamKey::new("drop"));
    let mask = holes(&mut sampler, batch, length);
    for (repeats_queries, mask) in [
        (false, None),
        (true, None),
        (false, Some(&mask)),
        (true, Some(&mask)),
    ] {
        let drawn = [(); 2].map(|()| draw(&mut sampler, (length, length), repeats_queries));
        let x = [sampler.normal(&[batch, length, 3 * heads * width], 1.0)];
        let dropout = AttentionDropout::new(&stream, batch, 0.3);
        let options = AttentionOptions {
            dropout: Some(dropout.clone()),
            ..options(heads, &drawn, mask)
        };
        // Outputs at padded positions are not compared.
        let valid = |y: &Tensor| match mask {
            None => Ok(y.clone()),
            Some(mask) => y.broadcast_mul(&mask.unsqueeze(2)?.to_dtype(y.dtype())?),
        };
        agree(
            "sparse attention with dropout",
            &x,
            |x| valid(&attention_packed(&x[0], &options)?),
            |x| {
                let part = |i| x[0].narrow(2, i * heads * width, heads * width);
                let parts = [&part(0)?, &part(1)?, &part(2)?];
                valid(&composed(parts, &drawn, heads, mask, Some(&dropout))?)
            },
        );
    }
}

#[test]
fn a_key_that_only_an_odd_score_reaches_has_all_the_weight() {
    // As in Reformer: a position that sees only itself, in three tiles.
    let mut block_mask = BlockMask::new(-1e3).repeating_queries();
    for position in 0..3 {
        block_mask.key_block([position]);
    }
    for _ in 0..3 {
        for position in 0..3 {
            block_mask.query_block([position]);
            let ranges = block_mask.ranges([QueryRange::new(0..1, Some(0))]);
            block_mask.allow(position as usize, Some(&ranges));
        }
    }
    let mut sampler = Sampler::new(33);
    let x = sampler.normal(&[1, 3, 12], 1.0);
    let options = AttentionOptions {
        heads: 1,
        block_masks: Some(BlockMasks::new(vec![block_mask])),
        ..Default::default()
    };
    agree(
        "own values",
        &[x],
        |x| attention_packed(&x[0], &options),
        |x| &x[0].narrow(2, 8, 4)? + (x[0].narrow(2, 0, 4)? * 0.0)?,
    );
}

/// Returns a mask whose queries are in two blocks of four each, which see different keys.
fn twice(length: u32) -> BlockMask {
    let mut block_mask = BlockMask::new(0.0);
    for shift in [0, 9] {
        for first in (0..length).step_by(4) {
            block_mask.query_block((first..first + 4).map(|query| (query + shift) % length));
            let keys = block_mask.key_block((0..3).map(|key| (first + 2 * shift + key) % length));
            block_mask.allow(keys, None);
        }
    }
    block_mask
}

/// There are enough blocks for several tasks.
#[test]
fn a_query_in_several_blocks_is_found() {
    let x = Sampler::new(35).normal(&[1, 256, 12], 1.0);
    let bits = |block_mask: BlockMask| {
        let options = AttentionOptions {
            heads: 1,
            block_masks: Some(BlockMasks::new(vec![block_mask])),
            ..Default::default()
        };
        let x = candle_core::Var::from_tensor(&x).unwrap();
        let y = attention_packed(&x, &options).unwrap();
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        [&y, gradients.get(&x).unwrap()].map(|x| x.flatten_all().unwrap().to_vec1::<f32>().unwrap())
    };
    assert!(bits(twice(256)) == bits(twice(256).repeating_queries()));
    // It may also be one block that has a position twice.
    let mut block_mask = BlockMask::new(0.0);
    block_mask.query_block([1, 0, 1]);
    assert!(BlockMasks::new(vec![block_mask]).all()[0].repeats_queries());
}

/// Each block of queries sees the block of keys of the block before it, and its own.
#[test]
fn near_keys_need_few_slots_in_a_sequence_of_any_length() {
    for length in [2, 50] {
        let mut block_mask = BlockMask::new(0.0);
        for position in 0..length {
            block_mask.query_block([position]);
            let own = block_mask.key_block([position]);
            block_mask.allow(own, None);
            if let Some(before) = own.checked_sub(1) {
                block_mask.allow(before, None);
            }
        }
        let block_masks = BlockMasks::new(vec![block_mask]);
        assert_eq!(block_masks.all()[0].packed_kv().0, 2, "{length}");
    }
}

#[test]
fn plans_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(34);
    let x = sampler.normal(&[2, 6, 24], 1.0);
    let block_mask = |queries: Range<u32>, keys: Range<u32>| {
        let mut block_mask = BlockMask::new(0.0);
        block_mask.query_block(queries);
        let keys = block_mask.key_block(keys);
        block_mask.allow(keys, None);
        block_mask
    };
    let run = |block_masks: Vec<BlockMask>| {
        let options = AttentionOptions {
            heads: 2,
            block_masks: Some(BlockMasks::new(block_masks)),
            ..Default::default()
        };
        attention_packed(&x.to_dtype(DType::F32).unwrap(), &options)
    };
    assert!(run(vec![block_mask(0..6, 0..6); 4]).is_ok());
    assert!(run(vec![block_mask(0..6, 0..6); 3]).is_err());
    assert!(run(vec![block_mask(0..7, 0..6)]).is_err());
    assert!(run(vec![block_mask(0..6, 0..7)]).is_err());
    assert!(run(Vec::new()).is_err());
}
