//! The head for labels at single positions, on every model of the registry.

#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Classifier, DenseLabels, Inputs, Logits, MODELS, Model, Options, Parameters, Pass, RngKey,
    Shape, Tokens, loss::DenseLosses, options::Pooling,
};

const CLASSES: usize = 3;

fn shape(towers: usize) -> Shape {
    Shape {
        vocabulary: 11,
        classes: 2,
        towers,
        max_length: 37,
        padding: true,
        grid: None,
    }
}

fn small(model: &Model, pooling: Pooling) -> Options {
    let mut options = Options::of(model);
    options.head.pooling = pooling;
    let (block, hidden) = (&mut options.block, &mut options.head.hidden);
    (block.dim, block.qkv_dim, block.heads, block.mlp_dim) = (16, 16, 2, 16);
    (block.layers, *hidden) = (2, 8);
    options
}

fn built(model: &Model, pooling: Pooling) -> (Classifier, Parameters) {
    let parameters = Parameters::new(5, &Device::Cpu, DType::F32);
    let options = small(model, pooling);
    let classifier = Classifier::new(model, &shape(1), &options, &parameters).unwrap();
    let classifier = classifier.with_dense(CLASSES, &options, &parameters);
    (classifier.unwrap(), parameters)
}

/// Returns rows of these lengths, padded to `width`; ids depend on row and position alone.
fn inputs(lengths: &[usize], width: usize) -> Inputs {
    let (mut ids, mut valid) = (Vec::new(), Vec::new());
    for (row, &length) in lengths.iter().enumerate() {
        for position in 0..width {
            let id = 1 + (row * 7 + position * position * 3 + position) % 10;
            ids.push(if position < length { id as u32 } else { 0 });
            valid.push(f32::from(u8::from(position < length)));
        }
    }
    let shape = (lengths.len(), width);
    let tokens = Tokens {
        ids: Tensor::from_vec(ids, shape, &Device::Cpu).unwrap(),
        mask: Some(Tensor::from_vec(valid, shape, &Device::Cpu).unwrap()),
    };
    Inputs {
        towers: vec![tokens],
    }
}

/// Labels every third valid position of each row, the last one included.
fn labels(lengths: &[usize]) -> DenseLabels {
    let mut dense = DenseLabels::default();
    for (row, &length) in lengths.iter().enumerate() {
        for position in (0..length).rev().step_by(3) {
            dense.rows.push(row as u32);
            dense.positions.push(position as u32);
            dense.labels.push(((row + position) % CLASSES) as u32);
        }
    }
    dense
}

/// Returns poolings to test: a CLS slot moves all states by one, which matters both for models that
/// shorten sequences and for one that does not.
fn poolings(model: &Model) -> &'static [Pooling] {
    match ["funnel", "hierarchical", "linear"].contains(&model.name) {
        true => &[Pooling::Mean, Pooling::Cls],
        false => &[Pooling::Mean],
    }
}

fn values(x: &Tensor) -> Vec<f32> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

fn evaluation() -> Pass<'static> {
    Pass::new(false, RngKey::new(5, 0, 0))
}

