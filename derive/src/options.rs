//! `#[derive(Options)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Lit, LitStr, Meta,
    MetaNameValue, Path, Result, Token, Type, parse_quote,
};

/// Attributes of the struct.
pub(crate) struct Container {
    /// Path of the crate `lra_models`.
    pub(crate) root: Path,
    section: Option<LitStr>,
}

impl Container {
    pub(crate) fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut container = Self {
            root: parse_quote!(::lra_models),
            section: None,
        };
        for attribute in attributes.iter().filter(|it| it.path().is_ident("options")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    container.root = meta.value()?.parse()?;
                } else if meta.path.is_ident("section") {
                    container.section = Some(meta.value()?.parse()?);
                } else {
                    return Err(meta.error("expected `crate` or `section`"));
                }
                Ok(())
            })?;
        }
        Ok(container)
    }
}

/// Values of a component.
enum Component {
    /// Those of the field's enum.
    Enum,
    /// An array of choices.
    Listed(Expr),
}

/// Attributes of a field.
#[derive(Default)]
struct Declared {
    default: Option<Expr>,
    range: Option<Expr>,
    component: Option<Component>,
}

impl Declared {
    fn read(field: &Field) -> Result<Self> {
        let mut declared = Self::default();
        for attribute in field.attrs.iter().filter(|it| it.path().is_ident("option")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("default") {
                    declared.default = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("range") {
                    declared.range = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("component") {
                    declared.component = Some(match meta.input.peek(Token![=]) {
                        true => Component::Listed(meta.value()?.parse()?),
                        false => Component::Enum,
                    });
                } else {
                    return Err(meta.error("expected `default`, `range` or `component`"));
                }
                Ok(())
            })?;
        }
        if is_number(&field.ty) && declared.range.is_none() {
            return Err(Error::new_spanned(
                field,
                "a number needs a range: #[option(range = int(0, LONGEST))]",
            ));
        }
        Ok(declared)
    }
}

fn is_number(kind: &Type) -> bool {
    let numbers = ["usize", "u32", "u64", "f32", "f64"];
    matches!(kind, Type::Path(it) if numbers.iter().any(|number| it.path.is_ident(number)))
}

/// Returns the documentation of a field as one line; empty if it has none.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(MetaNameValue {
                path,
                value:
                    Expr::Lit(ExprLit {
                        lit: Lit::Str(text),
                        ..
                    }),
                ..
            }) if path.is_ident("doc") => Some(text.value().trim().to_owned()),
            _ => None,
        });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Returns the constructor of `Range` that `range` names, with the key as first argument.
fn range_of(range: &Expr, key: &str, root: &Path) -> Result<TokenStream> {
    let (kind, arguments) = match range {
        Expr::Path(kind) => (kind.to_token_stream(), Vec::new()),
        Expr::Call(call) => (
            call.func.to_token_stream(),
            call.args.iter().collect::<Vec<_>>(),
        ),
        other => {
            let words = "expected a constructor of `Range` without the key, such as `int(1, 64)`";
            return Err(Error::new_spanned(other, words));
        }
    };
    Ok(quote!(#root::options::Range::#kind(#key #(, #arguments)*)))
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Container { root, section } = Container::read(&input.attrs)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(input, "options are a struct"));
    };
    let fields = match &data.fields {
        Fields::Named(fields) => &fields.named,
        other => return Err(Error::new_spanned(other, "options have names")),
    };
    let (mut defaults, mut ranges, mut components) = (Vec::new(), Vec::new(), Vec::new());
    let mut summaries = Vec::new();
    for field in fields {
        let declared = Declared::read(field)?;
        let (ident, kind) = (&field.ident, &field.ty);
        let key = ident.to_token_stream().to_string();
        let summary = documentation(&field.attrs);
        summaries.push(quote!((#key, #summary)));
        let default = match declared.default {
            Some(default) => default.into_token_stream(),
            None => quote!(::core::default::Default::default()),
        };
        defaults.push(quote!(#ident: #default));
        if let Some(range) = &declared.range {
            ranges.push(range_of(range, &key, &root)?);
        }
        let values = match declared.component {
            Some(Component::Enum) => quote!(<#kind as #root::options::Choices>::CHOICES),
            Some(Component::Listed(choices)) => quote!(&#choices),
            None => continue,
        };
        let Some(section) = &section else {
            let words = "a struct with components needs #[options(section = \"...\")]";
            return Err(Error::new_spanned(field, words));
        };
        let key = format!("{}.{key}", section.value());
        components.push(quote!(#root::options::Component { key: #key, values: #values }));
    }
    let name = &input.ident;
    Ok(quote! {
        impl ::core::default::Default for #name {
            fn default() -> Self {
                Self { #(#defaults),* }
            }
        }

        impl #root::options::OptionSet for #name {
            const RANGES: &'static [#root::options::Range] = &[#(#ranges),*];
            const COMPONENTS: &'static [#root::options::Component] = &[#(#components),*];
            const SUMMARIES: &'static [(&'static str, &'static str)] = &[#(#summaries),*];
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(input: DeriveInput) -> String {
        derive(&input).unwrap_err().to_string()
    }

    #[test]
    fn a_range_gets_its_key_and_a_component_its_section() {
        let code = derive(&parse_quote! {
            #[options(section = "block", crate = lra::models)]
            struct Options {
                /// Number of blocks,
                /// one after the other.
                #[option(default = 2, range = int(1, LONGEST))]
                layers: usize,
                #[option(range = probability)]
                dropout: f64,
                #[option(default = NormKind::Layer, component)]
                norm: NormKind,
                #[option(component = [PLAIN, TWICE])]
                copies: Copies,
                /// Shared.
                share: bool,
            }
        });
        let code = code.unwrap().to_string().replace(' ', "");
        for part in [
            "Self{layers:2,dropout:::core::default::Default::default(),norm:NormKind::Layer,",
            "lra::models::options::Range::int(\"layers\",1,LONGEST)",
            "lra::models::options::Range::probability(\"dropout\")",
            "(\"layers\",\"Numberofblocks,oneaftertheother.\"),(\"dropout\",\"\"),(\"norm\",\"\"),",
            "(\"share\",\"Shared.\")",
            "key:\"block.norm\",values:<NormKindaslra::models::options::Choices>::CHOICES",
            "key:\"block.copies\",values:&[PLAIN,TWICE]",
        ] {
            assert!(code.contains(part), "{part} in {code}");
        }
    }

    #[test]
    fn what_is_no_declaration_is_refused_with_a_reason() {
        let number = fault(parse_quote!(
            struct Options {
                rank: usize,
            }
        ));
        assert!(number.contains("a number needs a range"), "{number}");
        for kind in ["usize", "u32", "u64", "f32", "f64"] {
            let kind: Type = syn::parse_str(kind).unwrap();
            assert!(is_number(&kind));
        }
        let range = fault(parse_quote!(
            struct Options {
                #[option(range = 1..4)]
                rank: usize,
            }
        ));
        assert!(range.contains("a constructor of `Range`"), "{range}");
        let section = fault(parse_quote!(
            struct Options {
                #[option(component)]
                norm: NormKind,
            }
        ));
        assert!(section.contains("section"), "{section}");
        let word = fault(parse_quote!(
            struct Options {
                #[option(least = 1)]
                share: bool,
            }
        ));
        assert!(word.contains("expected `default`"), "{word}");
        let kind = fault(parse_quote!(
            enum Options {
                One,
            }
        ));
        assert_eq!(kind, "options are a struct");
    }
}
