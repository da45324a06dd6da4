//! Numbers across the four BSON types: promotion int → long → double → decimal.

use crate::decimal::Decimal;
use bson::raw::{RawBson, RawBsonRef};

/// A BSON number.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// 32-bit integer.
    Int(i32),
    /// 64-bit integer.
    Long(i64),
    /// Binary double.
    Double(f64),
    /// Decimal128.
    Decimal(Decimal),
}

#[expect(clippy::should_implement_trait, reason = "plain methods pass as function pointers")]
impl Number {
    /// The number, if the value is one.
    pub fn from_bson(value: RawBsonRef<'_>) -> Option<Self> {
        Some(match value {
            RawBsonRef::Int32(n) => Self::Int(n),
            RawBsonRef::Int64(n) => Self::Long(n),
            RawBsonRef::Double(n) => Self::Double(n),
            RawBsonRef::Decimal128(n) => Self::Decimal(Decimal::from_bson(n)),
            _ => return None,
        })
    }

    /// As a BSON value.
    pub fn to_bson(self) -> RawBson {
        match self {
            Self::Int(n) => RawBson::Int32(n),
            Self::Long(n) => RawBson::Int64(n),
            Self::Double(n) => RawBson::Double(n),
            Self::Decimal(n) => RawBson::Decimal128(n.to_bson()),
        }
    }

    /// As a double.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(n) => f64::from(n),
            Self::Long(n) => n as f64,
            Self::Double(n) => n,
            Self::Decimal(n) => n.to_f64(),
        }
    }

    /// As a decimal (doubles at 15 digits).
    pub fn to_decimal(self) -> Decimal {
        match self {
            Self::Int(n) => Decimal::from_i64(i64::from(n)),
            Self::Long(n) => Decimal::from_i64(n),
            Self::Double(n) => Decimal::from_f64(n),
            Self::Decimal(n) => n,
        }
    }

    /// As a 64-bit integer, if it is a whole number that fits.
    pub fn to_exact_i64(self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(i64::from(n)),
            Self::Long(n) => Some(n),
            Self::Double(n) => exact_i64(n),
            Self::Decimal(n) => n.to_i64().filter(|_| n.is_integral()),
        }
    }

    /// As a 32-bit integer, if it is a whole number that fits.
    pub fn to_exact_i32(self) -> Option<i32> {
        i32::try_from(self.to_exact_i64()?).ok()
    }

    /// Whether it is not a number.
    pub fn is_nan(self) -> bool {
        match self {
            Self::Double(n) => n.is_nan(),
            Self::Decimal(n) => n.is_nan(),
            _ => false,
        }
    }

    /// Whether it is an infinity.
    pub fn is_infinite(self) -> bool {
        match self {
            Self::Double(n) => n.is_infinite(),
            Self::Decimal(n) => n.is_infinite(),
            _ => false,
        }
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        match self {
            Self::Int(n) => n == 0,
            Self::Long(n) => n == 0,
            Self::Double(n) => n == 0.0,
            Self::Decimal(n) => n.is_zero(),
        }
    }

    /// Sum. Integers widen: int to long, long to double.
    #[must_use]
    pub fn add(self, other: Self) -> Self {
        self.combine(other, i64::checked_add, |a, b| a + b, Decimal::add)
    }

    /// Difference, widening as [`Self::add`].
    #[must_use]
    pub fn sub(self, other: Self) -> Self {
        self.combine(other, i64::checked_sub, |a, b| a - b, Decimal::sub)
    }

    /// Product, widening as [`Self::add`].
    #[must_use]
    pub fn mul(self, other: Self) -> Self {
        self.combine(other, i64::checked_mul, |a, b| a * b, Decimal::mul)
    }

    fn combine(
        self,
        other: Self,
        integers: fn(i64, i64) -> Option<i64>,
        doubles: fn(f64, f64) -> f64,
        decimals: fn(Decimal, Decimal) -> Decimal,
    ) -> Self {
        match (self, other) {
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => {
                Self::Decimal(decimals(self.to_decimal(), other.to_decimal()))
            }
            (Self::Double(_), _) | (_, Self::Double(_)) => {
                Self::Double(doubles(self.to_f64(), other.to_f64()))
            }
            (Self::Int(a), Self::Int(b)) => match integers(i64::from(a), i64::from(b)) {
                Some(n) => i32::try_from(n).map_or(Self::Long(n), Self::Int),
                None => Self::Double(doubles(f64::from(a), f64::from(b))),
            },
            (Self::Int(_) | Self::Long(_), Self::Int(_) | Self::Long(_)) => {
                let (a, b) = (self.to_long(), other.to_long());
                integers(a, b).map_or_else(|| Self::Double(doubles(a as f64, b as f64)), Self::Long)
            }
        }
    }

    fn to_long(self) -> i64 {
        match self {
            Self::Int(n) => i64::from(n),
            Self::Long(n) => n,
            Self::Double(_) | Self::Decimal(_) => 0,
        }
    }
}

/// A double as a 64-bit integer, if it is a whole number that fits.
pub fn exact_i64(value: f64) -> Option<i64> {
    // 2^63 itself is a double and does not fit.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    (fits && value.fract() == 0.0).then_some(value as i64)
}

/// A running sum that loses nothing: integers exact, doubles with their rounding errors carried
/// along (Neumaier), decimals apart.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    integers: i128,
    double: f64,
    carry: f64,
    decimal: Decimal,
    widest: Widest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Widest {
    Int,
    Long,
    Double,
    Decimal,
}

impl Default for Sum {
    fn default() -> Self {
        Self { integers: 0, double: 0.0, carry: 0.0, decimal: Decimal::ZERO, widest: Widest::Int }
    }
}

