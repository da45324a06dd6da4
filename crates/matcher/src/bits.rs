//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.
//!
//! Bit 0 is the lowest of a number or of the first byte of binary data. A number's sign bit goes on
//! for ever; binary data is followed by zeros.

use bson::Bson;
use bson::raw::RawBsonRef;
use bsonval::{show, types};
use errors::{Error, Result};

/// Which bits must have which value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the operators")]
pub enum BitTest {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}

impl BitTest {
    /// The operator's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllSet => "$bitsAllSet",
            Self::AllClear => "$bitsAllClear",
            Self::AnySet => "$bitsAnySet",
            Self::AnyClear => "$bitsAnyClear",
        }
    }

    /// The operator of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::AllSet, Self::AllClear, Self::AnySet, Self::AnyClear]
            .into_iter()
            .find(|test| test.name() == name)
    }
}

/// Positions of the bits asked about, ascending and distinct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitMask {
    positions: Vec<u32>,
}

impl BitMask {
    /// Reads an operand: a number as mask, binary data as mask, or an array of positions.
    pub(crate) fn parse(field: &str, name: &str, operand: RawBsonRef<'_>) -> Result<Self> {
        let mut positions = match operand {
            RawBsonRef::Array(array) => {
                let mut positions = Vec::new();
                for (at, value) in bsonval::raw::values(array).enumerate() {
                    positions.push(position(&at.to_string(), value?)?);
                }
                positions
            }
            RawBsonRef::Binary(binary) => {
                let bytes = binary.bytes.iter().enumerate();
                bytes
                    .flat_map(|(at, byte)| {
                        let bits = (0..8).filter(move |bit| byte >> bit & 1 == 1);
                        bits.map(move |bit| at as u32 * 8 + bit)
                    })
                    .collect()
            }
            value if types::is_number(value) => {
                let mask = types::exact_integer(value).ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "Expected an integer: {field}: {{ {} }}",
                        show::field(name, value)
                    ))
                })?;
                if mask < 0 {
                    return Err(Error::failed_to_parse(format!(
                        "Expected a non-negative number in: {}",
                        show::field(name, value)
                    )));
                }
                (0..63).filter(|bit| mask >> bit & 1 == 1).collect()
            }
            value => {
                return Err(Error::bad_value(format!(
                    "{field} takes an Array, a number, or a BinData but received: {}",
                    show::field(name, value)
                )));
            }
        };
        positions.sort_unstable();
        positions.dedup();
        Ok(Self { positions })
    }

    /// The positions.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    pub(crate) fn operand(&self) -> Bson {
        Bson::Array(self.positions.iter().map(|bit| Bson::Int64(i64::from(*bit))).collect())
    }

    /// Whether a value passes; what is neither an integral number nor binary data does not.
    pub(crate) fn test(&self, test: BitTest, value: RawBsonRef<'_>) -> bool {
        let check = |is_set: &dyn Fn(u32) -> bool| {
            let mut bits = self.positions.iter().map(|bit| is_set(*bit));
            match test {
                BitTest::AllSet => bits.all(|set| set),
                BitTest::AllClear => bits.all(|set| !set),
                BitTest::AnySet => bits.any(|set| set),
                BitTest::AnyClear => bits.any(|set| !set),
            }
        };
        if let RawBsonRef::Binary(binary) = value {
            let set = |bit: u32| {
                binary.bytes.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
            };
            return check(&set);
        }
        match types::exact_integer(value) {
            Some(number) => check(&|bit| number >> bit.min(63) & 1 == 1),
            None => false,
        }
    }
}

fn position(name: &str, value: RawBsonRef<'_>) -> Result<u32> {
    let field = show::field(name, value);
    if !types::is_number(value) {
        return Err(Error::bad_value(format!(
            "Failed to parse bit position. Expected a number in: {field}"
        )));
    }
    let Some(position) = types::exact_integer(value) else {
        return Err(Error::bad_value(format!(
            "Failed to parse bit position. Expected an integer: {field}"
        )));
    };
    u32::try_from(position).map_err(|_| {
        Error::bad_value(format!(
            "Failed to parse bit position. Expected a non-negative number in: {field}"
        ))
    })
}
