//! Tests of the Image Transformer.

use super::*;
use crate::{
    context::Geometry, ops::attention::testing::block_masks_meet_dense, options::BlockOptions,
    testing::parameters,
};

#[test]
fn two_dimensions_want_an_image_and_say_that_the_rules_forbid_them() {
    let built = |shape, width, grid| {
        let options = Options {
            shape,
            width,
            ..Options::default()
        };
        let (block, options) = (BlockOptions::default(), to_json(&options));
        let parameters = parameters();
        let context = ModelContext {
            geometry: Geometry { grid, towers: 1 },
            ..ModelContext::new(parameters.builder(), &block, &MODEL, &options, 24)
        };
        build(&context)
    };
    let image = Some([4, 6]);
    for (shape, width, grid, forbidden) in [
        (Shape::Line, 0, None, false),
        (Shape::Line, 0, image, false),
        (Shape::Plane, 0, image, true),
        (Shape::Plane, 8, image, true),
    ] {
        let encoder = built(shape, width, grid).unwrap();
        assert_eq!(encoder.rule_violation().is_some(), forbidden);
    }
    for (width, grid, expected) in [(0, None, "model.shape = 2d"), (5, image, "model.width = 5")] {
        let error = built(Shape::Plane, width, grid).err().unwrap().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Checks a pattern. Rows and columns are distinguished by `width`; the first position is a CLS
/// token if `first` is 1.
fn check(pattern: Pattern, length: usize, all: bool) {
    let width = pattern.width.unwrap_or(1 << 20);
    let sees = |_, i: usize, j: usize| {
        let (Some(i), Some(j)) = (i.checked_sub(pattern.first), j.checked_sub(pattern.first))
        else {
            return true;
        };
        let near = |i: usize, j: usize, side: usize| {
            let (size, memory) = (pattern.block[side], pattern.memory[side]);
            let start = i / size * size;
            j + memory >= start && j < start + size + memory
        };
        let seen = near(i / width, j / width, 0) && near(i % width, j % width, 1);
        assert!(!all || seen);
        seen
    };
    let block_masks = pattern.block_masks(length);
    block_masks_meet_dense("image", length, 2, &block_masks, sees);
}

#[test]
fn equals_dense_attention_under_the_mask_of_its_definition() {
    for first in [0, 1] {
        for length in [1, 2, 3, 5, 8, 13, 20] {
            for (block, memory) in [(4, 0), (4, 2), (3, 4), (1, 1), (30, 5)] {
                let line = Pattern {
                    first,
                    block: [1, block],
                    memory: [0, memory],
                    width: None,
                };
                check(line, length, false);
            }
            for (block, memory) in [([2, 2], [1, 1]), ([2, 3], [0, 1]), ([1, 2], [2, 0])] {
                let plane = Pattern {
                    first,
                    block,
                    memory,
                    width: Some(5),
                };
                check(plane, length, false);
            }
        }
    }
}

#[test]
fn memories_as_large_as_the_image_give_softmax_attention() {
    for (block, memory, width) in [
        ([1, 4], [0, 20], None),
        ([2, 3], [4, 5], Some(5)),
        ([9, 9], [0, 0], Some(5)),
    ] {
        for first in [0, 1] {
            let pattern = Pattern {
                first,
                block,
                memory,
                width,
            };
            check(pattern, 20, width.is_some() || first == 0);
        }
    }
}

#[test]
fn blocks_of_more_queries_than_a_tile_are_cut() {
    let pattern = Pattern {
        first: 1,
        block: [9, 10],
        memory: [1, 2],
        width: Some(12),
    };
    check(pattern, 140, false);
}
