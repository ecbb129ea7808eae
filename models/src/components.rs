//! The components: choices of the embedding, the block and the head that go around any mixer.
//!
//! A component is declared in the options (`models/src/options/`) and documented where it is
//! computed; this module lists the components, so that listings and tests need no list of their
//! own.

use serde_json::{Value, json};

use crate::choice::{Choice, Component};
use crate::{
    Error, Options, Result,
    block::channel,
    loss::Loss,
    options::{BlockOptions, EmbedOptions, HeadOptions, OptionSet, overlay, to_json},
};

/// Returns the components of all sections in one list.
const fn all<const N: usize>(sections: &[&[Component]]) -> [Component; N] {
    let mut components = [sections[0][0]; N];
    let (mut section, mut index, mut count) = (0, 0, 0);
    while section < sections.len() {
        while index < sections[section].len() {
            components[count] = sections[section][index];
            (index, count) = (index + 1, count + 1);
        }
        (section, index) = (section + 1, 0);
    }
    assert!(count == N);
    components
}

const COUNT: usize =
    BlockOptions::COMPONENTS.len() + EmbedOptions::COMPONENTS.len() + HeadOptions::COMPONENTS.len();

/// Components of the block, the embedding and the head, in this order.
pub static COMPONENTS: &[Component] = &all::<COUNT>(&[
    BlockOptions::COMPONENTS,
    EmbedOptions::COMPONENTS,
    HeadOptions::COMPONENTS,
]);

impl Component {
    /// Returns `options` with this component set to `choice`. Components that the choice requires
    /// get the required values.
    ///
    /// # Errors
    /// [`Error::Option`] if there is no such value; [`Error::Input`] if the key is not a section
    /// and a name with a dot between.
    pub fn set(&self, options: &Options, choice: &Choice) -> Result<Options> {
        let mut settings = to_json(options);
        let expected = choice.wants.iter().copied();
        for (key, value) in expected.chain([(self.key, choice.value)]) {
            let Some((section, name)) = key.split_once('.') else {
                return Err(Error::Input(format!("{key} is no key of a component")));
            };
            // Numbers and truth values as such, names as text.
            let value: Value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            overlay(&mut settings, &json!({ section: { name: value } }));
        }
        serde_json::from_value(settings).map_err(|error| Error::Option {
            key: self.key.to_owned(),
            value: choice.value.to_owned(),
            allowed: error.to_string(),
        })
    }
}

impl Options {
    /// Returns the losses that the layers of the block add to the cross-entropy. The model may add
    /// others (see [`crate::Classifier::losses`]).
    #[must_use]
    pub(crate) fn losses(&self) -> &'static [Loss] {
        channel::losses(self.block.ffn)
    }
}
