//! Allowed references between the modules of the crate, checked in its sources.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns every source file at or below `path`, which is relative to `models/src`.
fn sources(path: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path);
    if path.is_file() {
        return vec![path];
    }
    let (mut files, mut folders) = (Vec::new(), vec![path]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|kind| kind == "rs") => files.push(path),
                false => {}
            }
        }
    }
    assert!(!files.is_empty());
    files
}

/// Returns whether code in `line`, comments aside, has `word`.
fn names(line: &str, word: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.split(|letter| !is_part(letter))
        .any(|part| part == word)
}

/// Checks that no file has `word` in its code but those below `allowed`.
fn only(allowed: &[&str], word: &str) {
    let allowed: Vec<PathBuf> = allowed.iter().flat_map(|path| sources(path)).collect();
    let strangers = sources("")
        .into_iter()
        .filter(|path| !allowed.contains(path));
    refuse(strangers, word);
}

/// Checks that no file below `paths` has `word` in its code.
fn none(paths: &[&str], word: &str) {
    refuse(paths.iter().flat_map(|path| sources(path)), word);
}

fn refuse(paths: impl Iterator<Item = PathBuf>, word: &str) {
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            assert!(
                !names(line, word),
                "{place}: `{word}` is not for this file: {line}"
            );
        }
    }
}

#[test]
fn only_operations_choose_between_their_forms() {
    only(&["ops", "autograd", "rng.rs"], "lra_cpu");
    only(&["ops", "autograd", "lib.rs"], "autograd");
}

#[test]
fn only_registry_conformance_and_tests_ask_all_models() {
    let allowed = [
        "lib.rs",
        "mixers",
        "registry.rs",
        "conformance.rs",
        "parity",
        "backbone.rs",
    ];
    only(&allowed, "MODELS");
}

#[test]
fn mixers_know_nothing_of_the_cases_that_check_them() {
    none(&["mixer.rs", "mixers", "pass.rs"], "parity");
}

#[test]
fn operations_know_no_layers() {
    none(&["ops", "autograd"], "layers");
    none(&["ops", "autograd"], "mixers");
}

/// Returns how many names the `use` declarations of `text` bring in one by one, tests aside.
fn imported(text: &str) -> usize {
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text);
    let mut count = 0;
    let mut rest = code;
    while let Some(start) = rest.find("\nuse ") {
        let declaration = &rest[start + 5..];
        let end = declaration.find(';').unwrap_or(declaration.len());
        let names = declaration[..end].split([',', '{', '}']).map(str::trim);
        count += names
            .filter(|name| !name.is_empty() && !name.ends_with("::") && !name.ends_with('*'))
            .count();
        rest = &declaration[end..];
    }
    count
}

/// Somebody who writes a mixer begins with the prelude, not with a list of names.
#[test]
fn a_mixer_imports_few_names_beside_the_prelude() {
    let entries = sources("mixers").into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        text.contains("pub const MODEL: Model")
            .then_some((imported(&text), path))
    });
    let mut counts: Vec<(usize, PathBuf)> = entries.collect();
    counts.sort();
    let median = counts[counts.len() / 2].0;
    assert!(median <= 6, "{median}: {counts:?}");
}

#[test]
fn imported_names_are_counted() {
    let text = "//! Header.\n\nuse a::{b::{self, c}, d, prelude::*};\nuse e::f;\nfn g() {}\n\
                #[cfg(test)]\nmod tests {\n    use x::y;\n}\n";
    assert_eq!(imported(text), 4);
}

#[test]
fn comments_and_longer_words_are_not_names() {
    assert!(names("use crate::ops::supports;", "ops"));
    assert!(names("    ops::linear(x)", "ops"));
    assert!(!names("//! what crate::ops computes", "ops"));
    assert!(!names("fn the_ops_agree() {}", "ops"));
}
