//! Numbers of four types as one ordered line.
//!
//! A magnitude is written as a class, a fixed head and, only for a decimal that no head holds
//! exactly, a tail. The head is the number cut towards zero; its lowest bit says "a little more
//! follows", so an exact number sorts before every longer one with the same head:
//!
//! ```text
//! (0, 1)        small   8 bytes: bits of the double below or at it, shifted left by 1, | more
//! [1, 2^63)     int n   n = 1..=8 bytes: integer part << 1 | has fraction
//!                       then, if it has: 8 bytes: fraction * 2^63, << 1 | more
//! [2^63, inf]   large   8 bytes: bits of the double below or at it << 1 | more
//! tail          17 bytes: decimal exponent + 6176 (2), coefficient filled up to 34 digits (15)
//! ```
//!
//! Always true: heads are exact for int32, int64 and double, so only decimals have tails, and two
//! decimals with the same head are ordered by their tails. Negative numbers invert every byte after
//! the class.

use bson::Decimal128;
use bson::raw::RawBsonRef;
use std::cmp::Ordering;

/// A number as the value it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Int(i64),
    Double(f64),
    Decimal(Decimal128),
}

impl Number {
    pub(crate) fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Int32(v) => Some(Self::Int(i64::from(v))),
            RawBsonRef::Int64(v) => Some(Self::Int(v)),
            RawBsonRef::Double(v) => Some(Self::Double(v)),
            RawBsonRef::Decimal128(v) => Some(Self::Decimal(v)),
            _ => None,
        }
    }
}

/// 2^63, the first magnitude that is no `i64`.
pub(crate) const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// Lead bytes. The gap between neighbours is one; their order is the order of numbers.
pub(crate) mod class {
    pub(crate) const NAN: u8 = 0x1E;
    pub(crate) const NEGATIVE_LARGE: u8 = 0x1F;
    /// The class of a negative integer part of one byte; `n` bytes are `n - 1` lower.
    pub(crate) const NEGATIVE_INT_1: u8 = 0x27;
    pub(crate) const NEGATIVE_INT_8: u8 = 0x20;
    pub(crate) const NEGATIVE_SMALL: u8 = 0x28;
    pub(crate) const ZERO: u8 = 0x29;
    pub(crate) const SMALL: u8 = 0x2A;
    /// The class of an integer part of one byte; `n` bytes are `n - 1` higher.
    pub(crate) const INT_1: u8 = 0x2B;
    pub(crate) const INT_8: u8 = 0x32;
    pub(crate) const LARGE: u8 = 0x33;
}

/// Up to 1 + 8 + 8 + 17 bytes.
pub(crate) struct Encoded {
    bytes: [u8; 34],
    len: usize,
}

impl Encoded {
    fn new(class: u8) -> Self {
        let mut bytes = [0; 34];
        bytes[0] = class;
        Self { bytes, len: 1 }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The same magnitude below zero.
    fn negated(mut self) -> Self {
        self.bytes[0] = 2 * class::ZERO - self.bytes[0];
        for byte in &mut self.bytes[1..self.len] {
            *byte = !*byte;
        }
        self
    }
}

/// Compares two numbers exactly, whatever their types.
pub(crate) fn compare(a: Number, b: Number) -> Ordering {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        (Number::Double(a), Number::Double(b)) => doubles(a, b),
        (Number::Int(a), Number::Double(b)) => int_with_double(a, b),
        (Number::Double(a), Number::Int(b)) => int_with_double(b, a).reverse(),
        (a, b) => encode(a).as_bytes().cmp(encode(b).as_bytes()),
    }
}

fn doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

fn int_with_double(a: i64, b: f64) -> Ordering {
    if b.is_nan() || b < -TWO_63 {
        return Ordering::Greater;
    }
    if b >= TWO_63 {
        return Ordering::Less;
    }
    let whole = b.trunc();
    a.cmp(&(whole as i64)).then_with(|| doubles(whole, b))
}

