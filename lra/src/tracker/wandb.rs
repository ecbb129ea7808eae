//! Weights & Biases: the folder of an offline run, which `wandb sync` uploads.
//!
//! `offline-run-DATE_TIME-ID/run-ID.wandb` is a chain of records in the format of LevelDB's log: a
//! header of 7 bytes, then blocks of 32 KiB. A record within a block has a CRC-32 over its type and
//! its data, the length in 16 bits, the type (1 whole, 2 first, 3 middle, 4 last part) and the
//! data. Fewer than 7 bytes left in a block are zeros. The data of a whole record is a message
//! `Record` of wandb's protocol (`wandb_internal.proto`), with the fields that are numbered here.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use results::Outcome;
use serde_json::{Value, json};

use super::protobuf::Message;
use super::{Export, Tracker, write};

/// The folder of an offline run of Weights & Biases.
pub(super) struct Wandb;

/// Name of the project.
const PROJECT: &str = "lra";
/// Least version of wandb that reads the records, as wandb itself writes it.
const LEAST_READER: &str = "0.70.0";
/// Start of a file: `:W&B`, a magic number and version 0.
const HEADER: [u8; 7] = *b":W&B\xe1\xbe\0";
/// Length of a block in bytes.
const BLOCK: usize = 32768;
/// Length in bytes of what comes before the data of a record.
const PREFIX: usize = 7;
/// Number of digits of the settings' digest in a run's id.
const ID_DIGITS: usize = 16;

impl Tracker for Wandb {
    fn folder(&self) -> &'static str {
        "wandb"
    }

    fn write(&self, folder: &Path, run: &Export<'_>) -> anyhow::Result<()> {
        let digest = &run.record.provenance.spec_digest;
        let id = digest.get(..ID_DIGITS).unwrap_or(digest);
        let began = UNIX_EPOCH + Duration::from_secs_f64(run.began);
        let time = humantime::format_rfc3339_seconds(began).to_string();
        let time = time.replace(['-', ':', 'Z'], "").replace('T', "_");
        let place = folder.join(format!("offline-run-{time}-{id}"));
        let mut log = Log::default();
        for record in records(run, id) {
            log.add(record.encoded());
        }
        write(&place.join(format!("run-{id}.wandb")), &log.0)
    }
}

/// Returns the records: header, run with its settings, values by step, summary, exit.
fn records(run: &Export<'_>, id: &str) -> Vec<Message> {
    let mut contents = Vec::new();
    let mut add = |field: u64, content: Message| contents.push((field, content));
    let mut version = Message::default();
    version.bytes(1, format!("lra {}", env!("CARGO_PKG_VERSION")).as_bytes());
    version.bytes(2, LEAST_READER.as_bytes());
    let mut header = Message::default();
    header.bytes(1, version.encoded());
    add(21, header);

    let record = run.record;
    let mut about = Message::default();
    about.bytes(1, id.as_bytes());
    about.bytes(3, PROJECT.as_bytes());
    let facts = [
        ("task", json!(record.task.label)),
        ("model", json!(record.model.name)),
        ("recipe", json!(record.recipe.name)),
        ("seed", json!(record.seed)),
        ("parameters", json!(record.model.parameters)),
        ("lra.id", json!(record.id)),
    ];
    let settings = run.settings.iter();
    let settings = settings.map(|(key, value)| (key.as_str(), value.clone()));
    about.bytes(4, items(1, facts.into_iter().chain(settings)).encoded());
    about.bytes(8, record.id.as_bytes());
    for tag in [&record.task.label, &record.model.name, &record.recipe.name] {
        about.bytes(10, tag.as_bytes());
    }
    let mut start = Message::default();
    start.integer(1, run.began as u64);
    start.integer(2, (run.began.fract() * 1e9) as u64);
    about.bytes(17, start.encoded());
    add(17, about);

    let mut summary: Vec<(&str, Value)> = Vec::new();
    for (index, point) in run.points.iter().enumerate() {
        let values = point.values.iter();
        let values = values.map(|(name, value)| (name.as_str(), json!(value)));
        for (name, value) in values.clone() {
            summary.retain(|(known, _)| *known != name);
            summary.push((name, value));
        }
        // A step has one entry; the scores of the record, which come last, are in the summary only.
        if run.points[..index].iter().any(|it| it.step == point.step) {
            continue;
        }
        let own = [
            ("_step", json!(point.step)),
            ("_runtime", json!(point.time - run.began)),
            ("_timestamp", json!(point.time)),
        ];
        let mut history = items(1, values.chain(own));
        let mut step = Message::default();
        step.integer(1, point.step as u64);
        history.bytes(2, step.encoded());
        add(2, history);
    }
    let seconds = run.ended - run.began;
    summary.push(("_runtime", json!(seconds)));
    summary.push(("outcome", json!(record.outcome.to_string())));
    add(3, items(1, summary));
    let mut exit = Message::default();
    let failed = !matches!(record.outcome, Outcome::Scored);
    exit.integer(1, failed.into());
    exit.integer(2, seconds as u64);
    add(18, exit);

    let numbered = contents.into_iter().zip(1..);
    let records = numbered.map(|((field, content), number)| {
        let mut record = Message::default();
        record.integer(1, number);
        record.bytes(field, content.encoded());
        record
    });
    records.collect()
}

