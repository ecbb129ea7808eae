//! Generator of images, each a pure function of (parameters, seed, number).

use super::grow_contours::{ContourGrower, Dash, Workspace};
use super::parameters::{Parameters, Pixels};
use super::render::Renderer;
use super::scene::{Paddle, Scene};
use crate::DenseRow;
use crate::rng::{below, stream};

/// Generator of the images of one parameter set.
///
/// Making one takes milliseconds (tiles, rings and start points of every margin); generating an
/// image then needs only [`Workspaces`], one per thread.
pub struct Generator {
    parameters: Parameters,
    growers: Vec<ContourGrower>,
    renderer: Renderer,
}

/// Buffers of one thread, one set for each margin.
pub struct Workspaces(Vec<Workspace>);

impl Generator {
    /// Prepares the generator.
    pub fn new(parameters: Parameters, pixels: Pixels) -> Generator {
        Generator {
            growers: parameters
                .margins
                .iter()
                .map(|&margin| ContourGrower::new(&parameters, margin))
                .collect(),
            renderer: Renderer::new(&parameters, pixels),
            parameters,
        }
    }

    /// Returns the parameters of the images.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns new buffers for [`Generator::scene`].
    pub fn workspaces(&self) -> Workspaces {
        Workspaces(self.growers.iter().map(ContourGrower::workspace).collect())
    }

    /// Returns the geometry of image `number` of the family that `seed` chooses.
    pub fn scene(&self, workspaces: &mut Workspaces, seed: u64, number: u64) -> Scene {
        let parameters = &self.parameters;
        let purpose = format!(
            "pathfinder {} {}",
            parameters.side, parameters.contour_length
        );
        let mut rng = stream(&purpose, seed, number);
        let label = below(&mut rng, 2) as u8;
        let which = below(&mut rng, self.growers.len() as u32) as usize;
        let (grower, work) = (&self.growers[which], &mut workspaces.0[which]);
        let length = match parameters.contour_lengths {
            Some([least, most]) => least + below(&mut rng, (most - least + 1) as u32) as usize,
            None => parameters.contour_length,
        };
        grower.grow_targets(work, length, &mut rng);
        grower.grow_distractors(work, parameters.distractors, &mut rng);
        let origin = below(&mut rng, 2) as usize;
        let terminal = if label == 1 { origin } else { 1 - origin };
        let first = work.targets[origin].first();
        let last = work.targets[terminal].last();
        let centre = |dash: Option<&Dash>| dash.map_or((0, 0), |dash| dash.start);
        let paddles = |dashes: &Vec<Dash>, contrast: f32| -> Vec<Paddle> {
            dashes
                .iter()
                .map(|dash| Paddle {
                    start: dash.start,
                    end: grower.tiles.get(dash.tile).end,
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

    /// Returns image `number` of the family that `seed` chooses: its geometry, and its grey values
    /// row by row.
    pub fn image(&self, workspaces: &mut Workspaces, seed: u64, number: u64) -> (Scene, Vec<u8>) {
        let scene = self.scene(workspaces, seed, number);
        let which = self.grower_of(&scene).unwrap_or_default();
        let pixels = self.renderer.draw(&scene, &self.growers[which].tiles);
        (scene, pixels)
    }

    /// Returns the labels of the pixels of a scene, row by row: see the option `dense`. Dashes that
    /// do not occur with these parameters are left out.
    pub fn dense(&self, scene: &Scene) -> DenseRow {
        let which = self.grower_of(scene).unwrap_or_default();
        self.renderer.dense(scene, &self.growers[which].tiles)
    }

    /// Returns the grey values of a scene, row by row.
    ///
    /// Returns `None` if the scene's margin is not one of the parameters' margins, or if a dash has
    /// an end that no dash of these parameters has.
    pub fn render(&self, scene: &Scene) -> Option<Vec<u8>> {
        let which = self.grower_of(scene)?;
        let tiles = &self.growers[which].tiles;
        let known = |paddle: &Paddle| tiles.ending_at(paddle.end).is_some();
        scene
            .paddles()
            .all(known)
            .then(|| self.renderer.draw(scene, tiles))
    }

    fn grower_of(&self, scene: &Scene) -> Option<usize> {
        let mut margins = self.parameters.margins.iter();
        margins.position(|margin| *margin == scene.margin)
    }
}
