//! Drawing of one straight line on a fine binary grid, pixel for pixel as in the imaging library.
//!
//! Lines are not symmetric: the choice of the start decides which pixels are set, so callers must
//! keep the direction.

/// A square binary picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bitmap {
    pub(super) side: usize,
    pub(super) cells: Vec<bool>,
}

impl Bitmap {
    fn empty(side: usize) -> Bitmap {
        Bitmap {
            side,
            cells: vec![false; side * side],
        }
    }

    fn set(&mut self, y: i32, x: i32) {
        let inside = |v: i32| usize::try_from(v).ok().filter(|v| *v < self.side);
        if let (Some(y), Some(x)) = (inside(y), inside(x)) {
            self.cells[y * self.side + x] = true;
        }
    }

    /// Returns the bitmap with every cell set within `radius` (Euclidean, cells) of a set cell.
    pub(super) fn dilated(&self, radius: usize) -> Bitmap {
        let mut result = Bitmap::empty(self.side);
        let side = self.side as i32;
        for (index, _) in self.cells.iter().enumerate().filter(|(_, set)| **set) {
            let (y, x) = (index as i32 / side, index as i32 % side);
            for (dy, dx) in disc(radius) {
                result.set(y + dy, x + dx);
            }
        }
        result
    }

    /// Returns the cells as grey values: `ink` where set, else the default.
    pub(super) fn painted<T: Copy + Default>(&self, ink: T) -> Vec<T> {
        self.cells
            .iter()
            .map(|set| if *set { ink } else { T::default() })
            .collect()
    }
}

/// Returns the offsets (y, x) with `y^2 + x^2 <= radius^2`.
pub(super) fn disc(radius: usize) -> Vec<(i32, i32)> {
    let r = radius as i32;
    (-r..=r)
        .flat_map(|y| (-r..=r).map(move |x| (y, x)))
        .filter(|(y, x)| y * y + x * x <= r * r)
        .collect()
}

/// Draws a line of `width` cells from the middle of a `side` x `side` grid to the middle + `end`
/// (dy, dx).
pub(super) fn line(side: usize, end: (i32, i32), width: usize) -> Bitmap {
    let mut bitmap = Bitmap::empty(side);
    let middle = side as i32 / 2;
    if width <= 1 {
        thin_line(&mut bitmap, middle, end);
    } else {
        wide_line(&mut bitmap, middle, end, width);
    }
    bitmap
}

/// Draws Bresenham's line, both ends included.
fn thin_line(bitmap: &mut Bitmap, middle: i32, (dy, dx): (i32, i32)) {
    let (rows, columns) = (dy.abs(), dx.abs());
    let steep = rows >= columns;
    let (major, minor) = if steep {
        (rows, columns)
    } else {
        (columns, rows)
    };
    let (mut y, mut x) = (middle, middle);
    let mut error = 2 * minor - major;
    for _ in 0..major {
        bitmap.set(y, x);
        if error >= 0 {
            if steep {
                x += dx.signum();
            } else {
                y += dy.signum();
            }
            error -= 2 * major;
        }
        error += 2 * minor;
        if steep {
            y += dy.signum();
        } else {
            x += dx.signum();
        }
    }
    bitmap.set(y, x);
}

/// Draws a filled quadrilateral around the line.
fn wide_line(bitmap: &mut Bitmap, middle: i32, (dy, dx): (i32, i32), width: usize) {
    let length = f64::from(dx * dx + dy * dy).sqrt();
    let half = (width as f64 - 1.0) / 2.0;
    let up = half_away(half) / length;
    let down = half_to_zero(half) / length;
    let across = |ratio: f64, along: i32| half_to_zero(ratio * f64::from(along)) as i32;
    let (near_x, far_x) = (across(down, dy), across(up, dy));
    let (far_y, near_y) = (across(up, dx), across(down, dx));
    let (end_y, end_x) = (middle + dy, middle + dx);
    fill(
        bitmap,
        &[
            (middle - near_x, middle + far_y),
            (end_x - near_x, end_y + far_y),
            (end_x + far_x, end_y - near_y),
            (middle + far_x, middle - near_y),
        ],
    );
}

/// Fills a closed polygon with corners (x, y) by scan lines.
fn fill(bitmap: &mut Bitmap, corners: &[(i32, i32); 4]) {
    let lowest = corners.iter().map(|c| c.1).min().unwrap_or(0);
    let highest = corners.iter().map(|c| c.1).max().unwrap_or(0);
    for y in lowest..=highest {
        let mut crossings: Vec<f32> = Vec::with_capacity(8);
        for (k, &(x0, y0)) in corners.iter().enumerate() {
            let (x1, y1) = corners[(k + 1) % corners.len()];
            if y0 == y1 {
                if y == y0 {
                    for x in x0.min(x1)..=x0.max(x1) {
                        bitmap.set(y, x);
                    }
                }
                continue;
            }
            if (y0.min(y1)..=y0.max(y1)).contains(&y) {
                let slope = (x1 - x0) as f32 / (y1 - y0) as f32;
                let x = (y - y0) as f32 * slope + x0 as f32;
                crossings.push(x);
                // An edge that ends here also opens the next span, except on the last line.
                if y == y0.max(y1) && y != highest {
                    crossings.push(x);
                }
            }
        }
        crossings.sort_by(f32::total_cmp);
        for pair in crossings.chunks_exact(2) {
            let left = half_away(f64::from(pair[0])) as i32;
            let right = half_to_zero(f64::from(pair[1])) as i32;
            for x in left..=right {
                bitmap.set(y, x);
            }
        }
    }
}

/// Rounds to the nearest whole number, halves away from zero.
fn half_away(value: f64) -> f64 {
    value.round()
}

/// Rounds to the nearest whole number, halves toward zero.
fn half_to_zero(value: f64) -> f64 {
    (value.abs() - 0.5).ceil().copysign(value)
}
