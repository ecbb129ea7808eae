//! An independent, slow implementation of the growing rules, from the original's own tiles: it
//! decides whether the dashes of an image can result from them.

use std::collections::BTreeMap;
use std::f64::consts::{FRAC_PI_2, PI, TAU};

use lra_datasets::tasks::pathfinder::{Paddle, Scene, Size};

use super::{data, npz};

type Point = (i32, i32);

/// Growing rules of one size and margin.
pub struct Rules {
    side: i32,
    padding: i32,
    length: f64,
    margin: i32,
    continuity: f64,
    seed_distance: i32,
    fine_middle: i32,
    tile_side: i32,
    masks: BTreeMap<Point, Vec<u8>>,
    ring: BTreeMap<Point, f64>,
    kernels: Vec<Vec<Point>>,
    /// For each degree, whether every pixel of the window has a cell of the kernel inside the
    /// window.
    usable: Vec<bool>,
    first_degrees: Vec<i32>,
}

/// State of a growing contour: its pivot and direction.
type State = (Point, f64);

fn step(from: Point, angle: f64, distance: f64) -> Point {
    let along = |from: i32, part: f64| (f64::from(from) + distance * part).ceil() as i32;
    (along(from.0, angle.sin()), along(from.1, angle.cos()))
}

fn flip(angle: f64) -> f64 {
    if angle < 0.0 { angle + PI } else { angle - PI }
}

fn pairs(flat: &[i32]) -> Vec<Point> {
    flat.chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
}

impl Rules {
    pub fn new(size: Size, margin: usize) -> Rules {
        let arrays = npz::read(&data("pathfinder-golden.npz"));
        let side = size.side() as i32;
        let array = |name: &str| &arrays[&format!("p{side}_m{margin}_{name}")];
        let (length, thickness, seed_distance, continuity) = match size {
            Size::S32 => (2, 1, 7, 1.0),
            Size::S64 => (5, 1, 12, 1.8),
            Size::S128 => (5, 2, 20, 1.8),
            Size::S256 => (5, 2, 27, 1.8),
        };
        let tile_side = array("mask_u8").shape[1];
        let tiles = array("mask_u8").bytes().chunks_exact(tile_side * tile_side);
        let ends = pairs(&array("endpoint_dydx").integers());
        let kernel_side = array("seed_kernel_u8").shape[1];
        let kernel = |cells: &[u8]| {
            let middle = kernel_side as i32 / 2;
            let set = cells.iter().enumerate().filter(|(_, value)| **value == 1);
            set.map(|(k, _)| {
                (
                    (k / kernel_side) as i32 - middle,
                    (k % kernel_side) as i32 - middle,
                )
            })
            .collect()
        };
        let cells = array("seed_kernel_u8").bytes();
        let kernels: Vec<Vec<Point>> = cells
            .chunks_exact(kernel_side * kernel_side)
            .map(kernel)
            .collect();
        let inside = |v: i32| (0..side).contains(&v);
        let usable = |kernel: &Vec<Point>| {
            (0..side).all(|y| {
                (0..side).all(|x| {
                    kernel
                        .iter()
                        .any(|(dy, dx)| inside(y + dy) && inside(x + dx))
                })
            })
        };
        Rules {
            side,
            padding: if size == Size::S256 { 22 } else { 1 },
            length: f64::from(length),
            margin: margin as i32,
            continuity,
            seed_distance,
            fine_middle: 2 * (length + thickness + margin as i32),
            tile_side: tile_side as i32,
            masks: ends.into_iter().zip(tiles.map(<[u8]>::to_vec)).collect(),
            ring: pairs(&array("ring_dydx").integers())
                .into_iter()
                .zip(array("ring_angle").values())
                .collect(),
            usable: kernels.iter().map(usable).collect(),
            kernels,
            first_degrees: array("seed_degrees_possible").integers(),
        }
    }

    /// Returns the first rule that an image breaks, if any. Without `ordered`, contours,
    /// distractors and discs may be listed in another order than that of their growth.
    pub fn broken(&self, scene: &Scene, ordered: bool) -> Option<String> {
        let [first, second] = &scene.targets;
        let order = |first: &[Paddle], second: &[Paddle]| {
            self.targets(first, second)
                .and_then(|mask| self.distractors(mask, &scene.distractors, ordered))
        };
        order(first, second)
            .or_else(|problem| match ordered {
                true => Err(problem),
                false => order(second, first),
            })
            .err()
            .or_else(|| self.discs(scene, ordered))
    }

