//! Content of an image: dashes and discs, before rendering.

/// One dash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paddle {
    /// Pixel from which the dash is drawn, (y, x), y down.
    pub start: (i32, i32),
    /// End relative to start, (y, x), on the drawing grid (2 cells per pixel).
    pub end: (i32, i32),
    /// Brightness.
    pub contrast: f32,
}

/// Geometry of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Label: 1 if both discs are on the same contour, else 0.
    pub label: u8,
    /// Clearance around dashes that this image uses, pixels.
    pub margin: usize,
    /// Two long contours, dashes in order of growth.
    pub targets: [Vec<Paddle>; 2],
    /// Short contours that found room.
    pub distractors: Vec<Vec<Paddle>>,
    /// Centres of the two discs, (y, x): the origin is on the free end of a first dash, the
    /// terminal on the outer end of a last one.
    pub discs: [(i32, i32); 2],
    /// Number of target pairs begun until one was complete, this one included.
    pub attempts: u64,
}

impl Scene {
    /// Returns the target contour of each disc.
    pub fn contours_of_discs(&self) -> [usize; 2] {
        let begins_at = |target: &Vec<Paddle>| target.first().map(|dash| dash.start);
        let mut targets = self.targets.iter();
        // First dashes are apart, so only one contour begins at the origin; last dashes may meet.
        let origin = targets.position(|target| begins_at(target) == Some(self.discs[0]));
        let origin = origin.unwrap_or_default();
        match self.label {
            1 => [origin; 2],
            _ => [origin, 1 - origin],
        }
    }

    /// Iterates over every dash of the image.
    pub fn paddles(&self) -> impl Iterator<Item = &Paddle> {
        self.targets.iter().chain(&self.distractors).flatten()
    }
}
