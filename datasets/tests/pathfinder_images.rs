//! Scenes are rendered to the right pixels, and scenes obey the growing rules, both for real images
//! of the release and for images of this generator.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::support;
use crate::support::rules::Rules;
use lra_datasets::Digest;
use lra_datasets::tasks::pathfinder::{
    Difficulty, Generator, Paddle, Parameters, Pixels, Scene, Size,
};

fn generator(size: Size, difficulty: Difficulty, pixels: Pixels) -> Generator {
    Generator::new(Parameters::published(size, difficulty), pixels)
}

#[test]
fn decoded_release_images_are_drawn_with_every_pixel_equal() {
    let decoded = support::decoded();
    assert_eq!(decoded.len(), 13);
    for image in decoded {
        let generator = generator(image.size, Difficulty::Hard, Pixels::Release);
        let pixels = generator.render(&image.scene).unwrap();
        assert_eq!(
            Digest::of(&pixels),
            image.sha256,
            "{} px, {}",
            image.size.side(),
            image.index
        );
    }
}

/// The hashes above are those of the real files.
#[test]
fn hashes_are_those_of_the_release_images() {
    let Some(archive) = support::shared("pathfinder/pathfinder_public_images.tar.gz") else {
        return;
    };
    let file = std::fs::File::open(archive).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut actual = 0;
    let decoded = support::decoded();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let expected = decoded.iter().find(|image| {
            let set = if image.size == Size::S64 {
                "path64"
            } else {
                "pathX"
            };
            path.ends_with(&format!("{set}-curv_contour_length_14/{}.png", image.index))
        });
        if let Some(image) = expected {
            let mut png = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut png).unwrap();
            let pixels = image::load_from_memory(&png)
                .unwrap()
                .into_luma8()
                .into_raw();
            assert_eq!(Digest::of(&pixels), image.sha256, "{path}");
            actual += 1;
        }
    }
    assert_eq!(actual, decoded.len());
}

#[test]
fn decoded_release_images_obey_the_growing_rules() {
    for image in support::decoded() {
        let rules = Rules::new(image.size, image.scene.margin);
        let broken = rules.broken(&image.scene, false);
        assert_eq!(broken, None, "{} px, {}", image.size.side(), image.index);
    }
}

#[test]
fn own_images_obey_the_growing_rules() {
    for (size, images) in [
        (Size::S32, 60),
        (Size::S64, 8),
        (Size::S128, 12),
        (Size::S256, 6),
    ] {
        for difficulty in Difficulty::ALL {
            let generator = generator(size, difficulty, Pixels::Release);
            let margins = generator.parameters().margins();
            let rules: Vec<Rules> = margins.iter().map(|m| Rules::new(size, *m)).collect();
            let mut workspaces = generator.workspaces();
            for number in 0..images {
                let scene = generator.scene(&mut workspaces, 3, number);
                let which = margins.iter().position(|m| *m == scene.margin).unwrap();
                let broken = rules[which].broken(&scene, true);
                assert_eq!(
                    broken,
                    None,
                    "{} px {difficulty}, image {number}",
                    size.side()
                );
            }
        }
    }
}

#[test]
fn the_rules_refuse_what_cannot_have_grown() {
    let generator = generator(Size::S64, Difficulty::Easy, Pixels::Release);
    let rules = Rules::new(Size::S64, 1);
    let scene = generator.scene(&mut generator.workspaces(), 0, 0);
    let altered = |alter: &dyn Fn(&mut Scene)| {
        let mut scene = scene.clone();
        alter(&mut scene);
        rules.broken(&scene, true)
    };
    assert_eq!(altered(&|_| ()), None);
    assert!(altered(&|scene| scene.targets[0][3].start.0 += 1).is_some());
    assert!(altered(&|scene| scene.targets[1].swap(1, 2)).is_some());
    assert!(altered(&|scene| scene.targets.swap(0, 1)).is_some());
    assert!(altered(&|scene| scene.label = 1 - scene.label).is_some());
    assert!(altered(&|scene| scene.distractors[0][0].start.1 += 2).is_some());
}

/// Checks the held-out reference sets, where available: geometry to pixels in both pixel pipelines.
#[test]
fn reference_images_are_drawn_with_every_pixel_equal() {
    for (name, size) in [("32", Size::S32), ("128", Size::S128)] {
        let Some(path) = support::shared(&format!("pathfinder/pathfinder{name}-reference.npz"))
        else {
            continue;
        };
        let arrays = support::npz::read(&path);
        let scenes = scenes(&arrays);
        let cells = size.side() * size.side();
        for (pixels, key) in [
            (Pixels::Release, "images"),
            (Pixels::Upstream, "images_upstream8"),
        ] {
            let generator = generator(size, Difficulty::Hard, pixels);
            let images = arrays[key].bytes().chunks_exact(cells);
            assert_eq!(images.len(), scenes.len());
            for (number, (scene, image)) in scenes.iter().zip(images).enumerate() {
                let own = generator.render(scene).unwrap();
                let wrong = own
                    .iter()
                    .zip(image)
                    .filter(|(own, golden)| own != golden)
                    .count();
                assert_eq!(wrong, 0, "{name} px, {key}, image {number}: wrong pixels");
            }
        }
        for (number, scene) in scenes.iter().enumerate() {
            let rules = Rules::new(size, scene.margin);
            assert_eq!(rules.broken(scene, true), None, "{name} px, image {number}");
        }
    }
}

/// Returns the scenes of a reference file.
fn scenes(arrays: &std::collections::BTreeMap<String, support::npz::Array>) -> Vec<Scene> {
    let margins = arrays["margin"].integers();
    let discs = arrays["markers_yx"].integers();
    let labels = arrays["labels"].bytes();
    let mut scenes: Vec<Scene> = labels
        .iter()
        .zip(&margins)
        .zip(discs.chunks_exact(4))
        .map(|((label, margin), discs)| Scene {
            label: *label,
            margin: *margin as usize,
            targets: [Vec::new(), Vec::new()],
            distractors: Vec::new(),
            discs: [(discs[0], discs[1]), (discs[2], discs[3])],
            attempts: 0,
        })
        .collect();
    for row in arrays["paddles"].integers().chunks_exact(8) {
        let scene = &mut scenes[row[0] as usize];
        let paddle = Paddle {
            start: (row[3], row[4]),
            end: (row[5], row[6]),
            contrast: row[7] as f32 / 1000.0,
        };
        match row[1] as usize {
            contour @ 0..2 => scene.targets[contour].push(paddle),
            contour => {
                scene
                    .distractors
                    .resize(scene.distractors.len().max(contour - 1), Vec::new());
                scene.distractors[contour - 2].push(paddle);
            }
        }
    }
    scenes
}

#[test]
fn images_depend_on_seed_and_number_alone() {
    let generator = generator(Size::S32, Difficulty::Hard, Pixels::Release);
    let mut workspaces = generator.workspaces();
    let first = generator.scene(&mut workspaces, 5, 7);
    generator.scene(&mut workspaces, 5, 8);
    assert_eq!(generator.scene(&mut workspaces, 5, 7), first);
    assert_eq!(generator.scene(&mut generator.workspaces(), 5, 7), first);
    assert_ne!(generator.scene(&mut workspaces, 6, 7), first);
    assert_ne!(generator.scene(&mut workspaces, 5, 9), first);
}