fn apart(one: &Tensor, other: &Tensor) -> f32 {
    assert_eq!(one.dims(), other.dims());
    let pairs = values(one).into_iter().zip(values(other));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn padding_changes_no_logit_at_a_position() {
    for model in MODELS {
        if !model.variants[0].masks_padding {
            continue;
        }
        for &pooling in poolings(model) {
            let (classifier, _) = built(model, pooling);
            let lengths = [9, 13];
            let logits = |width: usize| -> Logits {
                let inputs = inputs(&lengths, width);
                let actual = classifier.forward_dense(&inputs, &labels(&lengths), &evaluation());
                actual.unwrap()
            };
            let (short, long) = (logits(13), logits(37));
            let actual = short.positions.unwrap();
            assert_eq!(actual.dims(), [labels(&lengths).len(), CLASSES]);
            let far = apart(&actual, &long.positions.unwrap());
            assert!(far <= 1e-5, "{} {pooling:?}: {far}", model.name);
            let plain = classifier.forward(&inputs(&lengths, 13), &evaluation());
            assert_eq!(values(&plain.unwrap()), values(&short.sequence));
        }
    }
}

#[test]
fn positions_beyond_a_sequence_are_an_error() {
    let model = MODELS.iter().find(|model| model.name == "linear").unwrap();
    let (classifier, _) = built(model, Pooling::Mean);
    for (row, position) in [(0, 9), (2, 0)] {
        let labels = DenseLabels {
            rows: vec![row],
            positions: vec![position],
            labels: vec![0],
        };
        let logits = classifier.forward_dense(&inputs(&[9, 9], 9), &labels, &evaluation());
        let error = logits.err().unwrap().to_string();
        assert!(error.contains("2 sequences of 9 tokens"), "{error}");
    }
}

/// A head that answered for another position would not notice which token stands there.
#[test]
fn a_position_is_answered_for_by_its_own_token() {
    for model in MODELS {
        for &pooling in poolings(model) {
            let (classifier, _) = built(model, pooling);
            // The changed one, then others.
            let asked = DenseLabels {
                rows: vec![0; 5],
                positions: vec![20, 3, 12, 28, 36],
                labels: vec![0; 5],
            };
            let (plain, mut changed) = (inputs(&[37], 37), inputs(&[37], 37));
            let mut ids = changed.towers[0].ids.to_vec2::<u32>().unwrap();
            ids[0][20] = 1 + ids[0][20] % 10;
            changed.towers[0].ids = Tensor::new(ids, &Device::Cpu).unwrap();
            let of = |inputs: &Inputs| {
                let actual = classifier.forward_dense(inputs, &asked, &evaluation());
                actual.unwrap().positions.unwrap()
            };
            let (plain, changed) = (of(&plain), of(&changed));
            let moved = |at: usize| apart(&plain.get(at).unwrap(), &changed.get(at).unwrap());
            let (own, others) = (moved(0), [1, 2, 3, 4].map(moved));
            let most = others.into_iter().fold(0.0, f32::max);
            assert!(own > most, "{} {pooling:?}: {own} {others:?}", model.name);
        }
    }
}

#[test]
fn labels_at_positions_train_head_and_encoder() {
    let lengths = [37, 20];
    for model in MODELS {
        let (classifier, parameters) = built(model, Pooling::Mean);
        let pass = Pass::new(true, RngKey::new(5, 1, 0));
        let dense = labels(&lengths);
        let logits = classifier.forward_dense(&inputs(&lengths, 37), &dense, &pass);
        // Logits of the positions alone: no other input reaches the blocks.
        let logits = logits.unwrap().positions.unwrap();
        let labels = Tensor::new(dense.labels.as_slice(), &Device::Cpu).unwrap();
        let loss = lra_models::loss::cross_entropy(&logits, &labels).unwrap();
        let gradients = lra_models::ops::backward(&loss).unwrap();
        for path in ["dense.weight", "dense.bias"] {
            let all = parameters.all();
            let (_, var) = all.iter().find(|(name, _)| name == path).unwrap();
            let gradient = values(gradients.get(var).unwrap());
            assert!(gradient.iter().any(|x| *x != 0.0), "{}", model.name);
        }
        let trained = parameters
            .all()
            .into_iter()
            .filter(|(path, var)| path.starts_with("encoder.") && gradients.get(var).is_some());
        assert!(trained.count() > 0 || model.name == "bag", "{}", model.name);
    }
}

/// Every position of every sequence counts as labelled, a CLS slot does not.
#[test]
fn operations_of_the_head_are_counted_at_every_position() {
    let model = lra_models::mixers::find("linear").unwrap();
    for pooling in [Pooling::Mean, Pooling::Cls] {
        let (with_head, _) = built(model, pooling);
        let (options, meta) = (
            small(model, pooling),
            Parameters::meta(&Device::Cpu, DType::F32),
        );
        let plain = Classifier::new(model, &shape(1), &options, &meta).unwrap();
        let head = 3 * 10 * 2 * (16 * CLASSES) as u64;
        assert_eq!(with_head.flops(3, 10), plain.flops(3, 10) + head);
    }
}

/// However a batch is cut, its loss is the mean over its rows.
#[test]
fn rows_of_a_batch_weigh_alike_whatever_their_labels() {
    let lengths = [30, 4, 17];
    let (classifier, _) = built(lra_models::mixers::find("linear").unwrap(), Pooling::Mean);
    let dense = labels(&lengths);
    let own = Tensor::new(&[0u32, 1, 1], &Device::Cpu).unwrap();
    let weighted = |inputs: &Inputs, own: &Tensor, dense: &DenseLabels| {
        let logits = classifier
            .forward_dense(inputs, dense, &evaluation())
            .unwrap();
        let losses = DenseLosses::of(&logits, own, dense, 4.0).unwrap();
        losses.weighted.to_scalar::<f32>().unwrap()
    };
    let whole = weighted(&inputs(&lengths, 30), &own, &dense);
    let mut sum = 0.0;
    for row in 0..3 {
        let all = inputs(&lengths, 30);
        let tokens = &all.towers[0];
        let mask = tokens.mask.as_ref().unwrap();
        let one = Inputs {
            towers: vec![Tokens {
                ids: tokens.ids.narrow(0, row, 1).unwrap(),
                mask: Some(mask.narrow(0, row, 1).unwrap()),
            }],
        };
        let places = (0..dense.len()).filter(|at| dense.rows[*at] as usize == row);
        let places: Vec<usize> = places.collect();
        let part = DenseLabels {
            rows: vec![0; places.len()],
            positions: places.iter().map(|at| dense.positions[*at]).collect(),
            labels: places.iter().map(|at| dense.labels[*at]).collect(),
        };
        sum += weighted(&one, &own.narrow(0, row, 1).unwrap(), &part);
    }
    assert!((whole - sum / 3.0).abs() < 1e-5, "{whole} {}", sum / 3.0);
}

#[test]
fn models_of_two_sequences_and_labels_without_a_head_are_refused() {
    let model = lra_models::mixers::find("linear").unwrap();
    let options = Options::of(model);
    let meta = Parameters::meta(&Device::Cpu, DType::F32);
    let pairs = Classifier::new(model, &shape(2), &options, &meta).unwrap();
    let error = pairs.with_dense(CLASSES, &options, &meta).err().unwrap();
    assert!(error.to_string().contains("data.dense"), "{error}");
    let parameters = Parameters::new(5, &Device::Cpu, DType::F32);
    let without = Classifier::new(model, &shape(1), &options, &parameters).unwrap();
    let error = without.forward_dense(&inputs(&[9], 9), &labels(&[9]), &evaluation());
    assert!(error.err().unwrap().to_string().contains("no head"));
}
