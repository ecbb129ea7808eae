//! Event files for TensorBoard: the lines of a run's log as scalars.
//!
//! A file is a chain of frames, each the length of its content, a checksum of that length, the
//! content and a checksum of it. A content is an `Event` message of TensorBoard's protocol. Three
//! of its fields are written here: `wall_time` (1), `step` (2), and one of `file_version` (3),
//! `summary` (5) and `session_log` (7).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use results::metrics::Line;

/// Name of the folder of event files within a run's folder.
pub const FOLDER: &str = "tensorboard";

/// An event file that is written to.
pub struct Events {
    file: File,
    path: PathBuf,
}

impl Events {
    /// Starts a new event file in `folder`. Events of earlier files about steps after `step` are
    /// withdrawn, since the run resumes from there.
    pub fn create(folder: &Path, step: usize) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let now = now();
        let path = folder.join(format!(
            "events.out.tfevents.{:.6}.{}.lra",
            now,
            std::process::id()
        ));
        let file = disk::create(&path).with_context(|| format!("writing {}", path.display()))?;
        let mut events = Events { file, path };
        events.event(0, |message| message.bytes(3, b"brain.Event:2"))?;
        let mut start = Message::default();
        start.integer(1, 1);
        events.event(step as u64 + 1, |message| message.bytes(7, &start.0))?;
        Ok(events)
    }

    /// Writes the values of a line.
    pub fn line(&mut self, line: &Line) -> anyhow::Result<()> {
        let (step, values) = scalars(line);
        if values.is_empty() {
            return Ok(());
        }
        let mut summary = Message::default();
        for (tag, value) in values {
            let mut scalar = Message::default();
            scalar.bytes(1, tag.as_bytes());
            scalar.float(2, value as f32);
            summary.bytes(1, &scalar.0);
        }
        self.event(step as u64, |message| message.bytes(5, &summary.0))
    }

    fn event(&mut self, step: u64, fill: impl FnOnce(&mut Message)) -> anyhow::Result<()> {
        let mut message = Message::default();
        message.double(1, now());
        message.integer(2, step);
        fill(&mut message);
        self.file
            .write_all(&frame(&message.0))
            .with_context(|| format!("writing {}", self.path.display()))
    }
}

/// Returns the values of a line by tag. Tags with the same first part are shown in one group.
fn scalars(line: &Line) -> (usize, Vec<(String, f64)>) {
    let named = |(tag, value): (&str, f64)| (tag.to_owned(), value);
    match line {
        Line::Train {
            step,
            loss,
            aux,
            weighted_loss,
            gradient_norm,
            learning_rate,
            ..
        } => {
            let values = [
                ("train/loss", *loss),
                ("train/gradient_norm", *gradient_norm),
                ("train/rate", *learning_rate),
            ];
            let aux = aux
                .iter()
                .map(|(name, mean)| (format!("train/aux/{name}"), *mean));
            let weighted = weighted_loss.map(|loss| ("train/weighted_loss", loss));
            let values = values.into_iter().chain(weighted);
            (*step, values.map(named).chain(aux).collect())
        }
        Line::Validation {
            step,
            loss,
            accuracy,
            dense,
            ..
        } => {
            let values = [
                ("validation/loss", *loss),
                ("validation/accuracy", *accuracy),
            ];
            let dense = dense.iter().flat_map(|dense| {
                let all = [
                    ("dense/loss".to_owned(), dense.loss),
                    ("dense/accuracy".to_owned(), dense.accuracy),
                    ("weighted_loss".to_owned(), dense.weighted_loss),
                    ("weighted_accuracy".to_owned(), dense.weighted_accuracy),
                ];
                let groups = dense.groups.iter();
                let groups = groups.map(|it| (format!("dense/accuracy, {}", it.name), it.accuracy));
                all.into_iter().chain(groups)
            });
            let dense = dense.map(|(tag, value)| (format!("validation/{tag}"), value));
            (*step, values.map(named).into_iter().chain(dense).collect())
        }
        Line::Unknown => (0, vec![]),
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// A protocol buffer message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }
}

/// Returns a content in its frame.
fn frame(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut frame = length.to_vec();
    frame.extend(masked(&length));
    frame.extend(content);
    frame.extend(masked(content));
    frame
}

/// Returns the checksum of a frame's part: CRC-32C, rotated by 15 bits and offset by a constant, so
/// that checksums of data with checksums in it stay distinct.
fn masked(bytes: &[u8]) -> [u8; 4] {
    let sum = crc32c::crc32c(bytes).rotate_right(15);
    sum.wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_the_format_says() {
        let mut message = Message::default();
        message.integer(2, 300);
        message.bytes(3, b"ab");
        message.float(2, 1.0);
        message.double(1, 1.0);
        let double = [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        let expected = [
            &[
                0x10, 0xac, 0x02, 0x1a, 2, b'a', b'b', 0x15, 0, 0, 0x80, 0x3f,
            ],
            &double[..],
        ];
        assert_eq!(message.0, expected.concat());
    }

    /// Checks the frame of the file version that begins every file of TensorFlow's own writer (wall
    /// time 0).
    #[test]
    fn frames_carry_the_checksums_that_readers_expect() {
        // RFC 3720, B.4: CRC-32C of 32 zero bytes.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        let framed = frame(b"abc");
        assert_eq!(framed.len(), 8 + 4 + 3 + 4);
        assert_eq!(framed[..8], 3u64.to_le_bytes());
        assert_eq!(framed[8..12], masked(&framed[..8]));
        assert_eq!(framed[15..], masked(b"abc"));
    }

    #[test]
    fn a_file_is_a_chain_of_whole_frames() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = Events::create(folder.path(), 7).unwrap();
        let line = Line::Validation {
            step: 8,
            loss: 1.5,
            accuracy: 0.25,
            examples: 40,
            dense: None,
        };
        events.line(&line).unwrap();
        let bytes = fs::read(&events.path).unwrap();
        let (mut at, mut frames) = (0, 0);
        while at < bytes.len() {
            let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            assert_eq!(
                bytes[at..at + 16 + length],
                frame(&bytes[at + 12..at + 12 + length])
            );
            at += 16 + length;
            frames += 1;
        }
        assert_eq!((at, frames), (bytes.len(), 3));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("brain.Event:2") && text.contains("validation/accuracy"));
    }
}
