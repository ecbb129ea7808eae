//! Families of blocks, by the layers that a model's authors put around its mixer.

use std::fmt;

/// Family of blocks, by the layers that authors put around their mixer. A model's card names its
/// family, and a recipe may have settings for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// The block of a Transformer: norm, mixer, norm and feed-forward network, with positions
    /// marked in the embedding.
    Xformer,
    /// The block of a long filter, such as S4's: BatchNorm, the filter and its gated output. It has
    /// no feed-forward network, and positions are not marked.
    Filter,
    /// A mixer with gates of its own, such as Mega's, in the block that its authors give it.
    Gated,
    /// A whole layer of the authors' own in place of a block's parts, such as ChordMixer's.
    Mixer,
}

impl Family {
    /// All families, in the order of the variants.
    pub const ALL: [Family; 4] = [
        Family::Xformer,
        Family::Filter,
        Family::Gated,
        Family::Mixer,
    ];

    /// Returns the name of the family in settings, such as `xformer`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Xformer => "xformer",
            Family::Filter => "filter",
            Family::Gated => "gated",
            Family::Mixer => "mixer",
        }
    }

    /// Returns the family that [`Family::name`] calls `name`. `None` if there is no such family.
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