impl Sum {
    /// Adds a number.
    pub fn add(&mut self, number: Number) {
        match number {
            Number::Int(n) => self.integers = self.integers.saturating_add(i128::from(n)),
            Number::Long(n) => {
                self.widest = self.widest.max(Widest::Long);
                self.integers = self.integers.saturating_add(i128::from(n));
            }
            Number::Double(n) => {
                self.widest = self.widest.max(Widest::Double);
                self.add_double(n);
            }
            Number::Decimal(n) => {
                self.widest = Widest::Decimal;
                self.decimal = self.decimal.add(n);
            }
        }
    }

    fn add_double(&mut self, n: f64) {
        let total = self.double + n;
        if total.is_finite() {
            self.carry += if self.double.abs() >= n.abs() {
                (self.double - total) + n
            } else {
                (n - total) + self.double
            };
        }
        self.double = total;
    }

    /// The sum as a double.
    pub fn to_f64(self) -> f64 {
        let mut whole = self;
        // Each half of the integer part is exact as a double, so the split loses nothing.
        let high = self.integers >> 32;
        whole.add_double(high as f64 * 4_294_967_296.0);
        whole.add_double((self.integers & 0xffff_ffff) as f64);
        if self.widest == Widest::Decimal {
            return self.to_decimal().to_f64();
        }
        if whole.double.is_finite() { whole.double + whole.carry } else { whole.double }
    }

    /// The sum as a decimal.
    pub fn to_decimal(self) -> Decimal {
        let mut total = self.decimal.add(Decimal::from_i128(self.integers));
        if self.double != 0.0 || self.carry != 0.0 {
            total = total.add(Decimal::from_f64_exact(self.double));
            if self.double.is_finite() {
                total = total.add(Decimal::from_f64_exact(self.carry));
            }
        }
        total
    }

    /// The sum in the narrowest type that every part allows.
    pub fn result(self) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.to_decimal()),
            Widest::Double => Number::Double(self.to_f64()),
            narrow => match i64::try_from(self.integers) {
                Err(_) => Number::Double(self.to_f64()),
                Ok(n) if narrow == Widest::Int => {
                    i32::try_from(n).map_or(Number::Long(n), Number::Int)
                }
                Ok(n) => Number::Long(n),
            },
        }
    }

    /// The parts as BSON values, for a partial result that [`Self::merge`] takes up again.
    pub fn parts(self) -> [RawBson; 5] {
        [
            RawBson::Int32(self.widest as i32),
            RawBson::Decimal128(Decimal::from_i128(self.integers).to_bson()),
            RawBson::Double(self.double),
            RawBson::Double(self.carry),
            RawBson::Decimal128(self.decimal.to_bson()),
        ]
    }

    /// Adds the parts of another sum; `None` if they are not such parts.
    pub fn merge(&mut self, parts: &[RawBsonRef<'_>]) -> Option<()> {
        let [
            RawBsonRef::Int32(widest),
            RawBsonRef::Decimal128(integers),
            RawBsonRef::Double(double),
            RawBsonRef::Double(carry),
            RawBsonRef::Decimal128(decimal),
        ] = parts
        else {
            return None;
        };
        let widest = [Widest::Int, Widest::Long, Widest::Double, Widest::Decimal]
            .get(usize::try_from(*widest).ok()?)?;
        self.widest = self.widest.max(*widest);
        self.integers = self.integers.saturating_add(Decimal::from_bson(*integers).to_i128()?);
        self.add_double(*double);
        self.add_double(*carry);
        self.decimal = self.decimal.add(Decimal::from_bson(*decimal));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(numbers: &[Number]) -> RawBson {
        let mut total = Sum::default();
        for number in numbers {
            total.add(*number);
        }
        total.result().to_bson()
    }

    #[test]
    fn integers_widen_when_they_overflow() {
        assert_eq!(Number::Int(i32::MAX).add(Number::Int(1)).to_bson(), RawBson::Int64(1 << 31));
        assert_eq!(
            Number::Long(i64::MAX).add(Number::Int(1)).to_bson(),
            RawBson::Double(9_223_372_036_854_775_808.0)
        );
        assert_eq!(Number::Long(1).mul(Number::Int(2)).to_bson(), RawBson::Int64(2));
    }

    #[test]
    fn sums_do_not_lose_small_parts() {
        assert_eq!(
            sum(&[Number::Double(1e100), Number::Double(1.0), Number::Double(-1e100)]),
            RawBson::Double(1.0)
        );
        assert_eq!(sum(&[Number::Double(0.1); 10]), RawBson::Double(1.0));
        assert_eq!(sum(&[Number::Int(1), Number::Long(2)]), RawBson::Int64(3));
        assert_eq!(sum(&[]), RawBson::Int32(0));
    }

    #[test]
    fn infinities_survive_a_sum() {
        assert_eq!(
            sum(&[Number::Double(f64::INFINITY), Number::Int(1)]),
            RawBson::Double(f64::INFINITY)
        );
    }

    #[test]
    fn merged_parts_equal_one_sum() {
        let (mut left, mut right) = (Sum::default(), Sum::default());
        left.add(Number::Long(i64::MAX));
        right.add(Number::Long(i64::MAX));
        right.add(Number::Double(0.5));
        let parts = right.parts();
        let refs: Vec<_> = parts.iter().map(RawBson::as_raw_bson_ref).collect();
        left.merge(&refs).unwrap();
        assert_eq!(left.result().to_bson(), RawBson::Double(2.0 * 9_223_372_036_854_775_807.0));
    }
}
