//! The roles that an authority has written into a client's certificate.
//!
//! Always true: an extension that is not understood as a whole gives no role, and is told.

use x509_parser::der_parser::asn1_rs::{Any, Tag};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The extension: a set of sequences of two texts, a role and its database.
const ROLES_EXTENSION: &str = "1.3.6.1.4.1.34601.2.1.1";
/// A certificate with more roles is none that somebody meant.
const MOST_ROLES: usize = 1000;

/// The roles in a certificate, as DER: each with its database. None where it has no such extension.
///
/// # Errors
/// The extension is there, and cannot be read.
pub fn roles(certificate: &[u8]) -> Result<Vec<(String, String)>, &'static str> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return Ok(Vec::new());
    };
    let mut extensions = certificate.extensions().iter();
    match extensions.find(|extension| extension.oid.to_id_string() == ROLES_EXTENSION) {
        None => Ok(Vec::new()),
        Some(extension) => {
            read(extension.value).ok_or("the roles in the certificate's extension cannot be read")
        }
    }
}

fn read(value: &[u8]) -> Option<Vec<(String, String)>> {
    let (rest, set) = Any::from_der(value).ok()?;
    if set.tag() != Tag::Set || !rest.is_empty() {
        return None;
    }
    let (mut left, mut all) = (set.data, Vec::new());
    while !left.is_empty() {
        let (behind, one) = Any::from_der(left).ok()?;
        if one.tag() != Tag::Sequence || all.len() == MOST_ROLES {
            return None;
        }
        let (role, database) = text(one.data)?;
        let (database, end) = text(database)?;
        if !end.is_empty() {
            return None;
        }
        all.push((role, database));
        left = behind;
    }
    Some(all)
}

/// A text, and what is behind it.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (behind, value) = Any::from_der(bytes).ok()?;
    let text = String::from_utf8(value.data.to_vec()).ok()?;
    (value.tag() == Tag::Utf8String && !text.is_empty()).then_some((text, behind))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn what_is_no_set_of_roles_is_none() {
        let role = b"\x30\x0a\x0c\x04read\x0c\x02db";
        let set = |inner: &[u8]| [&[0x31, inner.len() as u8][..], inner].concat();
        let one = ("read".to_owned(), "db".to_owned());
        assert_eq!(read(&set(role)), Some(vec![one.clone()]));
        assert_eq!(read(&set(&[&role[..], role].concat())), Some(vec![one.clone(), one]));
        assert_eq!(read(&set(b"")), Some(Vec::new()));
        for bad in [
            &b""[..],
            b"\x30\x00",
            // A byte behind it, one text, three, an empty one, another kind of text, a length beyond the end.
            &[&set(role)[..], b"\x00"].concat(),
            &set(b"\x30\x06\x0c\x04read"),
            &set(b"\x30\x0d\x0c\x04read\x0c\x02db\x0c\x01x"),
            &set(b"\x30\x06\x0c\x00\x0c\x02db"),
            &set(b"\x30\x0a\x13\x04read\x0c\x02db"),
            &set(b"\x30\x7f\x0c\x04read\x0c\x02db"),
        ] {
            assert_eq!(read(bad), None, "{bad:02x?}");
        }
    }
}
