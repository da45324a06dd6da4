//! The running results of `$add` and `$multiply`.
//!
//! Unlike the accumulators' sums these carry no rounding errors along: doubles are added as they
//! come. Integers are one 64-bit total until a wider number comes or they overflow; a total of
//! nothing but ints is an int again where it fits.

use bsonval::decimal::Decimal;
use bsonval::number::Number;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Widest {
    #[default]
    Int,
    Long,
    Double,
    Decimal,
}

impl Widest {
    fn of(number: Number) -> Self {
        match number {
            Number::Int(_) => Self::Int,
            Number::Long(_) => Self::Long,
            Number::Double(_) => Self::Double,
            Number::Decimal(_) => Self::Decimal,
        }
    }
}

fn narrow(long: i64, widest: Widest) -> Number {
    match i32::try_from(long) {
        Ok(int) if widest == Widest::Int => Number::Int(int),
        _ => Number::Long(long),
    }
}

/// The integer of an int or a long.
fn whole(number: Number) -> Option<i64> {
    match number {
        Number::Int(n) => Some(i64::from(n)),
        Number::Long(n) => Some(n),
        Number::Double(_) | Number::Decimal(_) => None,
    }
}

#[derive(Debug)]
pub(super) struct Total {
    widest: Widest,
    long: i64,
    double: f64,
    decimal: Decimal,
}

impl Default for Total {
    fn default() -> Self {
        Self { widest: Widest::Int, long: 0, double: 0.0, decimal: Decimal::ZERO }
    }
}

impl Total {
    pub(super) fn add(&mut self, number: Number) {
        let before = self.widest;
        self.widest = before.max(Widest::of(number));
        if self.widest != before {
            match (self.widest, before) {
                (Widest::Double, _) => self.double = self.long as f64,
                (Widest::Decimal, Widest::Double) => self.decimal = Decimal::from_f64(self.double),
                (Widest::Decimal, _) => self.decimal = Decimal::from_i64(self.long),
                _ => {}
            }
        }
        match (self.widest, whole(number)) {
            (Widest::Decimal, _) => self.decimal = self.decimal.add(number.to_decimal()),
            (Widest::Int | Widest::Long, Some(n)) => {
                if let Some(total) = self.long.checked_add(n) {
                    self.long = total;
                } else {
                    self.widest = Widest::Double;
                    self.double = self.long as f64 + n as f64;
                }
            }
            _ => self.double += number.to_f64(),
        }
    }

    pub(super) fn result(&self) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.decimal),
            Widest::Double => Number::Double(self.double),
            integer => narrow(self.long, integer),
        }
    }
}

#[derive(Debug)]
pub(super) struct Product {
    widest: Widest,
    long: i64,
    /// Of all factors so far, for when the integers overflow.
    double: f64,
    decimal: Decimal,
}

impl Default for Product {
    fn default() -> Self {
        Self { widest: Widest::Int, long: 1, double: 1.0, decimal: Decimal::ZERO }
    }
}

impl Product {
    pub(super) fn multiply(&mut self, number: Number) {
        let before = self.widest;
        self.widest = before.max(Widest::of(number));
        if self.widest == Widest::Decimal {
            match before {
                Widest::Decimal => {}
                Widest::Double => self.decimal = Decimal::from_f64(self.double),
                _ => self.decimal = Decimal::from_i64(self.long),
            }
            self.decimal = self.decimal.mul(number.to_decimal());
            return;
        }
        self.double *= number.to_f64();
        if let (Widest::Int | Widest::Long, Some(n)) = (self.widest, whole(number)) {
            match self.long.checked_mul(n) {
                Some(product) => self.long = product,
                None => self.widest = Widest::Double,
            }
        }
    }

    pub(super) fn result(&self) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.decimal),
            Widest::Double => Number::Double(self.double),
            integer => narrow(self.long, integer),
        }
    }
}
