//! The messages' texts: attributes between commas, names escaped, nonces, proofs in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A login that failed; which part of it was wrong is nobody's business.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// The longest message that is read: names are short, and this comes from anybody.
const LONGEST: usize = 4096;

/// The text of a payload.
pub(super) fn text(payload: &[u8]) -> Result<&str, Refused> {
    if payload.len() > LONGEST {
        return Err(Refused);
    }
    std::str::from_utf8(payload).map_err(|_| Refused)
}

/// The value of an attribute: `n=user` of the name `n`.
pub(super) fn attribute(part: Option<&str>, name: char) -> Result<&str, Refused> {
    part.and_then(|part| part.strip_prefix(name)?.strip_prefix('=')).ok_or(Refused)
}

/// Bytes of base64.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, Refused> {
    STANDARD.decode(text).map_err(|_| Refused)
}

/// The bytes of a text in base64, where it is one.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Base64 of bytes.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A nonce may hold what can be printed, but no comma.
pub(super) fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

/// A name with `=` and `,` escaped.
pub(super) fn escape(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// A name out of its escapes; any other `=` is an error.
pub(super) fn unescape(name: &str) -> Result<String, Refused> {
    let mut parts = name.split('=');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match part.as_bytes() {
            [b'3', b'D', ..] => ('=', &part[2..]),
            [b'2', b'C', ..] => (',', &part[2..]),
            _ => return Err(Refused),
        };
        plain.push(sign);
        plain.push_str(rest);
    }
    Ok(plain)
}

/// The client's first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientFirst {
    /// Who wants to log in.
    pub user: String,
    pub(super) nonce: String,
    /// The message without its header.
    pub(super) bare: String,
    /// The header, which the second message repeats.
    pub(super) header: String,
}

impl ClientFirst {
    /// Reads `n,,n=user,r=nonce`. Whoever wants a channel bound, or to log in for another, is refused.
    pub fn parse(payload: &[u8]) -> Result<Self, Refused> {
        let message = text(payload)?;
        let mut parts = message.splitn(3, ',');
        let (flag, for_whom, bare) = (parts.next(), parts.next(), parts.next().ok_or(Refused)?);
        let flag = flag.filter(|flag| matches!(*flag, "n" | "y")).ok_or(Refused)?;
        if for_whom != Some("") {
            return Err(Refused);
        }
        let mut attributes = bare.split(',');
        let user = unescape(attribute(attributes.next(), 'n')?)?;
        let nonce = attribute(attributes.next(), 'r')?;
        if user.is_empty() || user.contains('\0') || !is_nonce(nonce) {
            return Err(Refused);
        }
        Ok(Self {
            user,
            nonce: nonce.to_owned(),
            bare: bare.to_owned(),
            header: format!("{flag},,"),
        })
    }
}
