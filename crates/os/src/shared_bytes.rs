//! Bytes that never change and are cheap to copy: few stand in place, more are shared.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// So many bytes stand in place: the keys of most documents and of most index entries.
const IN_PLACE: usize = 30;

/// Bytes as a slice, without an allocation where they are few. A copy of many shares them.
#[derive(Clone)]
pub struct SharedBytes(Form);

#[derive(Clone)]
enum Form {
    InPlace { length: u8, bytes: [u8; IN_PLACE] },
    Shared(Arc<[u8]>),
}

impl From<&[u8]> for SharedBytes {
    #[inline]
    fn from(given: &[u8]) -> Self {
        let mut bytes = [0; IN_PLACE];
        Self(match bytes.get_mut(..given.len()) {
            Some(place) => {
                place.copy_from_slice(given);
                Form::InPlace { length: given.len() as u8, bytes }
            }
            None => Form::Shared(given.into()),
        })
    }
}

impl<const N: usize> From<[u8; N]> for SharedBytes {
    fn from(given: [u8; N]) -> Self {
        given[..].into()
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(given: Vec<u8>) -> Self {
        given[..].into()
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::InPlace { length, bytes } => &bytes[..usize::from(*length)],
            Form::Shared(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for SharedBytes {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl PartialOrd for SharedBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SharedBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_was_given_whether_they_stand_in_place_or_are_shared() {
        let all: Vec<Vec<u8>> = (0..2 * IN_PLACE).map(|n| (0..n as u8).rev().collect()).collect();
        for bytes in &all {
            let given = SharedBytes::from(&bytes[..]);
            let copy = given.clone();
            assert_eq!((&*given, &*copy), (&bytes[..], &bytes[..]));
            let is_shared = std::ptr::eq(given.as_ptr(), copy.as_ptr());
            assert_eq!(is_shared, bytes.len() > IN_PLACE, "{}", bytes.len());
            for other in &all {
                assert_eq!(given.cmp(&other[..].into()), bytes.cmp(other));
                assert_eq!(given == other[..].into(), bytes == other);
            }
        }
        assert_eq!(size_of::<SharedBytes>(), 32);
    }
}
