//! The names that a task of your own imports.

pub use rand_chacha::ChaCha8Rng;
pub use serde::{Deserialize, Serialize};
pub use serde_json::{Value, json};

pub use crate::error::{Error, Result};
pub use crate::options::{parse, within};
pub use crate::rng::{below, stream};
pub use crate::synthetic::{DrawOptions, between};
pub use crate::{
    Baseline, Check, Dense, DenseRow, Progress, Request, Shape, Source, SplitName, SplitWriter,
    Splits, Task, TaskInfo,
};
