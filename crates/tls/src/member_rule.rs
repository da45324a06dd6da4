//! By what the certificates of a set's members are known among others.
//!
//! Always true: a rule fits a certificate by the contents of what it names, not by how they are encoded; where
//! something cannot be read it fits none.

use crate::subject::{attributes, oid_of};
use x509_parser::der_parser::asn1_rs::{Any, Tag};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The types of attributes that say to which organization a certificate belongs: O, OU and DC.
const OF_ORGANIZATION: [&str; 3] = ["2.5.4.10", "2.5.4.11", "0.9.2342.19200300.100.1.25"];
/// The extension that holds a text by which members are known.
const CLUSTER_EXTENSION: &str = "1.3.6.1.4.1.34601.2.1.2";

/// Attributes of a subject: the OID of the type, and the value. Sorted.
pub(crate) type Attributes = Vec<(String, Vec<u8>)>;

/// By what a certificate is known as a member's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberRule {
    /// O, OU and DC in its subject are these, and no others.
    Organization(Vec<(String, Vec<u8>)>),
    /// Its subject has these attributes, and may have others.
    Attributes(Vec<(String, Vec<u8>)>),
    /// Its extension 1.3.6.1.4.1.34601.2.1.2 is this text.
    Extension(String),
}

impl MemberRule {
    /// The organization that a distinguished name says, as RFC 2253 writes it.
    ///
    /// # Errors
    /// It is none, or has none of O, OU and DC.
    pub fn organization_of(name: &str) -> Result<Self, String> {
        let mut attributes = parse(name)?;
        attributes.retain(|(oid, _)| OF_ORGANIZATION.contains(&oid.as_str()));
        if attributes.is_empty() {
            return Err(format!("'{name}' has none of O, OU and DC"));
        }
        Ok(Self::Organization(attributes))
    }

    /// The attributes of a distinguished name.
    ///
    /// # Errors
    /// It is none.
    pub fn attributes_of(name: &str) -> Result<Self, String> {
        parse(name).map(Self::Attributes)
    }

    /// Whether a certificate, as DER, is a member's by this rule.
    pub(crate) fn fits(&self, certificate: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        match self {
            Self::Organization(ours) => organization(&certificate) == *ours,
            Self::Attributes(ours) => {
                let theirs = attributes(&certificate);
                ours.iter().all(|attribute| theirs.contains(attribute))
            }
            Self::Extension(ours) => {
                text_of_extension(&certificate).is_some_and(|text| text == *ours)
            }
        }
    }

    /// The organization of a certificate as a rule; none where it says nothing of any.
    pub(crate) fn of_certificate(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let found = organization(&certificate);
        (!found.is_empty()).then_some(Self::Organization(found))
    }
}

/// What a subject says of the organization that a certificate belongs to.
fn organization(certificate: &X509Certificate<'_>) -> Attributes {
    let mut all = attributes(certificate);
    all.retain(|(oid, _)| OF_ORGANIZATION.contains(&oid.as_str()));
    all.sort();
    all
}

fn text_of_extension(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut extensions = certificate.extensions().iter();
    let found = extensions.find(|extension| extension.oid.to_id_string() == CLUSTER_EXTENSION)?;
    let (rest, value) = Any::from_der(found.value).ok()?;
    let is_text = matches!(value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String);
    let text = String::from_utf8(value.data.to_vec()).ok()?;
    (is_text && rest.is_empty()).then_some(text)
}

/// Reads a distinguished name: types and values with `=`, between commas or `+`, a backslash before what is meant as it
/// stands.
fn parse(name: &str) -> Result<Attributes, String> {
    let refuse = |why: &str| {
        Err(format!("'{name}' is no distinguished name, such as O=Example,OU=Members: {why}"))
    };
    let mut all = Attributes::new();
    for part in split(name) {
        let Some((kind, value)) = part.split_once('=') else {
            return refuse("an attribute has no =");
        };
        let Some(oid) = oid_of(kind.trim()) else {
            return refuse(&format!("'{}' is no type of an attribute", kind.trim()));
        };
        match unescape(value) {
            Some(value) if !value.is_empty() => all.push((oid, value)),
            _ => return refuse(&format!("the value of {} cannot be read", kind.trim())),
        }
    }
    if all.is_empty() {
        return refuse("it has no attribute");
    }
    all.sort();
    Ok(all)
}

/// The parts between commas and `+` that have no backslash before them.
fn split(name: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut is_escaped) = (Vec::new(), 0, false);
    for (at, character) in name.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' | '+' => {
                parts.push(&name[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&name[begin..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// A value without its backslashes, and without the spaces around it that none stands before.
fn unescape(value: &str) -> Option<Vec<u8>> {
    let value = value.trim_start();
    if value.starts_with('#') {
        return None;
    }
    let mut bytes = Vec::new();
    // Behind what is meant as it stands no space is left out.
    let mut kept = 0;
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let first = rest.next()?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        match digit(first) {
            Some(high) => bytes.push((high * 16 + digit(rest.next()?)?) as u8),
            None => bytes.push(first),
        }
        kept = bytes.len();
    }
    while bytes.len() > kept && bytes.last() == Some(&b' ') {
        bytes.pop();
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{MemberRule, parse};

    #[test]
    fn names_are_read_as_rfc_2253_writes_them() {
        let of = |name: &str| {
            parse(name).map(|all| {
                let shown =
                    |(oid, value): (String, Vec<u8>)| (oid, String::from_utf8(value).unwrap());
                all.into_iter().map(shown).collect::<Vec<_>>()
            })
        };
        let pairs = |all: &[(&str, &str)]| {
            Ok(all.iter().map(|(oid, value)| ((*oid).to_owned(), (*value).to_owned())).collect())
        };
        for (name, expected) in [
            ("O=Example", &[("2.5.4.10", "Example")][..]),
            ("OU=b, O=a", &[("2.5.4.10", "a"), ("2.5.4.11", "b")]),
            ("OU=b+O=a", &[("2.5.4.10", "a"), ("2.5.4.11", "b")]),
            ("O=Example\\, Inc. ,OU=x\\ ", &[("2.5.4.10", "Example, Inc."), ("2.5.4.11", "x ")]),
            ("2.5.4.10=by its number", &[("2.5.4.10", "by its number")]),
            ("O=M\\C3\\BCnchen", &[("2.5.4.10", "München")]),
        ] {
            assert_eq!(of(name), pairs(expected), "{name}");
        }
        for bad in ["", ",", "O", "O=", "O=#0C0141", "NOSUCH=1", "O=a\\", "O=a\\C"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(MemberRule::organization_of("CN=x").is_err());
    }
}
