//! Commands about logical sessions and transactions.

pub(crate) mod end_sessions;
pub(crate) mod kill_sessions;
pub(crate) mod start_session;

use bson::RawBsonRef;
use dispatch::fields::{Field, type_name};
use errors::{Error, Result};
use session::{SessionId, UserDigest};

/// How many sessions one command may name: as many as drivers put into one `endSessions`.
const MAX_LISTED: usize = 10_000;

/// The ids of an array `[{id: <UUID>}, …]`.
fn parse_list(field: &Field<'_>, user: UserDigest) -> Result<Vec<SessionId>> {
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
        list.push(dispatch::arguments::parse_lsid(&one, user)?);
    }
    Ok(list)
}
