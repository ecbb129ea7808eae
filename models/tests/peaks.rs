//! Equal training steps on one number of threads have equal peaks of memory, whichever threads run
//! their tasks, measured by counting allocations.

#![allow(clippy::unwrap_used)]

mod counting;

use std::sync::mpsc;

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Classifier, Inputs, MODELS, Model, Options, Parameters, Pass, RngKey, Shape, Tokens, loss,
};
use rayon::ThreadPool;

const BATCH: usize = 4;
const LENGTH: usize = 128;
/// Bytes by which peaks may differ: rayon's queues of jobs.
const QUEUES: usize = 4 << 10;
/// Models that run on three threads too, one of each kind of working memory.
const ON_THREE_THREADS: [&str; 8] = [
    "transformer",
    "linear",
    "nystromformer",
    "fnet",
    "clustered",
    "lstm",
    "slstm",
    "rwkv7",
];

/// A model, and a batch that its operations share out among threads.
struct Step {
    /// Kept alive with the model.
    _parameters: Parameters,
    classifier: Classifier,
    inputs: Inputs,
    labels: Tensor,
}

impl Step {
    fn new(model: &'static Model, dtype: DType) -> Self {
        let shape = Shape {
            vocabulary: 17,
            classes: 10,
            towers: 1,
            max_length: LENGTH,
            padding: true,
            grid: None,
        };
        let device = Device::Cpu;
        let ids = |i: usize| (i * i % 16 + 1) as u32;
        let ids: Vec<u32> = (0..BATCH * LENGTH).map(ids).collect();
        let valid = |i: usize| f32::from(u8::from(i % LENGTH < LENGTH - i / LENGTH * 20));
        let valid: Vec<f32> = (0..BATCH * LENGTH).map(valid).collect();
        let tokens = Tokens {
            ids: Tensor::from_slice(&ids, (BATCH, LENGTH), &device).unwrap(),
            mask: Some(Tensor::from_slice(&valid, (BATCH, LENGTH), &device).unwrap()),
        };
        let labels: Vec<u32> = (0..BATCH as u32).collect();
        let parameters = Parameters::new(3, &device, dtype);
        let mut options = Options::of(model);
        options.block.layers = 1;
        Step {
            classifier: Classifier::new(model, &shape, &options, &parameters).unwrap(),
            _parameters: parameters,
            inputs: Inputs {
                towers: vec![tokens],
            },
            labels: Tensor::new(labels.as_slice(), &device).unwrap(),
        }
    }

    /// Returns the bytes at the peak of a forward and backward pass.
    fn peak(&self) -> usize {
        counting::peak_of(|| {
            let pass = Pass::new(true, RngKey::new(3, 7, 0));
            let aux = loss::AuxLosses::default();
            let logits = self
                .classifier
                .forward(&self.inputs, &pass.with_losses(&aux));
            let mut loss = loss::cross_entropy(&logits.unwrap(), &self.labels).unwrap();
            for (_, mean) in aux.means().unwrap() {
                loss = (loss + mean).unwrap();
            }
            loss.backward().unwrap()
        })
    }

    /// Returns the peak where all threads of the pool but one are busy, so that tasks run one after
    /// the other.
    fn peak_of_one_worker(&self, pool: &ThreadPool) -> usize {
        let busy = pool.current_num_threads() - 1;
        let (started, starts) = mpsc::channel();
        let ends: Vec<mpsc::Sender<()>> = (0..busy)
            .map(|_| {
                let (end, ended) = mpsc::channel();
                let started = started.clone();
                pool.spawn(move || {
                    started.send(()).unwrap();
                    let _ = ended.recv();
                });
                end
            })
            .collect();
        starts.iter().take(busy).for_each(drop);
        let peak = self.peak();
        drop(ends);
        peak
    }
}

/// One test: the counter is for all threads.
#[test]
fn peaks_of_equal_steps_are_equal() {
    let differing: Vec<String> = [2, 3]
        .into_iter()
        .flat_map(|threads| {
            // A worker of the pool, so that no work is handed to it from outside.
            let worker = std::thread::spawn(move || differing(threads));
            worker.join().unwrap()
        })
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Returns the models whose peaks differ, with them.
fn differing(threads: usize) -> Vec<String> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let pool = pool.use_current_thread().build().unwrap();
    // Buffers that threads keep are no part of a step; any threads may take part in it.
    pool.broadcast(|_| {
        lra_models::ops::fetch_buffers();
        let matrix = Tensor::zeros((64, 64), DType::F32, &Device::Cpu).unwrap();
        matrix.matmul(&matrix).unwrap();
    });
    let all = MODELS.iter().copied();
    let models = all.filter(|model| threads == 2 || ON_THREE_THREADS.contains(&model.name));
    let differing = models.filter_map(|model| {
        let step = Step::new(model, DType::F32);
        // The first step also makes tables that stay.
        step.peak();
        let peaks = [step.peak_of_one_worker(&pool), step.peak(), step.peak()];
        let [least, most] = [peaks.iter().min(), peaks.iter().max()].map(|peak| *peak.unwrap());
        let differ = most - least > QUEUES;
        differ.then(|| format!("{}, {threads} threads: {peaks:?}", model.name))
    });
    differing.collect()
}
