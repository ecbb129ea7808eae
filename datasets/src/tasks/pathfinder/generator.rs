//! One image after another, each a pure function of (parameters, seed, number).

use super::grow::{Dash, Ground, Workspace};
use super::parameters::{Parameters, Pixels};
use super::render::Renderer;
use super::scene::{Paddle, Scene};
use crate::rng::{below, stream};

/// ChaCha8Rng the images of one parameter set.
///
/// Making one takes milliseconds (tiles, rings and starting places of every margin); drawing an image
/// then needs only a [`Pencil`] per thread.
pub struct Generator {
    parameters: Parameters,
    grounds: Vec<Ground>,
    renderer: Renderer,
}

/// Buffers of one thread.
pub struct Pencil(Vec<Workspace>);

impl Generator {
    /// Prepares the generator.
    pub fn new(parameters: Parameters, pixels: Pixels) -> Generator {
        Generator {
            grounds: parameters
                .margins
                .iter()
                .map(|&margin| Ground::new(&parameters, margin))
                .collect(),
            renderer: Renderer::new(&parameters, pixels),
            parameters,
        }
    }

    /// What the images are drawn with.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Buffers for [`Generator::scene`].
    pub fn pencil(&self) -> Pencil {
        Pencil(self.grounds.iter().map(Ground::workspace).collect())
    }

    /// The geometry of image `number` of the family that `seed` chooses.
    pub fn scene(&self, pencil: &mut Pencil, seed: u64, number: u64) -> Scene {
        let parameters = &self.parameters;
        let purpose = format!(
            "pathfinder {} {}",
            parameters.side, parameters.contour_length
        );
        let mut draws = stream(&purpose, seed, number);
        let label = below(&mut draws, 2) as u8;
        let which = below(&mut draws, self.grounds.len() as u32) as usize;
        let (ground, work) = (&self.grounds[which], &mut pencil.0[which]);
        ground.grow_targets(work, &mut draws);
        ground.grow_distractors(work, parameters.distractors, &mut draws);
        let origin = below(&mut draws, 2) as usize;
        let terminal = if label == 1 { origin } else { 1 - origin };
        let first = work.targets[origin].first();
        let last = work.targets[terminal].last();
        let centre = |dash: Option<&Dash>| dash.map_or((0, 0), |dash| dash.start);
        let paddles = |dashes: &Vec<Dash>, contrast: f32| -> Vec<Paddle> {
            dashes
                .iter()
                .map(|dash| Paddle {
                    start: dash.start,
                    end: ground.strokes.get(dash.stroke).end,
                    contrast,
                })
                .collect()
        };
        Scene {
            label,
            margin: parameters.margins[which],
            targets: [
                paddles(&work.targets[0], parameters.target_contrast),
                paddles(&work.targets[1], parameters.target_contrast),
            ],
            distractors: work
                .distractors
                .iter()
                .map(|dashes| paddles(dashes, parameters.distractor_contrast))
                .collect(),
            discs: [centre(first), centre(last)],
            attempts: work.attempts,
        }
    }

    /// Image number `number` of the family that `seed` chooses: its geometry, and its grey values row by row.
    pub fn image(&self, pencil: &mut Pencil, seed: u64, number: u64) -> (Scene, Vec<u8>) {
        let scene = self.scene(pencil, seed, number);
        let which = self.ground_of(&scene).unwrap_or_default();
        let pixels = self.renderer.draw(&scene, &self.grounds[which].strokes);
        (scene, pixels)
    }

    /// Grey values of a scene, row by row.
    ///
    /// None if its margin is not one of the parameters' or a dash ends where none of theirs can.
    pub fn render(&self, scene: &Scene) -> Option<Vec<u8>> {
        let which = self.ground_of(scene)?;
        let strokes = &self.grounds[which].strokes;
        let known = |paddle: &Paddle| strokes.ending_at(paddle.end).is_some();
        scene
            .paddles()
            .all(known)
            .then(|| self.renderer.draw(scene, strokes))
    }

    fn ground_of(&self, scene: &Scene) -> Option<usize> {
        let mut margins = self.parameters.margins.iter();
        margins.position(|margin| *margin == scene.margin)
    }
}
