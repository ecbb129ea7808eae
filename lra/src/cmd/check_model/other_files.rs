//! The other files of the crate that a custom model comes from, where they are still on disk: those
//! that its source names, as `helper::gate` does. A model itself has the text of one file only.

use std::path::{Path, PathBuf};

use models::Model;
use models::source::direct_products;

/// Returns the lines with matrix products by candle in files that `model`'s source names, directly
/// or by way of others. None for a model of the registry, whose crate multiplies by candle in one
/// place.
pub fn direct_products_beside(model: &Model) -> Vec<String> {
    if models::MODELS.iter().any(|own| own.name == model.name) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for variant in model.variants {
        for (path, text) in named_files(Path::new(variant.declared.file()), variant.source) {
            let lines = direct_products(&text).into_iter();
            let lines = lines.map(|(line, code)| format!("{}:{line}: {code}", path.display()));
            found.extend(lines);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Returns path and text of the files that `source`, the text of the file at `path`, names. None if
/// the file is elsewhere or has another text, as in a program that was moved.
fn named_files(path: &Path, source: &str) -> Vec<(PathBuf, String)> {
    if disk::read_to_string(path).ok().as_deref() != Some(source) {
        return Vec::new();
    }
    let root = disk::folder_of(path).to_path_buf();
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    let mut unread = vec![(path.to_path_buf(), source.to_owned())];
    while let Some((place, text)) = unread.pop() {
        let beside = disk::folder_of(&place);
        let below = place.with_extension("");
        for module in modules(&text) {
            for folder in [&below, beside, &root] {
                let paths = [
                    folder.join(format!("{module}.rs")),
                    folder.join(module).join("mod.rs"),
                ];
                for path in paths {
                    let known = path == place || files.iter().any(|(known, _)| *known == path);
                    if let (false, Ok(text)) = (known, disk::read_to_string(&path)) {
                        unread.push((path.clone(), text.clone()));
                        files.push((path, text));
                    }
                }
            }
        }
    }
    files.retain(|(file, _)| file != path);
    files
}

/// Returns the words of code that `::` follows, each once.
fn modules(text: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let lines = text.lines().filter(|line| !line.trim().starts_with("//"));
    let words = lines.flat_map(|line| {
        line.match_indices("::").map(move |(at, _)| {
            let before = &line[..at];
            before
                .rsplit(|letter| !is_part(letter))
                .next()
                .unwrap_or_default()
        })
    });
    let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_source_names_are_read_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(disk::folder_of(&path)).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let own = "// unused::f\nlet y = helper::gate(&crate::deep::g(x))?;\n";
        let path = write("main.rs", own);
        write("helper.rs", "fn gate() { self::inner::product() }\n");
        write(
            "helper/inner.rs",
            "fn product() { crate::helper::gate() }\n",
        );
        write("deep/mod.rs", "");
        write("unused.rs", "");
        let files = named_files(&path, own).into_iter();
        let mut names: Vec<String> = files
            .map(|(file, _)| {
                let name = file.strip_prefix(folder.path()).unwrap();
                name.display().to_string()
            })
            .collect();
        names.sort();
        assert_eq!(names, ["deep/mod.rs", "helper.rs", "helper/inner.rs"]);
        assert!(named_files(&path, "another text").is_empty());
    }
}
