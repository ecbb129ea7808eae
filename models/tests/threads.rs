//! Results have the same bits on any number of threads.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Classifier, Inputs, MODELS, Options, Parameters, Pass, RngKey, Shape, Tokens, loss,
};

const CHILD: &str = "LRA_MODELS_FINGERPRINT";

/// Loss and all gradients of one training pass, big enough that every operation is shared out.
fn fingerprint() -> String {
    let (batch, length) = (6, 300);
    let shape = Shape {
        vocabulary: 17,
        classes: 10,
        towers: 1,
        max_length: length,
        padding: true,
        grid: None,
    };
    let ids: Vec<u32> = (0..batch * length)
        .map(|i| (i * i % 16 + 1) as u32)
        .collect();
    let valid = |i: usize| f32::from(u8::from(i % length < length - i / length * 40));
    let valid: Vec<f32> = (0..batch * length).map(valid).collect();
    let labels: Vec<u32> = (0..batch as u32).collect();
    let device = Device::Cpu;
    let mut lines = Vec::new();
    for model in MODELS {
        let parameters = Parameters::new(3, &device, DType::F32);
        let classifier = Classifier::new(model, &shape, &Options::of(model), &parameters).unwrap();
        let tokens = Tokens {
            ids: Tensor::from_slice(&ids, (batch, length), &device).unwrap(),
            mask: Some(Tensor::from_slice(&valid, (batch, length), &device).unwrap()),
        };
        let inputs = Inputs {
            towers: vec![tokens],
        };
        let pass = Pass::new(true, RngKey::new(3, 7, 0));
        let aux = loss::AuxLosses::default();
        let logits = classifier.forward(&inputs, &pass.with_losses(&aux));
        let labels = Tensor::new(labels.as_slice(), &device).unwrap();
        let mut loss = loss::cross_entropy(&logits.unwrap(), &labels).unwrap();
        for (_, mean) in aux.means().unwrap() {
            loss = (loss + mean).unwrap();
        }
        let gradients = loss.backward().unwrap();
        let mut bits = vec![loss.to_scalar::<f32>().unwrap().to_bits()];
        for (_, var) in parameters.all() {
            let gradient = gradients.get(&var).unwrap().flatten_all().unwrap();
            bits.extend(
                gradient
                    .to_vec1::<f32>()
                    .unwrap()
                    .iter()
                    .map(|x| x.to_bits()),
            );
        }
        let hash = bits.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &word| {
            (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3)
        });
        lines.push(format!("{} {hash:016x}", model.name));
    }
    lines.join("\n")
}

/// Writes the fingerprint to the place that the parent asked for; returns at once when run on its
/// own.
#[test]
fn child() {
    if let Ok(path) = std::env::var(CHILD) {
        std::fs::write(path, fingerprint()).unwrap();
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let folder = std::env::temp_dir().join(format!("lra-models-threads-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |threads: usize| {
        let path = folder.join(threads.to_string());
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact"])
            .env(CHILD, &path)
            .env("RAYON_NUM_THREADS", threads.to_string())
            .output()
            .unwrap()
            .status;
        assert!(status.success());
        std::fs::read_to_string(path).unwrap()
    };
    let prints = [1, 2, 3].map(run);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(prints[0].lines().count(), MODELS.len());
    assert_eq!(prints[0], prints[1]);
    assert_eq!(prints[0], prints[2]);
}
