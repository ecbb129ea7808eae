//! Families of blocks, by the layers that a model's authors put around its mixer.

use std::fmt;

/// Family of blocks, by the layers that authors put around their mixer. A model's card names its
/// family, and a recipe may have settings for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// A Transformer's block: norm, mixer, norm, feed-forward network, and positions.
    Xformer,
    /// A long filter: BatchNorm, the filter and its gated output, no feed-forward network, no
    /// positions.
    Filter,
    /// A gate within the mixer, in the block that its authors give it.
    Gated,
    /// A whole layer of its own, such as ChordMixer's.
    Mixer,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 4] = [
        Family::Xformer,
        Family::Filter,
        Family::Gated,
        Family::Mixer,
    ];

    /// Returns the name of the family in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Xformer => "xformer",
            Family::Filter => "filter",
            Family::Gated => "gated",
            Family::Mixer => "mixer",
        }
    }

    /// Returns the family called `name`, if there is one.
    #[must_use]
    pub fn find(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_found_by_its_name() {
        for family in Family::ALL {
            assert_eq!(Family::find(family.name()), Some(family));
        }
        assert_eq!(Family::find("transformer"), None);
    }
}
