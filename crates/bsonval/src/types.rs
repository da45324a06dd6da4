//! The names and numbers BSON types have for a client.

use crate::decimal::{Decimal, Rounding};
use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use errors::{Error, Result};

/// Every type: its number in `$type`, its alias.
const TYPES: &[(ElementType, i32, &str)] = &[
    (ElementType::Double, 1, "double"),
    (ElementType::String, 2, "string"),
    (ElementType::EmbeddedDocument, 3, "object"),
    (ElementType::Array, 4, "array"),
    (ElementType::Binary, 5, "binData"),
    (ElementType::Undefined, 6, "undefined"),
    (ElementType::ObjectId, 7, "objectId"),
    (ElementType::Boolean, 8, "bool"),
    (ElementType::DateTime, 9, "date"),
    (ElementType::Null, 10, "null"),
    (ElementType::RegularExpression, 11, "regex"),
    (ElementType::DbPointer, 12, "dbPointer"),
    (ElementType::JavaScriptCode, 13, "javascript"),
    (ElementType::Symbol, 14, "symbol"),
    (ElementType::JavaScriptCodeWithScope, 15, "javascriptWithScope"),
    (ElementType::Int32, 16, "int"),
    (ElementType::Timestamp, 17, "timestamp"),
    (ElementType::Int64, 18, "long"),
    (ElementType::Decimal128, 19, "decimal"),
    (ElementType::MinKey, -1, "minKey"),
    (ElementType::MaxKey, 127, "maxKey"),
];

/// The alias of a type (`"int"`, `"object"`), as error messages and `$type` spell it.
pub fn type_name(kind: ElementType) -> &'static str {
    TYPES.iter().find(|row| row.0 == kind).map_or("unknown", |row| row.2)
}

/// The alias of a value's type.
pub fn name_of(value: RawBsonRef<'_>) -> &'static str {
    type_name(value.element_type())
}

/// Whether a value is a number of any of the four types.
pub fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_)
    )
}

/// Truth of a value where a flag is expected: false, zero, null and undefined are false.
pub fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::Boolean(false) => false,
        RawBsonRef::Int32(n) => n != 0,
        RawBsonRef::Int64(n) => n != 0,
        RawBsonRef::Double(n) => n != 0.0,
        RawBsonRef::Decimal128(n) => !Decimal::from_bson(n).is_zero(),
        _ => true,
    }
}

/// The number as a whole number, where it is one that fits; decimals and doubles included.
pub fn exact_integer(value: RawBsonRef<'_>) -> Option<i64> {
    let integer = truncated_integer(value)?;
    keystring::equal(value, RawBsonRef::Int64(integer)).then_some(integer)
}

/// The number cut towards zero, where that fits; `None` for NaN, infinities and what is no number.
pub fn truncated_integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(v) => Some(i64::from(v)),
        RawBsonRef::Int64(v) => Some(v),
        RawBsonRef::Double(v) => {
            let range = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
            range.contains(&v).then_some(v as i64)
        }
        RawBsonRef::Decimal128(v) => Decimal::from_bson(v).to_i64(),
        _ => None,
    }
}

/// A number as MongoDB reads options that are whole: doubles are cut towards zero, decimals rounded
/// half to even, NaN is 0 and what does not fit the nearest that does; `None` for what is no number.
pub fn option_integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(v) => Some(i64::from(v)),
        RawBsonRef::Int64(v) => Some(v),
        // `as` cuts, clamps, and makes 0 of NaN.
        RawBsonRef::Double(v) => Some(v as i64),
        RawBsonRef::Decimal128(v) => {
            let decimal = Decimal::from_bson(v);
            let rounded = decimal.round_to(0, Rounding::HalfEven).to_i64();
            Some(rounded.unwrap_or(match decimal {
                _ if decimal.is_nan() => 0,
                _ if decimal.is_negative() => i64::MIN,
                _ => i64::MAX,
            }))
        }
        _ => None,
    }
}

/// A boolean, or a number that stands for one, as MongoDB reads options: only zero is false.
/// `None` for what is neither.
pub fn option_bool(value: RawBsonRef<'_>) -> Option<bool> {
    match value {
        RawBsonRef::Boolean(v) => Some(v),
        RawBsonRef::Int32(v) => Some(v != 0),
        RawBsonRef::Int64(v) => Some(v != 0),
        RawBsonRef::Double(v) => Some(v != 0.0),
        RawBsonRef::Decimal128(v) => Some(!Decimal::from_bson(v).is_zero()),
        _ => None,
    }
}

/// A set of types, as `$type` takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSet {
    bits: u32,
    number: bool,
}

impl TypeSet {
    /// Adds what one operand of `$type` names: an alias, a number, or `"number"`.
    pub fn add(&mut self, operand: RawBsonRef<'_>) -> Result<()> {
        let found = match operand {
            RawBsonRef::String("number") => {
                self.number = true;
                return Ok(());
            }
            RawBsonRef::String(alias) => {
                let row = TYPES.iter().position(|row| row.2 == alias);
                row.ok_or_else(|| Error::bad_value(format!("Unknown type name alias: {alias}")))?
            }
            value if is_number(value) => {
                let code = exact_integer(value);
                if code == Some(0) {
                    return Err(Error::bad_value(
                        "Invalid numerical type code: 0. Instead use {$exists:false}.",
                    ));
                }
                let row = TYPES.iter().position(|row| Some(i64::from(row.1)) == code);
                row.ok_or_else(|| {
                    let text = crate::show::value(value);
                    Error::bad_value(format!("Invalid numerical type code: {text}"))
                })?
            }
            _ => {
                return Err(Error::type_mismatch(
                    "type must be represented as a number or a string",
                ));
            }
        };
        self.bits |= 1 << found;
        Ok(())
    }

