//! The data of a run: its shape, and how its rows become batches.

use datasets::shuffle::Order;
use datasets::{Shape, Task};

use super::{Resolved, Spec};
use crate::batch::Layout;
use crate::error::Result;
use crate::{permute, suggest};

impl Spec {
    /// Returns the shape and the label of the data of `task`, permuted if the settings say so.
    /// Settings that do not apply to the source of the data are checked, and leave no mark in the
    /// label.
    ///
    /// # Errors
    /// The task refuses the settings.
    pub fn data_shape(&self, task: &dyn Task) -> Result<Shape> {
        let (options, seed) = permute::without(&self.data);
        task.shape(&options).map_err(suggest::of_task)?;
        let applied = task.identity(&self.data_key()).options;
        let shape = task.shape(&applied).map_err(suggest::of_task)?;
        Ok(permute::shape(shape, seed))
    }

    /// Returns the conversions of rows into batches: for training and validation, and for the test
    /// split, whose rows may be longer.
    pub fn layouts(&self, task: &dyn Task, shape: &Shape) -> [Layout; 2] {
        let (_, seed) = permute::without(&self.data);
        let order = Order::new(seed, shape.max_length);
        [shape.train_length, shape.max_length]
            .map(|length| Layout::new(task.info(), length).ordered(order))
    }
}

impl Resolved {
    /// Returns the shape and the label of the data, permuted if the settings say so.
    pub fn data_shape(&self) -> Result<Shape> {
        self.spec.data_shape(self.task)
    }

    /// Returns the kind of labels that single positions have, if any.
    pub fn dense(&self) -> Option<datasets::Dense> {
        // Settings that the task refuses were refused when they were resolved.
        self.data_shape().ok()?.dense
    }
}
