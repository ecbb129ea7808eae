//! Table entries added to a tile of scores, and the gradients that the tile adds to the tables.

use lra_cpu::tile::SIDE;

use super::super::args::Head;
use super::{TableGradients, Tables};

/// No position.
const NONE: i32 = i32::MIN;

/// Positions of a tile's queries and keys.
pub(in super::super) struct Places {
    queries: [i32; SIDE],
    keys: [i32; SIDE],
    /// Queries and keys of the tile.
    sizes: (usize, usize),
    /// The distance between neighbours, where it is the same for queries and for keys.
    step: Option<i32>,
    /// K.
    reach: i32,
    /// The column of all pairs, where all share one because their distances are all at least K.
    column: Option<usize>,
}

impl Places {
    /// Builds the places of queries and keys at these positions; the latter count all keys.
    #[inline(always)]
    pub(in super::super) fn new(
        tables: &Tables,
        queries: impl ExactSizeIterator<Item = usize>,
        keys: impl ExactSizeIterator<Item = usize>,
    ) -> Self {
        let sizes = (queries.len(), keys.len());
        let mut places = Places {
            queries: [0; SIDE],
            keys: [NONE; SIDE],
            sizes,
            step: None,
            reach: tables.reach as i32,
            column: None,
        };
        let (first, count) = tables.keys;
        for (place, query) in places.queries.iter_mut().zip(queries) {
            *place = query as i32;
        }
        for (place, key) in places.keys.iter_mut().zip(keys) {
            if let Some(key) = key.checked_sub(first).filter(|key| *key < count) {
                *place = key as i32;
            }
        }
        let (queries, keys) = (&places.queries[..sizes.0], &places.keys[..sizes.1]);
        if keys.contains(&NONE) || queries.is_empty() || keys.is_empty() {
            return places;
        }
        let steps = |all: &[i32], step: i32| all.windows(2).all(|pair| pair[1] - pair[0] == step);
        let step = match (queries, keys) {
            ([a, b, ..], _) | (_, [a, b, ..]) => b - a,
            _ => 1,
        };
        places.step = (steps(queries, step) && steps(keys, step)).then_some(step);
        let range = |all: &[i32]| {
            let ends = |(low, high): (i32, i32), x: &i32| (low.min(*x), high.max(*x));
            all.iter().fold((i32::MAX, i32::MIN), ends)
        };
        let (queries, keys) = (range(queries), range(keys));
        places.column = if keys.0 - queries.1 >= places.reach {
            Some(2 * tables.reach)
        } else if keys.1 - queries.0 <= -places.reach {
            Some(0)
        } else {
            None
        };
        places
    }

    /// Returns the column of a distance.
    #[inline(always)]
    fn column_of(&self, distance: i32) -> usize {
        (distance.clamp(-self.reach, self.reach) + self.reach) as usize
    }

    /// Calls `f` with index in the tile, query, key and column of every pair with positions.
    #[inline(always)]
    fn pairs(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        for (row, &key) in self.keys[..self.sizes.1].iter().enumerate() {
            if key == NONE {
                continue;
            }
            for (i, &query) in self.queries[..self.sizes.0].iter().enumerate() {
                let column = self.column_of(key - query);
                f(row * SIDE + i, query as usize, key as usize, column);
            }
        }
    }

    /// Returns columns of the diagonals of a tile of even steps: entry y is that of query i and key
    /// k with i - k + 63 = y.
    #[inline(always)]
    fn diagonals(&self, step: i32) -> [usize; 2 * SIDE] {
        let first = self.keys[0] - self.queries[0];
        std::array::from_fn(|y| self.column_of(first + step * (SIDE as i32 - 1 - y as i32)))
    }

    /// Calls `f` with each query and its number in the tile.
    #[inline(always)]
    fn each_query(&self, mut f: impl FnMut(usize, usize)) {
        for (i, &query) in self.queries[..self.sizes.0].iter().enumerate() {
            f(i, query as usize);
        }
    }
}

