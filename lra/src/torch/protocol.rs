//! Messages between this program and the Python process of a mixer.
//!
//! A message is the length of its header in bytes (u32), the length of its payload (u64), both
//! little-endian, the header, a JSON object in UTF-8, and the payload, numbers in the order of
//! their shapes, little-endian. The program asks, and the process answers each message but
//! `forget` with one message. The key `do` says what a message asks:
//!
//! | `do` | further keys | payload | answer |
//! |---|---|---|---|
//! | `hello` | `protocol`, `file`, `factory` | | `protocol`, `python`, `torch` |
//! | `build` | `dim`, `length`, `heads`, `dropout`, `layer`, `seed` | | `id`, `parameters` (a list of `name` and `shape`); payload: their initial values, f32 |
//! | `forward` | `id`, `call`, `type`, `shape`, `train`, `seed`, `keep`, `mask`, `changed` | x; the mask if `mask`, a byte per position; all parameters of the layer if `changed` | payload: y, of the shape of x |
//! | `backward` | `call` | dy | payload: dx, then the gradient of every parameter |
//! | `forget` | `call` | | none |
//! | `flops` | `id`, `length` | | `flops` of a forward pass of one sequence |
//!
//! x is (batch, length, dim). `type` is `f32` or `f64`, for all numbers of a call. With `keep`, a
//! `backward` or a `forget` of the same `call` follows. An answer with the key `error` has the
//! traceback of an exception; the process then still answers further messages.

use std::io::{self, Read, Write};

use anyhow::Context;
use serde_json::Value;

/// Version of the protocol.
pub const VERSION: u64 = 1;
/// Limit on the length of a header in bytes.
const LONGEST_HEADER: u32 = 1 << 24;

/// Writes a message whose payload consists of `parts`.
pub fn write(to: &mut impl Write, header: &Value, parts: &[&[u8]]) -> io::Result<()> {
    let header = header.to_string();
    let length: usize = parts.iter().map(|part| part.len()).sum();
    to.write_all(&(header.len() as u32).to_le_bytes())?;
    to.write_all(&(length as u64).to_le_bytes())?;
    to.write_all(header.as_bytes())?;
    for part in parts {
        to.write_all(part)?;
    }
    to.flush()
}

/// Reads a message whose payload has at most `most` bytes.
///
/// # Errors
/// The other side has ended, or what it writes is no message.
pub fn read(from: &mut impl Read, most: u64) -> anyhow::Result<(Value, Vec<u8>)> {
    let (mut header, mut payload) = ([0; 4], [0; 8]);
    from.read_exact(&mut header)?;
    from.read_exact(&mut payload)?;
    let (header, payload) = (u32::from_le_bytes(header), u64::from_le_bytes(payload));
    anyhow::ensure!(
        header <= LONGEST_HEADER && payload <= most,
        "the Python process wrote a message with a header of {header} bytes and a payload of {payload}, of at most {most}"
    );
    let mut text = vec![0; header as usize];
    from.read_exact(&mut text)?;
    let mut bytes = vec![0; payload as usize];
    from.read_exact(&mut bytes)?;
    let header = serde_json::from_slice(&text);
    Ok((header.context("the header of a message")?, bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        write(&mut bytes, &json!({ "do": "x" }), &[&[1, 2], &[3]]).unwrap();
        assert_eq!(bytes[..12], [10, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let (header, payload) = read(&mut &bytes[..], 3).unwrap();
        assert_eq!((header, payload), (json!({ "do": "x" }), vec![1, 2, 3]));
        assert!(read(&mut &bytes[..], 2).is_err());
        assert!(read(&mut &bytes[..bytes.len() - 1], 3).is_err());
    }
}
