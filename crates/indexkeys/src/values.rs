//! How the values of options are read, of whatever BSON type they come.

use bson::raw::RawBsonRef;

/// A number of any BSON type, if it is whole.
pub fn whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(v) => Some(i64::from(v)),
        RawBsonRef::Int64(v) => Some(v),
        RawBsonRef::Double(v) if v.fract() == 0.0 && v.abs() < 9e15 => Some(v as i64),
        _ => None,
    }
}

/// Truth of a value as MongoDB reads options: false, 0, null and missing are false.
pub fn truth(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(v) => v,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        RawBsonRef::Double(v) => v != 0.0,
        RawBsonRef::Int32(v) => v != 0,
        RawBsonRef::Int64(v) => v != 0,
        _ => true,
    }
}
