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

use super::points::scalars;
use super::protobuf::Message;

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
        events.event(step as u64 + 1, |message| message.bytes(7, start.encoded()))?;
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
            summary.bytes(1, scalar.encoded());
        }
        self.event(step as u64, |message| message.bytes(5, summary.encoded()))
    }

    fn event(&mut self, step: u64, fill: impl FnOnce(&mut Message)) -> anyhow::Result<()> {
        let mut message = Message::default();
        message.double(1, now());
        message.integer(2, step);
        fill(&mut message);
        self.file
            .write_all(&frame(message.encoded()))
            .with_context(|| format!("writing {}", self.path.display()))
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
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

    /// Begins a session at the step after the checkpoint: readers drop what an earlier file has from
    /// that step on.
    #[test]
    fn a_session_begins_after_the_step_that_was_saved() {
        let folder = tempfile::tempdir().unwrap();
        let events = Events::create(folder.path(), 7).unwrap();
        let bytes = fs::read(&events.path).unwrap();
        let first = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let second = &bytes[16 + first + 12..];
        // Field 1 is a double, field 2 the step, field 7 the start of the session.
        assert_eq!(
            (second[0], second[9], second[11]),
            (1 << 3 | 1, 2 << 3, 7 << 3 | 2)
        );
        assert_eq!(second[10], 8);
    }
}