    /// Whether a value's type is in the set.
    pub fn contains(&self, value: RawBsonRef<'_>) -> bool {
        let row = TYPES.iter().position(|row| row.0 == value.element_type());
        row.is_some_and(|row| self.bits >> row & 1 == 1) || self.number && is_number(value)
    }

    /// Whether it names one type only; all numbers together count as one.
    pub fn is_single(&self) -> bool {
        if self.number { self.bits == 0 } else { self.bits.is_power_of_two() }
    }

    /// Whether some type of number is in the set.
    pub fn contains_number(&self) -> bool {
        let is_number = |kind: ElementType| {
            matches!(
                kind,
                ElementType::Double
                    | ElementType::Int32
                    | ElementType::Int64
                    | ElementType::Decimal128
            )
        };
        let mut rows = TYPES.iter().enumerate().filter(|(_, row)| is_number(row.0));
        self.number || rows.any(|(at, _)| self.bits >> at & 1 == 1)
    }

    /// Whether the type with this byte in BSON is in the set.
    pub fn contains_code(&self, code: u8) -> bool {
        let row = TYPES.iter().position(|row| row.0 as u8 == code);
        let number = self.number && matches!(code, 1 | 16 | 18 | 19);
        number || row.is_some_and(|row| self.bits >> row & 1 == 1)
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bits == 0 && !self.number
    }

    /// The set as `$type` would take it.
    pub fn operands(&self) -> Vec<bson::Bson> {
        let named = self.number.then(|| bson::Bson::String("number".to_owned()));
        let coded = TYPES.iter().enumerate().filter(|(row, _)| self.bits >> row & 1 == 1);
        named.into_iter().chain(coded.map(|(_, row)| bson::Bson::Int32(row.1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::Decimal128;

    fn decimal(text: &str) -> RawBsonRef<'static> {
        RawBsonRef::Decimal128(text.parse::<Decimal128>().unwrap())
    }

    #[test]
    fn whole_numbers_of_every_type_are_exact() {
        let check = |value, exact, truncated| {
            assert_eq!((exact_integer(value), truncated_integer(value)), (exact, truncated));
        };
        check(RawBsonRef::Int32(5), Some(5), Some(5));
        check(RawBsonRef::Double(5.0), Some(5), Some(5));
        check(RawBsonRef::Double(-5.5), None, Some(-5));
        check(RawBsonRef::Double(f64::NAN), None, None);
        check(RawBsonRef::Double(9_223_372_036_854_775_808.0), None, None);
        check(RawBsonRef::Int64(i64::MIN), Some(i64::MIN), Some(i64::MIN));
        check(decimal("5.00"), Some(5), Some(5));
        check(decimal("-12.5E+1"), Some(-125), Some(-125));
        check(decimal("0.999"), None, Some(0));
        check(decimal("1E+30"), None, None);
        check(decimal("9223372036854775807"), Some(i64::MAX), Some(i64::MAX));
        check(decimal("Infinity"), None, None);
        check(RawBsonRef::String("5"), None, None);
    }

    #[test]
    fn options_are_rounded_and_clamped_as_mongodb_does() {
        for (value, integer, truth) in [
            (RawBsonRef::Double(2.9), 2, true),
            (RawBsonRef::Double(-0.9), 0, true),
            (RawBsonRef::Double(f64::NAN), 0, true),
            (RawBsonRef::Double(f64::INFINITY), i64::MAX, true),
            (RawBsonRef::Double(-0.0), 0, false),
            (RawBsonRef::Int64(0), 0, false),
            (decimal("0.5"), 0, true),
            (decimal("1.5"), 2, true),
            (decimal("2.5"), 2, true),
            (decimal("-0.9"), -1, true),
            (decimal("2147483647.5"), 2_147_483_648, true),
            (decimal("-0"), 0, false),
            (decimal("NaN"), 0, true),
            (decimal("-Infinity"), i64::MIN, true),
            (decimal("1E+300"), i64::MAX, true),
        ] {
            assert_eq!(
                (option_integer(value), option_bool(value)),
                (Some(integer), Some(truth)),
                "{value:?}"
            );
        }
        assert_eq!(option_integer(RawBsonRef::Boolean(true)), None);
        assert_eq!(option_bool(RawBsonRef::String("true")), None);
    }

    #[test]
    fn type_sets_name_types_by_alias_number_and_family() {
        let mut set = TypeSet::default();
        set.add(RawBsonRef::String("number")).unwrap();
        set.add(RawBsonRef::Double(4.0)).unwrap();
        let array = bson::raw::RawArrayBuf::new();
        assert!(set.contains(decimal("1")) && set.contains(RawBsonRef::Array(&array)));
        assert!(!set.contains(RawBsonRef::Null));
        assert!(set.add(RawBsonRef::Int32(0)).is_err());
        assert!(set.add(RawBsonRef::Double(1.5)).is_err());
    }
}
