//! `#[derive(Choices)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Fields, Lit, LitStr, Meta, Result, Token,
    Variant,
};

use crate::options::Container;

/// Returns the value of the key `name` in serde's attributes.
fn serde_value(attributes: &[Attribute], name: &str) -> Result<Option<LitStr>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|it| it.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident(name) {
                found = Some(meta.value()?.parse()?);
            } else if meta.input.peek(Token![=]) {
                // An attribute for serde alone.
                meta.value()?.parse::<Expr>()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Returns `name` in snake case, as serde does.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (index, letter) in name.char_indices() {
        if index > 0 && letter.is_uppercase() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// Returns the name of a value in settings.
fn name_of(variant: &Variant, rule: Option<&LitStr>) -> Result<String> {
    if let Some(name) = serde_value(&variant.attrs, "rename")? {
        return Ok(name.value());
    }
    let name = variant.ident.to_string();
    match rule {
        None => Ok(name),
        Some(rule) if rule.value() == "snake_case" => Ok(snake_case(&name)),
        Some(rule) => Err(Error::new_spanned(rule, "expected snake_case")),
    }
}

/// Returns the first paragraph of the documentation in `attributes`, in one line.
fn first_paragraph(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(line),
                    ..
                }) => Some(line.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        });
    let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// Returns a sentence as an entry of a list: without its full stop, and without the capital of its
/// first word, unless that is a name (`LayerNorm`, `GELU`).
fn entry(sentence: &str) -> String {
    let sentence = sentence.strip_suffix('.').unwrap_or(sentence);
    let mut letters = sentence.chars();
    let Some(first) = letters.next() else {
        return String::new();
    };
    let rest = letters.as_str();
    let word = rest.chars().take_while(|letter| letter.is_alphanumeric());
    match word.clone().any(char::is_uppercase) {
        true => sentence.to_owned(),
        false => first.to_lowercase().chain(rest.chars()).collect(),
    }
}

/// Returns the values of other components that a value requires.
fn wants(variant: &Variant) -> Result<Option<Expr>> {
    let mut wants = None;
    let choices = variant.attrs.iter();
    for attribute in choices.filter(|it| it.path().is_ident("choice")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("wants") {
                return Err(meta.error("expected `wants`"));
            }
            wants = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(wants)
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let root = Container::read(&input.attrs)?.root;
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(input, "choices are an enum"));
    };
    let rule = serde_value(&input.attrs, "rename_all")?;
    let (mut choices, mut names) = (Vec::new(), Vec::new());
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new_spanned(variant, "a choice has no fields"));
        }
        let summary = entry(&first_paragraph(&variant.attrs));
        if summary.is_empty() {
            return Err(Error::new_spanned(variant, "a choice needs a description"));
        }
        let (ident, name) = (&variant.ident, name_of(variant, rule.as_ref())?);
        let wants = wants(variant)?.map(|wants| quote!(.wants(&#wants)));
        choices.push(quote!(#root::options::Choice::new(#name, #summary)#wants));
        names.push(quote!(Self::#ident => #name));
    }
    let name = &input.ident;
    Ok(quote! {
        impl #root::options::Choices for #name {
            const CHOICES: &'static [#root::options::Choice] = &[#(#choices),*];
        }

        impl ::core::fmt::Display for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(match self { #(#names),* })
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn a_description_is_the_first_paragraph_as_an_entry_of_a_list() {
        let variant: Variant = parse_quote! {
            /// A GRU's gate
            /// (GTrXL).
            ///
            /// More of it.
            Gru
        };
        let summary = |text: &str| entry(text);
        assert_eq!(
            summary(&first_paragraph(&variant.attrs)),
            "a GRU's gate (GTrXL)"
        );
        for (sentence, wanted) in [
            ("No norm.", "no norm"),
            ("LayerNorm.", "LayerNorm"),
            ("GELU, exact.", "GELU, exact"),
            ("ω x + y (Admin).", "ω x + y (Admin)"),
            ("x.", "x"),
        ] {
            assert_eq!(summary(sentence), wanted);
        }
    }

    #[test]
    fn names_are_those_of_serde() {
        let rule: LitStr = parse_quote!("snake_case");
        let name = |variant: Variant| name_of(&variant, Some(&rule)).unwrap();
        assert_eq!(name(parse_quote!(DebertaPaper)), "deberta_paper");
        assert_eq!(name(parse_quote!(T5)), "t5");
        assert_eq!(
            name(parse_quote!(
                #[serde(rename = "2d")]
                Plane
            )),
            "2d"
        );
    }

    #[test]
    fn other_attributes_of_serde_and_other_rules_are_no_names() {
        let variant: Variant = parse_quote!(
            #[serde(alias = "flat", rename = "2d")]
            Plane
        );
        assert_eq!(name_of(&variant, None).unwrap(), "2d");
        let plain: Variant = parse_quote!(DebertaPaper);
        assert_eq!(name_of(&plain, None).unwrap(), "DebertaPaper");
        let rule: LitStr = parse_quote!("lowercase");
        let refused = name_of(&plain, Some(&rule)).unwrap_err().to_string();
        assert_eq!(refused, "expected snake_case");
    }

    #[test]
    fn a_choice_has_its_name_its_description_and_what_it_wants() {
        let code = derive(&parse_quote! {
            #[serde(rename_all = "snake_case")]
            #[options(crate = lra::models)]
            enum Kind {
                /// The first one.
                OnlyOne,
                /// Another.
                #[choice(wants = [("block.norm", "none")])]
                Other,
            }
        });
        let code = code.unwrap().to_string().replace(' ', "");
        for part in [
            "lra::models::options::Choice::new(\"only_one\",\"thefirstone\"),",
            "Choice::new(\"other\",\"another\").wants(&[(\"block.norm\",\"none\")])]",
            "Self::OnlyOne=>\"only_one\",Self::Other=>\"other\"",
        ] {
            assert!(code.contains(part), "{part} in {code}");
        }
    }

    #[test]
    fn a_value_without_a_description_is_refused() {
        let fault = |input: DeriveInput| derive(&input).unwrap_err().to_string();
        let silent = fault(parse_quote!(
            enum Kind {
                One,
            }
        ));
        assert_eq!(silent, "a choice needs a description");
        let full = fault(parse_quote!(
            enum Kind {
                One(u32),
            }
        ));
        assert_eq!(full, "a choice has no fields");
        let word = fault(parse_quote!(
            enum Kind {
                #[choice(with = [])]
                #[doc = "One."]
                One,
            }
        ));
        assert!(word.contains("expected `wants`"), "{word}");
    }
}