    fn distractors(
        &self,
        mut mask: Vec<u8>,
        distractors: &[Vec<Paddle>],
        ordered: bool,
    ) -> Result<(), String> {
        let mut left: Vec<&Vec<Paddle>> = distractors.iter().collect();
        while !left.is_empty() {
            let next = if ordered {
                Some(0)
            } else {
                self.next(&mask, &left)
            };
            let next = next.ok_or("no order of distractors could have come about")?;
            mask = self
                .distractor(&mask, left.remove(next))
                .map_err(|problem| format!("distractor: {problem}"))?;
        }
        Ok(())
    }

    /// Returns one of the distractors that leaves room for all the others.
    fn next(&self, mask: &[u8], left: &[&Vec<Paddle>]) -> Option<usize> {
        (0..left.len()).find(|&first| {
            self.distractor(mask, left[first]).is_ok_and(|mask| {
                let mut others = (0..left.len()).filter(|other| *other != first);
                others.all(|other| self.distractor(&mask, left[other]).is_ok())
            })
        })
    }

    fn discs(&self, scene: &Scene, ordered: bool) -> Option<String> {
        let tip = |k: usize| scene.targets[k][0].start;
        let end = |k: usize| scene.targets[k].last().unwrap().start;
        let fits = (0..2).any(|origin: usize| {
            let terminal = if scene.label == 1 { origin } else { 1 - origin };
            let (origin, terminal) = (tip(origin), end(terminal));
            scene.discs == [origin, terminal] || (!ordered && scene.discs == [terminal, origin])
        });
        (!fits).then(|| {
            format!(
                "discs at {:?} do not fit label {}",
                scene.discs, scene.label
            )
        })
    }

    fn targets(&self, first: &[Paddle], second: &[Paddle]) -> Result<Vec<u8>, String> {
        let clear = 2 * self.seed_distance;
        let forbidden = |y: i32, x: i32| {
            let deep = clear..self.side - clear;
            !deep.contains(&y) || !deep.contains(&x)
        };
        let first_seeds = self.seeds(&first[0], |degree, tail| {
            self.first_degrees.contains(&degree)
                && self
                    .around(degree, tail)
                    .into_iter()
                    .all(|(y, x)| !forbidden(y, x))
        });
        let apart = f64::from(self.seed_distance);
        let beside = (0..360).map(f64::from).any(|degree| {
            let angle = degree * PI / 180.0;
            let at =
                |from: i32, part: f64| (f64::from(from) + apart * part).round_ties_even() as i32;
            let from = first[0].start;
            (at(from.0, angle.sin()), at(from.1, angle.cos())) == second[0].start
        });
        if !beside {
            return Err(format!(
                "seeds at {:?} and {:?}",
                first[0].start, second[0].start
            ));
        }
        let mut states = [first_seeds, self.seeds(&second[0], |_, _| true)];
        let mut mask = self.bare();
        for k in 1..first.len().max(second.len()) {
            for (contour, states) in [first, second].into_iter().zip(&mut states) {
                *states = self.extended(&mask, states, contour.get(k))?;
                self.stamp(&mut mask, &contour[k - 1]);
            }
        }
        self.stamp(&mut mask, second.last().unwrap());
        Ok(mask)
    }

    fn distractor(&self, mask: &[u8], dashes: &[Paddle]) -> Result<Vec<u8>, String> {
        let mut states = self.seeds(&dashes[0], |degree, tail| {
            self.usable[(degree + 180) as usize]
                && self
                    .around(degree, tail)
                    .into_iter()
                    .all(|at| f64::from(mask[self.index(at)]) / 255.0 <= 0.3)
        });
        let mut mask = mask.to_vec();
        for k in 1..dashes.len() {
            states = self.extended(&mask, &states, Some(&dashes[k]))?;
            self.stamp(&mut mask, &dashes[k - 1]);
        }
        if states.is_empty() {
            return Err(format!("no seed at {:?}", dashes[0].start));
        }
        self.stamp(&mut mask, dashes.last().unwrap());
        Ok(mask)
    }