impl Tables<'_> {
    /// Adds to a tile of scores (keys, queries), which are in units of the base-2 logarithm.
    #[inline(always)]
    pub(in super::super) fn add(
        &self,
        places: &Places,
        head: Head,
        scores: &mut [f32; SIDE * SIDE],
    ) {
        const UNIT: f32 = std::f32::consts::LOG2_E;
        let (count, keys) = places.sizes;
        if let Some(table) = self.of_heads {
            let table = &table[self.of_head(head)];
            match places.step {
                Some(step) => {
                    let columns = places.diagonals(step);
                    let window = columns.map(|column| UNIT * table[column]);
                    for (row, scores) in scores.chunks_exact_mut(SIDE).take(keys).enumerate() {
                        let window = &window[SIDE - 1 - row..][..SIDE];
                        scores.iter_mut().zip(window).for_each(|(x, y)| *x += y);
                    }
                }
                None => places.pairs(|at, _, _, column| scores[at] += UNIT * table[column]),
            }
        }
        if let Some(table) = self.of_queries {
            match places.column {
                Some(column) => {
                    let mut window = [0.0; SIDE];
                    places.each_query(|i, query| {
                        window[i] = UNIT * table[self.of_query(head, query)][column];
                    });
                    for scores in scores.chunks_exact_mut(SIDE).take(keys) {
                        scores.iter_mut().zip(&window).for_each(|(x, y)| *x += y);
                    }
                }
                None => places.each_query(|i, query| {
                    let row = &table[self.of_query(head, query)];
                    for (k, &key) in places.keys[..keys].iter().enumerate() {
                        if key != NONE {
                            let column = places.column_of(key - query as i32);
                            scores[k * SIDE + i] += UNIT * row[column];
                        }
                    }
                }),
            }
        }
        if let Some(table) = self.of_keys {
            for (k, &key) in places.keys[..keys].iter().enumerate() {
                if key == NONE {
                    continue;
                }
                let row = &table[self.of_key(head, key as usize)];
                let scores = &mut scores[k * SIDE..][..count];
                match places.column {
                    Some(column) => scores.iter_mut().for_each(|x| *x += UNIT * row[column]),
                    None => places.each_query(|i, query| {
                        scores[i] += UNIT * row[places.column_of(key - query as i32)];
                    }),
                }
            }
        }
    }
}

impl TableGradients<'_> {
    /// Adds the gradients of a tile of scores (keys, queries); `part` of the head's work is at
    /// hand.
    ///
    /// # Safety
    /// No other task may have this part of this head; nor these queries or keys of this head, if
    /// their rows have gradients.
    #[inline(always)]
    pub(in super::super) unsafe fn add(
        &self,
        tables: &Tables,
        places: &Places,
        (head, part): (Head, usize),
        gradients: &[f32; SIDE * SIDE],
    ) {
        let (count, keys) = places.sizes;
        if let Some(all) = &self.of_heads {
            let columns = tables.columns();
            let start = (tables.index(head) * self.parts + part) * columns;
            // SAFETY: by this function's contract.
            let row = unsafe { all.slice(start, columns) };
            match places.step {
                Some(step) => {
                    let mut window = [0.0f32; 2 * SIDE];
                    for (k, gradients) in gradients.chunks_exact(SIDE).take(keys).enumerate() {
                        let window = &mut window[SIDE - 1 - k..][..count];
                        window.iter_mut().zip(gradients).for_each(|(x, y)| *x += y);
                    }
                    let columns = places.diagonals(step);
                    for (column, sum) in columns.iter().zip(window) {
                        row[*column] += f64::from(sum);
                    }
                }
                None => places.pairs(|at, _, _, column| row[column] += f64::from(gradients[at])),
            }
        }
        if let Some(all) = &self.of_queries {
            places.each_query(|i, query| {
                let range = tables.of_query(head, query);
                // SAFETY: by this function's contract.
                let row = unsafe { all.slice(range.start, range.len()) };
                for (k, &key) in places.keys[..keys].iter().enumerate() {
                    if key != NONE {
                        row[places.column_of(key - query as i32)] += gradients[k * SIDE + i];
                    }
                }
            });
        }
        if let Some(all) = &self.of_keys {
            for (k, &key) in places.keys[..keys].iter().enumerate() {
                if key == NONE {
                    continue;
                }
                let range = tables.of_key(head, key as usize);
                // SAFETY: by this function's contract.
                let row = unsafe { all.slice(range.start, range.len()) };
                let gradients = &gradients[k * SIDE..][..count];
                match places.column {
                    Some(column) => row[column] += gradients.iter().sum::<f32>(),
                    None => places.each_query(|i, query| {
                        row[places.column_of(key - query as i32)] += gradients[i];
                    }),
                }
            }
        }
    }
}
