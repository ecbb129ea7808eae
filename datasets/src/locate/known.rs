//! Files that may lie among a task's data without being any, known by their names: documentation
//! and checksums, and the published files of other tasks.

use crate::archive::unpacked_name;

/// Names of documentation up to the first dot, in lower case.
const STEMS: [&str; 10] = [
    "readme",
    "license",
    "licence",
    "copying",
    "citation",
    "changelog",
    "changes",
    "notice",
    "authors",
    "checksums",
];

/// Names of other files that the published archives hold beside their examples, in lower case.
const PUBLISHED: [&str; 9] = [
    "imdb.vocab",
    "imdber.txt",
    "labeledbow.feat",
    "unsupbow.feat",
    "urls_neg.txt",
    "urls_pos.txt",
    "urls_unsup.txt",
    "batches.meta",
    "batches.meta.txt",
];

/// Endings of documentation and of checksums, in lower case.
const ENDS: [&str; 11] = [
    ".md", ".rst", ".html", ".htm", ".pdf", ".bib", ".md5", ".sha1", ".sha256", ".sha512", ".asc",
];

/// Returns whether a file is documentation, a list of checksums (`SHA256SUMS`, `md5sum.txt`), or
/// another file that a published archive holds beside its examples.
pub(crate) fn is_documentation(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let stem = file.split('.').next().unwrap_or_default();
    STEMS.contains(&stem)
        || PUBLISHED.contains(&file.as_str())
        || ENDS.iter().any(|end| file.ends_with(end))
        || ["sum", "sums"].iter().any(|end| {
            let kind = stem.strip_suffix(end).unwrap_or_default();
            kind == "md5" || kind == "check" || kind.starts_with("sha")
        })
}

/// Beginnings of the names of folders in which a task's data is published or usually kept, in lower
/// case.
const FOLDERS: [(&str, &str); 7] = [
    ("aclimdb", "text"),
    ("imdb", "text"),
    ("cifar", "image"),
    ("pathfinder", "pathfinder"),
    ("curv_", "pathfinder"),
    ("listops", "listops"),
    ("tsv_data", "retrieval"),
];

/// Returns the task whose published data a file belongs to, by the first folder or else by the name
/// of the file.
fn task_of(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let (folders, file) = name.rsplit_once('/').unwrap_or(("", &name));
    let of_folder = |folder: &str| match folder {
        "aan" => Some("retrieval"),
        _ => FOLDERS
            .iter()
            .find(|(start, _)| folder.starts_with(start))
            .map(|(_, task)| *task),
    };
    folders.split('/').find_map(of_folder).or_else(|| {
        let file = unpacked_name(file).unwrap_or(file);
        match file {
            "basic_train.tsv" | "basic_val.tsv" | "basic_test.tsv" => Some("listops"),
            "papers.tsv" | "edges.tsv" => Some("retrieval"),
            _ if file.starts_with("new_aan_pairs.") => Some("retrieval"),
            _ if file.starts_with("data_batch") || file.starts_with("test_batch") => Some("image"),
            _ => None,
        }
    })
}

/// Returns whether a file belongs to the published data of another task than the one named `own`.
pub(super) fn is_of_another(own: &str, name: &str) -> bool {
    let own = match own {
        "pathx" => "pathfinder",
        own => own,
    };
    task_of(name).is_some_and(|task| task != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_is_known() {
        for name in [
            "aclImdb/README",
            "aclImdb/imdb.vocab",
            "aclImdb/imdbEr.txt",
            "aclImdb/train/urls_unsup.txt",
            "cifar-10-batches-bin/batches.meta.txt",
            "cifar-10-batches-bin/readme.html",
            "SHA256SUMS",
            "sha256sum.txt",
            "md5sums.txt",
            "checksums.txt",
            "aclImdb_v1.tar.gz.sha256",
            "LICENSE.txt",
        ] {
            assert!(is_documentation(name), "{name}");
        }
        for name in [
            "train/99_8.txt",
            "basic_extra.tsv",
            "sums.txt",
            "version2.txt",
        ] {
            assert!(!is_documentation(name), "{name}");
        }
    }

    #[test]
    fn files_belong_to_their_tasks() {
        assert!(is_of_another("text", "cifar-10-batches-py/data_batch_1"));
        assert!(is_of_another("listops", "new_aan_pairs.train.tsv.gz"));
        assert!(is_of_another(
            "image",
            "a/pathfinder32/curv_baseline/imgs/0/sample_0.png"
        ));
        assert!(is_of_another("image", "curv_baseline/imgs/0/sample_0.png"));
        assert!(!is_of_another("pathx", "pathfinder128/x.png"));
        // The first folder counts.
        assert!(!is_of_another("text", "aclImdb/listops/1_9.txt"));
        assert!(!is_of_another("text", "notes.txt"));
    }
}
