//! Kinds of files that this program writes and reads back, told by their first line. A file with
//! a damaged line further down is still of its kind.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use crate::check::Baseline;
use crate::imported;

/// The kind of files that `lra import` writes.
pub const IMPORTED: &str = "a file of imported accuracies";

/// The most bytes of a first line that are read.
const LONGEST: u64 = 64 << 20;

/// Returns the kind of a file, in words; `None` if it is not a file of this program, or cannot be
/// read.
#[must_use]
pub fn kind(path: &Path) -> Option<&'static str> {
    // A pipe must not be read.
    if !path.is_file() {
        return None;
    }
    let mut first = Vec::new();
    let mut reader = BufReader::new(File::open(path).ok()?.take(LONGEST));
    reader.read_until(b'\n', &mut first).ok()?;
    let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first);
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "csv" => of_columns(first),
        "jsonl" => {
            let line: Value = serde_json::from_slice(first).ok()?;
            let is_bench = ["schema", "session", "length", "outcome"]
                .iter()
                .all(|field| line.get(field).is_some());
            is_bench.then_some("a session of `lra bench`")
        }
        _ => None,
    }
}

/// Returns the kind of a CSV file by its first line.
fn of_columns(first: &[u8]) -> Option<&'static str> {
    let mut reader = csv::Reader::from_reader(first);
    let columns = reader.headers().ok()?;
    if imported::has_columns(columns) {
        return Some(IMPORTED);
    }
    if Baseline::has_columns(columns) {
        return Some("a baseline");
    }
    // Every record has these fields.
    let is_of_records = ["schema", "id", "task.name"]
        .iter()
        .all(|name| columns.iter().any(|column| column == *name));
    is_of_records.then_some("a table of records")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_still_of_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            kind(&path)
        };
        let records = "schema,id,outcome.status,task.name\n1\n";
        assert_eq!(of("a.CSV", records), Some("a table of records"));
        let marked = format!("\u{feff}{records}");
        assert_eq!(of("a2.csv", &marked), Some("a table of records"));
        let imported = "source,task,model,accuracy_percent,deviation_percent,seeds,settings";
        for end in ["\n", "\r\n", "\nx\n"] {
            let text = format!("{imported}{end}");
            assert_eq!(of("b.csv", &text), Some(IMPORTED));
        }
        let bench = r#"{"schema":1,"session":"a","model":"bag","length":64,"outcome":{}}"#;
        let words = Some("a session of `lra bench`");
        assert_eq!(of("c.jsonl", &format!("{bench}\noops")), words);
        assert_eq!(of("c2.jsonl", &format!("\u{feff}{bench}\n")), words);
        for (name, text) in [
            ("d.csv", "model,accuracy\n"),
            ("d2.csv", "schema,id\n"),
            ("e.csv", ""),
            ("f.jsonl", "{\"index\":0}\n"),
            ("f2.jsonl", "{\"schema\":1,\"length\":64,\"outcome\":{}}\n"),
            ("g.jsonl", "oops"),
            ("h.txt", "schema,id\n"),
        ] {
            assert_eq!(of(name, text), None, "{name}");
        }
        assert_eq!(kind(folder.path()), None);
    }
}
