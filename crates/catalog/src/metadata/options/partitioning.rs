//! `partitionEvery`: when a partition is ended by the server, and by what.

use super::{invalid, invalid_type};
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};
use bsonval::types::exact_integer;
use errors::{Error, Result};

/// The longest time and the largest size.
const MAX: i64 = 1 << 50;

/// When the last partition is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionEvery {
    /// At multiples of so many seconds since 1970 of the first field of the primary key, which is a date.
    Seconds(i64),
    /// When its documents are so many bytes.
    Bytes(u64),
}

impl PartitionEvery {
    /// Reads `{seconds: …}` or `{bytes: …}`.
    pub(super) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let place = "create.partitionEvery";
        let document = value.as_document().ok_or_else(|| invalid_type(place, value, "object"))?;
        let mut every = None;
        for element in document {
            let (name, value) = element?;
            let name = name.as_str();
            let number = exact_integer(value).filter(|number| (1..=MAX).contains(number));
            let Some(number) = number else {
                return Err(Error::bad_value(format!(
                    "'{place}.{name}' must be a whole number between 1 and {MAX}"
                )));
            };
            let read = match name {
                "seconds" => Self::Seconds(number),
                "bytes" => Self::Bytes(number as u64),
                other => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field '{place}.{other}' is an unknown field."),
                    ));
                }
            };
            if every.replace(read).is_some() {
                return Err(invalid("'partitionEvery' takes one of 'seconds' and 'bytes'"));
            }
        }
        every.ok_or_else(|| invalid("'partitionEvery' takes one of 'seconds' and 'bytes'"))
    }

    pub(super) fn shown(self) -> RawDocumentBuf {
        let mut shown = RawDocumentBuf::new();
        match self {
            Self::Seconds(seconds) => shown.append(cstr!("seconds"), seconds),
            Self::Bytes(bytes) => shown.append(cstr!("bytes"), bytes as i64),
        }
        shown
    }
}