/// Returns a message whose field `field` is repeated: an item for each value, with its key (1) and
/// the value as JSON (16).
fn items<'a>(field: u64, values: impl IntoIterator<Item = (&'a str, Value)>) -> Message {
    let mut all = Message::default();
    for (key, value) in values {
        let mut item = Message::default();
        item.bytes(1, key.as_bytes());
        item.bytes(16, value.to_string().as_bytes());
        all.bytes(field, item.encoded());
    }
    all
}

/// A log of records under construction.
struct Log(Vec<u8>);

impl Default for Log {
    fn default() -> Self {
        Log(HEADER.to_vec())
    }
}

impl Log {
    /// Adds a record.
    fn add(&mut self, mut data: &[u8]) {
        let mut is_first = true;
        loop {
            let left = BLOCK - self.0.len() % BLOCK;
            if left < PREFIX {
                self.0.extend(vec![0; left]);
                continue;
            }
            let (part, rest) = data.split_at(data.len().min(left - PREFIX));
            let kind: u8 = match (is_first, rest.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&[kind]);
            checksum.update(part);
            self.0.extend(checksum.finalize().to_le_bytes());
            self.0.extend((part.len() as u16).to_le_bytes());
            self.0.push(kind);
            self.0.extend(part);
            if rest.is_empty() {
                return;
            }
            (data, is_first) = (rest, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::super::testing::with_run;
    use super::*;

    /// Takes a varint from the front of a message.
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for place in 0.. {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    /// Returns the fields of a message without floats: the number of each, its integer or the
    /// length of its bytes, and these bytes.
    fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
        let mut found = Vec::new();
        while !message.is_empty() {
            let key = varint(&mut message);
            let value = varint(&mut message);
            let length = match key & 7 {
                0 => 0,
                2 => value as usize,
                other => panic!("a field of type {other}"),
            };
            let (bytes, rest) = message.split_at(length);
            found.push((key >> 3, value, bytes));
            message = rest;
        }
        found
    }

    /// Returns the content of a record.
    fn content(record: &[u8]) -> &[u8] {
        fields(record)[1].2
    }

    /// Returns the items of a message, by their keys.
    fn texts(message: &[u8]) -> BTreeMap<String, String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let items = fields(message)
            .into_iter()
            .filter(|(field, ..)| *field == 1);
        let pairs = items.map(|(.., item)| {
            let item = fields(item);
            assert_eq!((item[0].0, item[1].0), (1, 16));
            (text(item[0].2), text(item[1].2))
        });
        pairs.collect()
    }

    /// Returns the bytes of the only field of this number.
    fn field(message: &[u8], number: u64) -> &[u8] {
        let all = fields(message);
        let mut found = all.iter().filter(|it| it.0 == number);
        match (found.next(), found.next()) {
            (Some(&(_, _, bytes)), None) => bytes,
            _ => panic!("no field {number}, or several"),
        }
    }

    /// Reads a log as wandb's `datastore.py` does.
    fn read(log: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(log[..7], HEADER);
        let (mut at, mut records, mut part) = (7, Vec::new(), Vec::new());
        while at < log.len() {
            let left = BLOCK - at % BLOCK;
            if left < PREFIX {
                assert!(log[at..at + left].iter().all(|byte| *byte == 0));
                at += left;
                continue;
            }
            let length = usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
            let (kind, data) = (log[at + 6], &log[at + 7..at + 7 + length]);
            let checksum = crc32fast::hash(&[&[kind], data].concat());
            assert_eq!(log[at..at + 4], checksum.to_le_bytes());
            assert_eq!(part.is_empty(), kind <= 2, "{kind}");
            part.extend(data);
            if kind == 1 || kind == 4 {
                records.push(std::mem::take(&mut part));
            }
            at += PREFIX + length;
        }
        assert!(part.is_empty());
        records
    }

    #[test]
    fn records_of_every_length_are_read_again() {
        let lengths = [1, 32_000, 745, 3, 100_000, 32_761, 32_754, 2];
        let records: Vec<Vec<u8>> = lengths.iter().map(|it| vec![*it as u8; *it]).collect();
        let mut log = Log::default();
        for record in &records {
            log.add(record);
        }
        assert!(read(&log.0) == records);
    }

    #[test]
    fn a_run_has_its_settings_values_and_end() {
        let place = tempfile::tempdir().unwrap();
        with_run(|run| Wandb.write(place.path(), run).unwrap());
        let id = "0a1b2c3d4e5f6071";
        let path = format!("offline-run-20010909_014640-{id}/run-{id}.wandb");
        let records = read(&fs::read(place.path().join(path)).unwrap());
        // Header, run, two steps, summary, exit: each has its number and its content.
        let kinds: Vec<(u64, u64)> = records
            .iter()
            .map(|record| (fields(record)[0].1, fields(record)[1].0))
            .collect();
        assert_eq!(kinds, [(1, 21), (2, 17), (3, 2), (4, 2), (5, 3), (6, 18)]);
        let about = content(&records[1]);
        assert_eq!(field(about, 1), id.as_bytes());
        assert_eq!(field(about, 3), b"lra");
        assert_eq!(field(about, 8), b"toy-bag-smoke-s0-0a1b2c3d");
        let config = texts(field(about, 4));
        assert_eq!(config["train.steps"], "2");
        assert_eq!(config["block.norm"], "\"it's\"");
        assert_eq!(config["model"], "\"bag\"");
        let [first, second] = [2, 3].map(|at| texts(content(&records[at])));
        assert_eq!(first["train/loss"], "1.5");
        assert_eq!(second["train/loss"], "1.25");
        assert!(!second.contains_key("test/accuracy"));
        let summary = texts(content(&records[4]));
        assert_eq!(summary["train/loss"], "1.25");
        assert_eq!(summary["test/accuracy"], "0.75");
        assert_eq!(summary["outcome"], "\"scored\"");
    }

    /// The run begins an eighth of a second after a whole one, and ends 1.875 seconds later.
    #[test]
    fn times_are_in_seconds_and_a_start_in_nanoseconds_too() {
        let mut all = Vec::new();
        with_run(|run| all = records(run, "id"));
        let contents: Vec<&[u8]> = all.iter().map(|it| content(it.encoded())).collect();
        let integers = |message| {
            let fields = fields(message).into_iter();
            fields
                .map(|(field, value, _)| (field, value))
                .collect::<Vec<_>>()
        };
        let start = field(contents[1], 17);
        assert_eq!(integers(start), [(1, 1_000_000_000), (2, 125_000_000)]);
        for (content, step, runtime, timestamp) in [
            (contents[2], 1, "0.125", "1000000000.25"),
            (contents[3], 2, "1.375", "1000000001.5"),
        ] {
            let values = texts(content);
            assert_eq!(values["_step"], step.to_string());
            assert_eq!(values["_runtime"], runtime);
            assert_eq!(values["_timestamp"], timestamp);
            assert_eq!(integers(field(content, 2)), [(1, step)]);
        }
        assert_eq!(texts(contents[4])["_runtime"], "1.875");
        // The exit code, and whole seconds.
        assert_eq!(integers(contents[5]), [(1, 0), (2, 1)]);
    }
}
