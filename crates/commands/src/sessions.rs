//! Commands about logical sessions and transactions.

pub(crate) mod end_sessions;
pub(crate) mod kill_sessions;
pub(crate) mod start_session;

use crate::fields::{Field, type_name};
use bson::RawBsonRef;
use errors::{Error, Result};
use session::SessionId;

/// The digest of nobody's name, SHA-256 of nothing: whose all sessions are while there are no users.
pub(crate) const EMPTY_USER: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// How many sessions one command may name: as many as drivers put into one `endSessions`.
const MAX_LISTED: usize = 10_000;

/// The ids of an array `[{id: <UUID>}, …]`.
fn parse_list(field: &Field<'_>) -> Result<Vec<SessionId>> {
    let mut list = Vec::new();
    for (at, element) in field.array()?.into_iter().enumerate() {
        let value = element?;
        if at == MAX_LISTED {
            return Err(Error::bad_value(format!(
                "{} names more than {MAX_LISTED} sessions",
                field.name
            )));
        }
        if !matches!(value, RawBsonRef::Document(_)) {
            return Err(Error::type_mismatch(format!(
                "BSON field '{}.{}.{at}' is the wrong type '{}', expected type 'object'",
                field.place,
                field.name,
                type_name(value)
            )));
        }
        let one = Field { place: field.place, name: field.name, value };
        list.push(crate::arguments::parse_lsid(&one)?);
    }
    Ok(list)
}
