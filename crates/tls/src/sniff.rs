//! What the first bytes of a connection are: the beginning of TLS, or of a plain message.
//!
//! Always true: the answer depends on the first 16 bytes alone, and is given as soon as they can mean one thing only.

/// What the first bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sniffed {
    /// A TLS client says hello.
    Tls,
    /// A message of the wire protocol, or something else that is not TLS.
    Plain,
    /// It can still be either.
    NeedMore,
}

/// The bytes that decide: a whole message header.
const HEADER: usize = 16;

/// The operations of the wire protocol: bytes 12 to 16 of a message are one of them. In TLS they are random bytes of
/// the client.
const OPERATIONS: [u32; 11] = [1, 1000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2012, 2013];

/// Looks at the first bytes of a connection.
pub fn sniff(first: &[u8]) -> Sniffed {
    // A record: handshake, version 3.x, its length (at most 2^14), and in it a hello of the client. A plain message
    // whose length begins alike is told apart by its operation.
    let may_begin: [&dyn Fn(u8) -> bool; 6] = [
        &|byte| byte == 0x16,
        &|byte| byte == 0x03,
        &|byte| byte <= 0x04,
        &|byte| byte <= 0x40,
        &|_| true,
        &|byte| byte == 0x01,
    ];
    if first.iter().zip(may_begin).any(|(byte, fits)| !fits(*byte)) {
        return Sniffed::Plain;
    }
    let Some(header) = first.first_chunk::<HEADER>() else { return Sniffed::NeedMore };
    let [.., a, b, c, d] = *header;
    if OPERATIONS.contains(&u32::from_le_bytes([a, b, c, d])) {
        return Sniffed::Plain;
    }
    Sniffed::Tls
}

#[cfg(test)]
mod tests {
    use super::{Sniffed, sniff};

    fn message(length: u32, request: u32, operation: u32) -> Vec<u8> {
        [length, request, 0, operation].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn first_bytes() {
        let hello = |minor: u8, length: [u8; 2]| {
            let mut bytes = vec![0x16, 3, minor, length[0], length[1], 1, 0, 1, 0xfc, 3, 3];
            bytes.extend([0x9a; 32]);
            bytes
        };
        for (bytes, expected) in [
            (hello(1, [2, 0]), Sniffed::Tls),
            (hello(3, [0, 200]), Sniffed::Tls),
            (hello(0, [0x40, 0]), Sniffed::Tls),
            (hello(9, [2, 0]), Sniffed::Plain),
            (hello(1, [0x50, 0]), Sniffed::Plain),
            (message(300, 1, 2013), Sniffed::Plain),
            (message(58, 0, 2004), Sniffed::Plain),
            // its length and its number look like a hello
            (message(0x0001_0316, 0x0000_01ff, 2013), Sniffed::Plain),
            (message(0x0201_0316, 0x0000_0100, 2004), Sniffed::Plain),
            (message(0x0201_0316, 0x0000_0100, 77), Sniffed::Tls),
            (b"GET / HTTP/1.1\r\n".to_vec(), Sniffed::Plain),
            (b"\x15\x03\x01\x00\x02\x02\x28".to_vec(), Sniffed::Plain),
            // the hello of SSL 2
            (
                b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x01\x00\x80\x00\x00".to_vec(),
                Sniffed::Plain,
            ),
        ] {
            assert_eq!(sniff(&bytes), expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn a_beginning_means_nothing_else_than_the_whole() {
        let whole = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x9a\x9a\x9a\x9a\x9a";
        for length in 0..whole.len() {
            assert_eq!(sniff(&whole[..length]), Sniffed::NeedMore, "{length}");
        }
        assert_eq!(sniff(whole), Sniffed::Tls);
        let plain = message(300, 1, 2013);
        for length in 1..plain.len() {
            assert_eq!(sniff(&plain[..length]), Sniffed::Plain, "{length}");
        }
    }
}
