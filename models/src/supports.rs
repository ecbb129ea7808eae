//! Options for queries, keys and scores that a mixer supports.

use crate::{Result, error::require, options::BlockOptions};

/// Options for queries, keys and scores that a mixer supports. A field is `Ok` for a supported
/// option, and has the reason as its error otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Supports {
    /// Support of the options that change the scores of pairs, such as `block.bias`.
    pub scores: Result<(), &'static str>,
    /// Support of `block.rotary`.
    pub rotary: Result<(), &'static str>,
    /// Support of `block.memory`.
    pub memory: Result<(), &'static str>,
}

impl Supports {
    /// Support of all options, for attention that computes a score for each pair of query and key.
    pub const ALL: Self = Self {
        scores: Ok(()),
        rotary: Ok(()),
        memory: Ok(()),
    };

    /// Returns the support of a mixer that has none of the options, for the given `reason`.
    #[must_use]
    pub const fn none(reason: &'static str) -> Self {
        Self {
            scores: Err(reason),
            rotary: Err(reason),
            memory: Err(reason),
        }
    }

    /// Support of all options but those for scores. It is for attention by features of queries and
    /// keys, which computes no score for a pair.
    pub const BY_FEATURES: Self = Self {
        scores: Err("queries and keys meet as features: no pair has a score"),
        ..Self::ALL
    };

    /// Checks that the mixer supports the options of `block`.
    ///
    /// # Errors
    /// [`crate::Error::Option`] with the reason.
    pub(crate) fn check(&self, block: &BlockOptions) -> Result<()> {
        let refuse = |asked: bool, supports: Result<(), &str>, key, value: String, usual: &str| {
            match supports {
                Err(reason) if asked => {
                    require(false, key, value, format!("{usual}, because {reason}"))
                }
                _ => Ok(()),
            }
        };
        for (key, value, off) in block.on_scores() {
            if let Some(value) = value {
                refuse(true, self.scores, key, value, off)?;
            }
        }
        refuse(
            block.rotary,
            self.rotary,
            "block.rotary",
            "true".to_owned(),
            "false",
        )?;
        refuse(
            block.memory > 0,
            self.memory,
            "block.memory",
            block.memory.to_string(),
            "0",
        )
    }
}