/// The bytes of a number, lead byte first.
pub(crate) fn encode(number: Number) -> Encoded {
    match number {
        Number::Int(v) => signed(v < 0, int(v.unsigned_abs())),
        Number::Double(v) => signed(v < 0.0, double(v.abs())),
        Number::Decimal(v) => match Decimal::unpack(v) {
            Decimal::NaN => Encoded::new(class::NAN),
            Decimal::Infinity { negative } => signed(negative, large(f64::INFINITY, None)),
            Decimal::Finite { negative, coefficient, exponent } => {
                signed(negative, decimal(coefficient, exponent))
            }
        },
    }
}

fn signed(negative: bool, encoded: Encoded) -> Encoded {
    if negative { encoded.negated() } else { encoded }
}

fn int(magnitude: u64) -> Encoded {
    match magnitude {
        0 => Encoded::new(class::ZERO),
        1..=0x7FFF_FFFF_FFFF_FFFF => integer_part(magnitude, false),
        _ => large(magnitude as f64, None),
    }
}

fn double(magnitude: f64) -> Encoded {
    if magnitude.is_nan() {
        Encoded::new(class::NAN)
    } else if magnitude == 0.0 {
        Encoded::new(class::ZERO)
    } else if magnitude < 1.0 {
        small(magnitude, None)
    } else if magnitude < TWO_63 {
        let fraction = magnitude.fract();
        let mut out = integer_part(magnitude as u64, fraction != 0.0);
        if fraction != 0.0 {
            put_fraction(&mut out, (fraction * TWO_63) as u64, None);
        }
        out
    } else {
        large(magnitude, None)
    }
}

fn decimal(coefficient: u128, exponent: i32) -> Encoded {
    if coefficient == 0 {
        return Encoded::new(class::ZERO);
    }
    let digits = coefficient.ilog10() as i32 + 1;
    let leading = exponent + digits - 1;
    let tail = Tail { leading, coefficient: coefficient * 10u128.pow((34 - digits) as u32) };
    if leading < 0 {
        let (below, exact) = double_at_or_below(coefficient, exponent);
        return small(below, (!exact).then_some(tail));
    }
    if leading <= 18 {
        // The scale is at most 33 here: `digits + exponent >= 1`.
        let scale = 10u128.pow(exponent.min(0).unsigned_abs());
        let whole = coefficient / scale * 10u128.pow(exponent.max(0).unsigned_abs());
        let rest = coefficient % scale;
        if whole < 1 << 63 {
            let mut out = integer_part(whole as u64, rest != 0);
            if rest != 0 {
                let (fraction, left) = binary_fraction(rest, scale);
                put_fraction(&mut out, fraction, (left != 0).then_some(tail));
            }
            return out;
        }
    }
    let (below, exact) = double_at_or_below(coefficient, exponent);
    large(below, (!exact).then_some(tail))
}

struct Tail {
    /// The power of ten of the first digit.
    leading: i32,
    /// Filled up with zeros to 34 digits.
    coefficient: u128,
}

fn put_tail(out: &mut Encoded, tail: Option<Tail>) {
    if let Some(tail) = tail {
        out.put(&((tail.leading + 6176) as u16).to_be_bytes());
        out.put(&tail.coefficient.to_be_bytes()[1..]);
    }
}

fn small(below: f64, tail: Option<Tail>) -> Encoded {
    head_of_double(class::SMALL, below, tail)
}

fn large(below: f64, tail: Option<Tail>) -> Encoded {
    head_of_double(class::LARGE, below, tail)
}

fn head_of_double(class: u8, below: f64, tail: Option<Tail>) -> Encoded {
    let mut out = Encoded::new(class);
    out.put(&(below.to_bits() << 1 | u64::from(tail.is_some())).to_be_bytes());
    put_tail(&mut out, tail);
    out
}

fn integer_part(whole: u64, has_fraction: bool) -> Encoded {
    let shifted = whole << 1 | u64::from(has_fraction);
    let skip = (shifted.leading_zeros() / 8).min(7) as usize;
    let mut out = Encoded::new(class::INT_1 + 7 - skip as u8);
    out.put(&shifted.to_be_bytes()[skip..]);
    out
}

