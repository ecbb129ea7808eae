//! Derives for options: each option is declared once, in its struct, and each value of an option
//! once, in its enum.
//!
//! The generated code names the crate `lra_models`. A crate that knows it by another name says so:
//! `#[options(crate = lra::models)]`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod choices;
mod options;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Default` and `OptionSet` for a struct of options.
///
/// Each field may have an attribute `#[option(...)]` with
/// - `default = VALUE`: the default; without it, that of the field's type,
/// - `range = RANGE`: the range of a number, a constructor of `Range` without the key:
///   `int(1, LONGEST)`, `probability`, `not_negative`, `positive(1.0)`. A number must have one,
/// - `component`: the option is a component, and its values are those of the field's enum,
/// - `component = [CHOICE, ...]`: the option is a component with these values, the default first.
///
/// A struct with components names its section: `#[options(section = "block")]`.
#[proc_macro_derive(Options, attributes(options, option))]
pub fn derive_options(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    options::derive(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Implements `Choices` and `Display` for an enum without fields.
///
/// A value has the name that serde gives it (`rename_all = "snake_case"`, `rename = "..."`). Its
/// description is the first paragraph of its documentation, without the full stop, and without a
/// capital at the beginning of a plain word. `#[choice(wants = [("block.norm", "none")])]` lists
/// values of other components that it requires.
#[proc_macro_derive(Choices, attributes(choice, options))]
pub fn derive_choices(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    choices::derive(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
