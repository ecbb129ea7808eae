//! Helpers shared by the Pathfinder tests.
#![allow(dead_code, clippy::print_stdout)]

pub mod npz;
pub mod rules;

use std::path::PathBuf;

use lra_datasets::tasks::pathfinder::{Paddle, Scene, Size};
use serde_json::Value;

/// Returns the path of a file that is committed with the tests.
pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Returns the path of a file of the shared data folder: `$LRA_SHARED_DATA`, else `shared/data`
/// beside the repository. If there is none, it prints that the calling test is skipped.
pub fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LRA_SHARED_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let path = root.join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

/// A real image of the release, decoded into dashes and discs.
pub struct Decoded {
    pub size: Size,
    /// Number of the image in its picture strip.
    pub index: u64,
    pub scene: Scene,
    /// SHA-256 of the real image's grey values, row by row.
    pub sha256: String,
}

/// Returns the decoded images.
pub fn decoded() -> Vec<Decoded> {
    let text = std::fs::read(data("pathfinder-lra-decoded.json")).unwrap();
    let root: Value = serde_json::from_slice(&text).unwrap();
    let image = |image: &Value| {
        let point = |value: &Value| {
            let at = |k: usize| value[k].as_i64().unwrap() as i32;
            (at(0), at(1))
        };
        let paddle = |value: &Value| {
            let at = |k: usize| value[k].as_i64().unwrap() as i32;
            // The images hold one contrast each, and it cancels.
            Paddle {
                start: (at(0), at(1)),
                end: (at(2), at(3)),
                contrast: 1.0,
            }
        };
        let contour = |value: &Value| value.as_array().unwrap().iter().map(paddle).collect();
        Decoded {
            size: Size::of_side(image["resolution"].as_u64().unwrap()).unwrap(),
            index: image["index"].as_u64().unwrap(),
            scene: Scene {
                label: image["label"].as_u64().unwrap() as u8,
                margin: image["margin"].as_u64().unwrap() as usize,
                targets: [contour(&image["targets"][0]), contour(&image["targets"][1])],
                distractors: image["distractors"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(contour)
                    .collect(),
                discs: [
                    point(&image["markers_yx"][0]),
                    point(&image["markers_yx"][1]),
                ],
                attempts: 0,
            },
            sha256: image["pixels_sha256"].as_str().unwrap().to_owned(),
        }
    };
    root["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(image)
        .collect()
}