fn put_fraction(out: &mut Encoded, fraction: u64, tail: Option<Tail>) {
    out.put(&(fraction << 1 | u64::from(tail.is_some())).to_be_bytes());
    put_tail(out, tail);
}

/// `rest / scale` as a 63-bit binary fraction, and what is left over.
fn binary_fraction(mut rest: u128, scale: u128) -> (u64, u128) {
    let mut fraction = 0;
    for _ in 0..63 {
        rest *= 2;
        fraction <<= 1;
        if rest >= scale {
            rest -= scale;
            fraction |= 1;
        }
    }
    (fraction, rest)
}

/// The largest finite double not above `coefficient * 10^exponent`, and whether it is equal.
fn double_at_or_below(coefficient: u128, exponent: i32) -> (f64, bool) {
    let nearest: f64 = format!("{coefficient}e{exponent}").parse().unwrap_or(f64::INFINITY);
    if nearest == 0.0 {
        return (0.0, false);
    }
    if nearest.is_infinite() {
        return (f64::MAX, false);
    }
    match compare_with_double(coefficient, exponent, nearest) {
        Ordering::Equal => (nearest, true),
        Ordering::Greater => (nearest, false),
        Ordering::Less => (f64::from_bits(nearest.to_bits() - 1), false),
    }
}

/// Compares `coefficient * 10^exponent` with a positive finite double, exactly. Both sides are
/// brought to whole numbers: times `5^-exponent` if it is negative, then to a common power of two.
fn compare_with_double(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    let bits = double.to_bits();
    let (mantissa, power) = match (bits >> 52) as i32 {
        0 => (bits, -1074),
        biased => (bits & ((1 << 52) - 1) | 1 << 52, biased - 1075),
    };
    let mut left = Big::from(coefficient);
    let mut right = Big::from(u128::from(mantissa));
    if exponent >= 0 {
        left.times_power_of_five(exponent.unsigned_abs());
    } else {
        right.times_power_of_five(exponent.unsigned_abs());
    }
    if exponent > power {
        left.shift_left((exponent - power) as u32);
    } else {
        right.shift_left((power - exponent) as u32);
    }
    left.cmp(&right)
}

/// A whole number of any size: 32-bit limbs, the lowest first, the highest not zero.
#[derive(PartialEq, Eq)]
struct Big(Vec<u32>);

impl Big {
    fn from(mut value: u128) -> Self {
        let mut limbs = Vec::with_capacity(48);
        while value != 0 {
            limbs.push(value as u32);
            value >>= 32;
        }
        Self(limbs)
    }

    fn times(&mut self, factor: u32) {
        let mut carry = 0;
        for limb in &mut self.0 {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry != 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_power_of_five(&mut self, mut power: u32) {
        while power >= 13 {
            self.times(5u32.pow(13));
            power -= 13;
        }
        self.times(5u32.pow(power));
    }

    fn shift_left(&mut self, bits: u32) {
        self.times(1 << (bits % 32));
        let zeros = std::iter::repeat_n(0, (bits / 32) as usize);
        self.0.splice(0..0, zeros);
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

/// A decimal128 taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decimal {
    NaN,
    Infinity { negative: bool },
    Finite { negative: bool, coefficient: u128, exponent: i32 },
}

impl Decimal {
    /// Coefficients above 34 digits are not valid and stand for zero (IEEE 754-2008, 3.5.2).
    pub(crate) fn unpack(value: Decimal128) -> Self {
        let bits = u128::from_le_bytes(value.bytes());
        let negative = bits >> 127 == 1;
        match (bits >> 122) & 0x1F {
            0x1F => return Self::NaN,
            0x1E => return Self::Infinity { negative },
            _ => {}
        }
        let (coefficient, biased) = if (bits >> 125) & 3 == 3 {
            (0, (bits >> 111) & 0x3FFF)
        } else {
            (bits & ((1 << 113) - 1), (bits >> 113) & 0x3FFF)
        };
        let coefficient = if coefficient < 10u128.pow(34) { coefficient } else { 0 };
        Self::Finite { negative, coefficient, exponent: biased as i32 - 6176 }
    }
}
