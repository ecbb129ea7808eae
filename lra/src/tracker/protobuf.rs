//! Protocol buffers, as far as event files and logs of trackers need them.

/// A protocol buffer message under construction.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a number of a field as a varint.
    pub(super) fn integer(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// Adds an f64 of a field.
    pub(super) fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    /// Adds bytes, a text or a message of a field.
    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    /// Adds an f32 of a field.
    pub(super) fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    /// Returns the encoded message.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.0
    }
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
}
