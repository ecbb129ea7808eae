//! `lra list schemas`: JSON schemas of the files that programs read, made from the types that write
//! them.

use datasets::Manifest;
use results::table::{Cell, Row};
use results::{Bench, Record, metrics};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::error::Result;
use crate::suggest;

/// A file with a schema.
struct File {
    /// Name of the schema.
    name: &'static str,
    /// Names of the files, and how much of one the schema describes.
    describes: &'static str,
    make: fn(SchemaGenerator) -> Schema,
}

const FILES: [File; 4] = [
    File {
        name: "record",
        describes: "record.json of a run, and the output of `lra run --json` with one seed",
        make: |generator| generator.into_root_schema_for::<Record>(),
    },
    File {
        name: "metrics",
        describes: "a line of metrics.jsonl of a run",
        make: |generator| generator.into_root_schema_for::<metrics::Line>(),
    },
    File {
        name: "bench",
        describes: "a line of the file of `lra bench`",
        make: |generator| generator.into_root_schema_for::<Bench>(),
    },
    File {
        name: "manifest",
        describes: "manifest.json beside stored data",
        make: |generator| generator.into_root_schema_for::<Manifest>(),
    },
];

/// Returns the rows of the list of all schemas.
pub(super) fn rows() -> Vec<Row> {
    let row = |file: &File| {
        Row::new(vec![
            Cell::with(file.name, "name", file.name),
            Cell::with(file.describes, "describes", file.describes),
        ])
    };
    FILES.iter().map(row).collect()
}

/// Returns a schema by its name, in the dialect of 2020-12.
///
/// # Errors
/// There is no schema of that name.
pub(super) fn find(name: &str) -> Result<Value> {
    let file = suggest::find("schema", name, &FILES, |it| it.name)?;
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut made = (file.make)(generator).to_value();
    plain(&mut made);
    // The first members say what it is.
    let members = made.as_object_mut().map(std::mem::take);
    let mut members = members.unwrap_or_default();
    let dialect = members.shift_remove("$schema");
    let mut schema = Map::new();
    schema.extend(dialect.map(|it| ("$schema".to_owned(), it)));
    schema.insert("title".to_owned(), file.describes.into());
    members.shift_remove("title");
    schema.extend(members);
    Ok(schema.into())
}

/// Takes the links of rustdoc out of all descriptions, and joins the lines of a paragraph.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                let paragraphs = text.split("\n\n").map(|it| it.replace('\n', " "));
                let joined = paragraphs.collect::<Vec<_>>().join("\n\n");
                *text = joined.replace("[`", "`").replace("`]", "`");
            }
            members.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}