    /// Returns the states after a first dash, for every degree that draws it.
    fn seeds(&self, dash: &Paddle, fits: impl Fn(i32, Point) -> bool) -> Vec<State> {
        let back = self.length + f64::from(self.margin);
        (-180..180)
            .map(|degree| (degree, f64::from(degree) * PI / 180.0))
            .filter(|(_, angle)| self.end(*angle) == dash.end)
            .filter(|(degree, _)| fits(*degree, dash.start))
            .filter_map(|(_, angle)| {
                let head = step(dash.start, angle, self.length);
                let pivot = step(head, flip(angle), back);
                (self.inside(head) && self.inside(pivot)).then_some((pivot, angle))
            })
            .collect()
    }

    /// Returns the states after one more dash.
    fn extended(
        &self,
        mask: &[u8],
        states: &[State],
        dash: Option<&Paddle>,
    ) -> Result<Vec<State>, String> {
        let dash = dash.ok_or("contours of unequal length")?;
        let stride = self.length + 2.0 * f64::from(self.margin);
        let next: Vec<State> = states
            .iter()
            .filter_map(|(pivot, angle)| {
                let pivot = step(*pivot, *angle, stride);
                let offset = (dash.start.0 - pivot.0, dash.start.1 - pivot.1);
                let to = *self.ring.get(&offset)?;
                let apart = (to - angle).abs();
                let turn = apart.min(TAU - apart);
                let allowed = self.continuity * turn < FRAC_PI_2;
                (allowed && self.end(flip(to)) == dash.end).then_some((pivot, to))
            })
            .collect();
        if next.is_empty() {
            return Err(format!("no way to the dash at {:?}", dash.start));
        }
        let m = self.margin;
        let occupied = (-m..=m)
            .flat_map(|y| (-m..=m).map(move |x| (y, x)))
            .any(|(y, x)| {
                let at = (dash.start.0 + y, dash.start.1 + x);
                y * y + x * x <= m * m && self.inside(at) && mask[self.index(at)] == u8::MAX
            });
        if occupied || !self.inside(dash.start) {
            return Err(format!(
                "the dash at {:?} starts where none may",
                dash.start
            ));
        }
        let share = |value: u8| f64::from(value) / 255.0;
        match self
            .under(dash)
            .find(|(at, own)| share(mask[*at]) + share(*own) >= 1.8)
        {
            Some(_) => Err(format!("the dash at {:?} overlaps", dash.start)),
            None => Ok(next),
        }
    }

    fn stamp(&self, mask: &mut [u8], dash: &Paddle) {
        for (at, own) in self.under(dash) {
            mask[at] = mask[at].max(own);
        }
    }

    /// Iterates over the pixels of the window under a dash's tile, with the tile's occupancy.
    fn under(&self, dash: &Paddle) -> impl Iterator<Item = (usize, u8)> {
        let reach = self.tile_side / 2;
        let corner = (dash.start.0 - reach, dash.start.1 - reach);
        let cells = self.masks[&dash.end].iter().enumerate();
        cells.filter_map(move |(k, own)| {
            let (y, x) = (k as i32 / self.tile_side, k as i32 % self.tile_side);
            let at = (corner.0 + y, corner.1 + x);
            self.inside(at).then(|| (self.index(at), *own))
        })
    }

    /// Returns the cells of a seed kernel inside the window.
    fn around(&self, degree: i32, tail: Point) -> Vec<Point> {
        let cells = self.kernels[(degree + 180) as usize].iter();
        cells
            .map(|(y, x)| (tail.0 + y, tail.1 + x))
            .filter(|at| self.inside(*at))
            .collect()
    }

    fn bare(&self) -> Vec<u8> {
        let deep = self.padding..self.side - self.padding;
        let cells = (0..self.side).flat_map(|y| (0..self.side).map(move |x| (y, x)));
        cells
            .map(|(y, x)| {
                if deep.contains(&y) && deep.contains(&x) {
                    0
                } else {
                    u8::MAX
                }
            })
            .collect()
    }

    fn end(&self, angle: f64) -> Point {
        let middle = self.fine_middle;
        let (y, x) = step((middle, middle), angle, 2.0 * self.length);
        (y - middle, x - middle)
    }

    fn inside(&self, (y, x): Point) -> bool {
        (0..self.side).contains(&y) && (0..self.side).contains(&x)
    }

    fn index(&self, (y, x): Point) -> usize {
        (y * self.side + x) as usize
    }
}
