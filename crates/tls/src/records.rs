//! Where the records of a stream end: how much of one is here whose rest has not come.
//!
//! Always true: only the five bytes before each record are looked at; what is no TLS is found out elsewhere.

/// Bytes before a record: its kind, version and length.
const HEAD: usize = 5;

/// The state of one direction of a stream.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Records {
    head: [u8; HEAD],
    /// Bytes of the head that are here.
    in_head: usize,
    /// Bytes of the record behind its head that are here, and how many there are to be.
    in_body: usize,
    body: usize,
}

impl Records {
    /// Goes on behind these bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.in_head < HEAD {
                let taken = bytes.len().min(HEAD - self.in_head);
                self.head[self.in_head..self.in_head + taken].copy_from_slice(&bytes[..taken]);
                self.in_head += taken;
                bytes = &bytes[taken..];
                let [.., high, low] = self.head;
                self.body = usize::from(u16::from_be_bytes([high, low]));
            } else {
                let taken = bytes.len().min(self.body - self.in_body);
                self.in_body += taken;
                bytes = &bytes[taken..];
            }
            if self.in_head == HEAD && self.in_body == self.body {
                *self = Self::default();
            }
        }
    }

    /// Bytes of a record that is not whole.
    pub(crate) fn half(&self) -> usize {
        self.in_head + self.in_body
    }
}

#[cfg(test)]
mod tests {
    use super::Records;

    #[test]
    fn half_records_are_counted_however_they_are_cut() {
        let mut stream = Vec::new();
        let mut ends = vec![0];
        for length in [0_u16, 1, 300, 16_384] {
            stream.extend([0x17, 3, 3]);
            stream.extend(length.to_be_bytes());
            stream.extend(vec![7; usize::from(length)]);
            ends.push(stream.len());
        }
        for piece in [1, 3, 5, 6, 1000, stream.len()] {
            let (mut records, mut passed) = (Records::default(), 0);
            for bytes in stream.chunks(piece) {
                records.pass(bytes);
                passed += bytes.len();
                let end = ends.iter().rev().find(|end| **end <= passed).unwrap();
                assert_eq!(records.half(), passed - end, "{passed} bytes in pieces of {piece}");
            }
        }
    }
}
