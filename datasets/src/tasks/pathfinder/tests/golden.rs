//! Comparison of tiles, rings, kernels, start points and discs with the arrays that the original
//! generator computes.

use std::collections::BTreeSet;
use std::path::Path;

use super::grow_contours::ContourGrower;
use super::parameters::{Difficulty, Parameters, Pixels, Size};
use super::render::Renderer;

#[path = "../../../../tests/support/npz.rs"]
mod npz;

const SETS: [(&str, Size, usize); 5] = [
    ("p32_m1", Size::S32, 1),
    ("p64_m1", Size::S64, 1),
    ("p128_m2", Size::S128, 2),
    ("p128_m3", Size::S128, 3),
    ("p256_m3", Size::S256, 3),
];

fn golden() -> std::collections::BTreeMap<String, npz::Array> {
    npz::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pathfinder-golden.npz"))
}

fn grower(size: Size, margin: usize) -> ContourGrower {
    ContourGrower::new(&Parameters::published(size, Difficulty::Hard), margin)
}

fn pairs(flat: &[i32]) -> Vec<(i32, i32)> {
    flat.chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
}

fn assert_close(name: &str, own: &[f32], golden: &[f64], tolerance: f64) {
    assert_eq!(own.len(), golden.len(), "{name}");
    for (cell, (own, golden)) in own.iter().zip(golden).enumerate() {
        assert!(
            (f64::from(*own) - golden).abs() <= tolerance,
            "{name}, cell {cell}: {own} instead of {golden}"
        );
    }
}

#[test]
fn tiles_equal_the_originals() {
    let golden = golden();
    for (set, size, margin) in SETS {
        let grower = grower(size, margin);
        let tiles = &grower.tiles;
        let array = |name: &str| &golden[&format!("{set}_{name}")];
        let ends = pairs(&array("endpoint_dydx").integers());
        assert_eq!(tiles.ends(), ends, "{set}: distinct dashes");
        let cells = tiles.side() * tiles.side();
        let fine_cells = array("blown_raster01").bytes().len() / ends.len();
        let lines = array("line_f32").values();
        for (k, &end) in ends.iter().enumerate() {
            let name = format!("{set}, dash to {end:?}");
            let tile_of_end = tiles.get(tiles.ending_at(end).unwrap());
            let tile = k * cells..(k + 1) * cells;
            let fine = tiles.fine(end).painted(1u8);
            let fine_golden =
                &array("blown_raster01").bytes()[k * fine_cells..(k + 1) * fine_cells];
            assert_eq!(fine, fine_golden, "{name}: fine raster");
            assert_eq!(
                tile_of_end.line_u8,
                &array("line_u8").bytes()[tile.clone()],
                "{name}: line"
            );
            assert_eq!(
                tile_of_end.mask,
                &array("mask_u8").bytes()[tile.clone()],
                "{name}: mask"
            );
            assert_close(&name, &tile_of_end.line, &lines[tile], 1e-3);
        }
    }
}

#[test]
fn rings_equal_the_originals() {
    let golden = golden();
    for (set, size, margin) in SETS {
        let grower = grower(size, margin);
        let offsets: Vec<_> = grower
            .curvature
            .ring
            .iter()
            .map(|cell| cell.offset)
            .collect();
        let angles: Vec<f64> = grower
            .curvature
            .ring
            .iter()
            .map(|cell| cell.angle)
            .collect();
        assert_eq!(
            offsets,
            pairs(&golden[&format!("{set}_ring_dydx")].integers()),
            "{set}"
        );
        // The original's arc tangent differs in the last bit.
        for (own, golden) in angles
            .iter()
            .zip(golden[&format!("{set}_ring_angle")].values())
        {
            assert!(
                (own - golden).abs() < 1e-14,
                "{set}: {own} instead of {golden}"
            );
        }
    }
}

#[test]
fn start_points_equal_the_originals() {
    let golden = golden();
    for (set, size, margin) in SETS {
        let grower = grower(size, margin);
        let possible: Vec<i32> = (-180..180)
            .zip(&grower.start_points)
            .filter(|(_, point)| point.usable && point.first_places() > 0)
            .map(|(degree, _)| degree)
            .collect();
        let golden_possible = golden[&format!("{set}_seed_degrees_possible")].integers();
        assert_eq!(possible, golden_possible, "{set}: degrees");
        let counts: Vec<i32> = grower
            .start_points
            .iter()
            .map(|point| point.first_places() as i32)
            .collect();
        let golden_counts = golden[&format!("{set}_first_seed_count_by_degree")].integers();
        assert_eq!(counts, golden_counts, "{set}: places of the first seed");
        let kernels = &golden[&format!("{set}_seed_kernel_u8")];
        let side = kernels.shape[1];
        let middle = side as i32 / 2;
        for (point, golden) in grower
            .start_points
            .iter()
            .zip(kernels.bytes().chunks_exact(side * side))
        {
            let set_cells = golden.iter().enumerate().filter(|(_, value)| **value == 1);
            let kernel: Vec<isize> = set_cells
                .map(|(cell, _)| ((cell / side) as i32 - middle, (cell % side) as i32 - middle))
                .map(|offset| grower.empty.offset(offset))
                .collect();
            assert_eq!(point.kernel, kernel, "{set}: kernel");
        }
    }
}

#[test]
fn the_first_start_can_lie_anywhere_in_its_rectangle_and_nowhere_else() {
    let grower = grower(Size::S32, 1);
    let point = &grower.start_points[180 - 135];
    let mut rng = crate::rng::stream("test", 1, 0);
    let places: BTreeSet<_> = (0..1000)
        .filter_map(|_| point.first_place(&mut rng))
        .collect();
    assert_eq!(places.len(), point.first_places());
    assert!(
        places
            .iter()
            .all(|(y, x)| (14..=16).contains(y) && (14..=16).contains(x)),
        "{places:?}"
    );
}

#[test]
fn discs_equal_the_originals() {
    let golden = golden();
    for (set, size, _) in SETS {
        let parameters = Parameters::published(size, Difficulty::Hard);
        let renderer = Renderer::new(&parameters, Pixels::Release);
        let (side, middle) = (size.side(), size.side() / 2);
        let f32_golden = &golden[&format!("{set}_circle_f32_centre")];
        let crop_side = f32_golden.shape[0];
        let corner = middle - crop_side / 2;
        let crop = |cell: usize| (corner + cell / crop_side, corner + cell % crop_side);
        let patch = renderer.disc((middle as i32, middle as i32));
        let at = |y: usize, x: usize| {
            let inside = y.checked_sub(patch.top).zip(x.checked_sub(patch.left));
            inside
                .filter(|(_, x)| *x < patch.width)
                .and_then(|(y, x)| patch.values.get(y * patch.width + x))
                .map_or(0.0, |value| value * 255.0)
        };
        let own: Vec<f32> = (0..crop_side * crop_side)
            .map(crop)
            .map(|(y, x)| at(y, x))
            .collect();
        let scaled: Vec<f64> = f32_golden.values().iter().map(|v| v * 255.0).collect();
        assert_close(set, &own, &scaled, 1e-3);
        let whole = renderer.disc_u8((middle as i32, middle as i32));
        let own: Vec<u8> = (0..crop_side * crop_side)
            .map(crop)
            .map(|(y, x)| whole[y * side + x])
            .collect();
        assert_eq!(
            own,
            golden[&format!("{set}_circle_u8_centre")].bytes(),
            "{set}"
        );
    }
}
