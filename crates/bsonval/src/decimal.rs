//! Decimal128 arithmetic: 34 significant digits, round half to even, IEEE 754 preferred exponents.
//!
//! [`Decimal`] is the unpacked form of BSON's Decimal128 (the binary integer encoding). Sums,
//! products, quotients and square roots go through 256-bit integers and are rounded once; logarithms,
//! exponentials and angles are in `functions`.

#[cfg(test)]
mod decnumber;
mod fixed;
pub mod functions;
mod wide;

use bson::Decimal128;
use std::cmp::Ordering;
use wide::Wide;

/// Significant digits.
pub const DIGITS: u32 = 34;
const MAX_COEFFICIENT: u128 = 10_u128.pow(DIGITS) - 1;
const MIN_EXPONENT: i32 = -6176;
const MAX_EXPONENT: i32 = 6111;

/// A decimal number, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Finite { coefficient: u128, exponent: i32 },
    Infinity,
    Nan,
}

/// How to drop digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to even.
    HalfEven,
    /// Towards zero.
    Truncate,
    /// Towards minus infinity.
    Floor,
    /// Towards plus infinity.
    Ceiling,
}

#[expect(
    clippy::should_implement_trait,
    reason = "plain methods pass as function pointers beside those of `Number`"
)]
impl Decimal {
    /// Zero.
    pub const ZERO: Self = Self::finite(false, 0, 0);
    /// Not a number.
    pub const NAN: Self = Self { negative: false, kind: Kind::Nan };

    const fn finite(negative: bool, coefficient: u128, exponent: i32) -> Self {
        Self { negative, kind: Kind::Finite { coefficient, exponent } }
    }

    /// An infinity.
    pub const fn infinity(negative: bool) -> Self {
        Self { negative, kind: Kind::Infinity }
    }

    /// Unpacks the 16 bytes (binary integer encoding); a coefficient past 34 digits reads as zero,
    /// as IEEE 754 says.
    pub fn from_bson(value: Decimal128) -> Self {
        let bits = u128::from_le_bytes(value.bytes());
        let negative = bits >> 127 != 0;
        let combination = (bits >> 110) as u32 & 0x1_ffff;
        if combination >> 12 == 0b11111 {
            return Self { negative, kind: Kind::Nan };
        }
        if combination >> 12 == 0b11110 {
            return Self::infinity(negative);
        }
        if combination >> 15 == 0b11 {
            let exponent = ((bits >> 111) as i32 & 0x3fff) + MIN_EXPONENT;
            return Self::finite(negative, 0, exponent);
        }
        let exponent = ((bits >> 113) as i32 & 0x3fff) + MIN_EXPONENT;
        let coefficient = bits & ((1 << 113) - 1);
        Self::finite(
            negative,
            if coefficient > MAX_COEFFICIENT { 0 } else { coefficient },
            exponent,
        )
    }

    /// Packs it again.
    pub fn to_bson(self) -> Decimal128 {
        let sign = u128::from(self.negative) << 127;
        let bits = match self.kind {
            Kind::Nan => 0b11111 << 122,
            Kind::Infinity => 0b11110 << 122,
            Kind::Finite { coefficient, exponent } => {
                (((exponent - MIN_EXPONENT) as u128) << 113) | coefficient
            }
        };
        Decimal128::from_bytes((sign | bits).to_le_bytes())
    }

    /// An integer, exactly.
    pub fn from_i64(value: i64) -> Self {
        Self::finite(value < 0, u128::from(value.unsigned_abs()), 0)
    }

    /// An integer, rounded to 34 digits.
    pub fn from_i128(value: i128) -> Self {
        Self::rounded(value < 0, Wide::from(value.unsigned_abs()), 0)
    }

    /// A double as conversions make it: rounded to 15 significant digits, trailing zeros kept.
    pub fn from_f64(value: f64) -> Self {
        if value == 0.0 || !value.is_finite() {
            return Self::from_f64_exact(value);
        }
        Self::parse(&format!("{value:.14e}")).unwrap_or(Self::NAN)
    }

    /// A double as sums take it: rounded to 34 significant digits, no trailing zeros.
    pub fn from_f64_exact(value: f64) -> Self {
        if value.is_nan() {
            return Self::NAN;
        }
        if value.is_infinite() {
            return Self::infinity(value < 0.0);
        }
        if value == 0.0 {
            return Self::finite(value.is_sign_negative(), 0, 0);
        }
        Self::parse(&format!("{value:.33e}")).unwrap_or(Self::NAN).reduced_towards(0)
    }

    /// Reads `[+-]digits[.digits][e[+-]digits]`, `Infinity`, `inf` or `NaN` in any case; more than
    /// 34 digits are rounded. `None` if the text is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, body) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if body.eq_ignore_ascii_case("nan") {
            return Some(Self::NAN);
        }
        if body.eq_ignore_ascii_case("infinity") || body.eq_ignore_ascii_case("inf") {
            return Some(Self::infinity(negative));
        }
        let (mantissa, exponent) = match body.find(['e', 'E']) {
            Some(at) => (&body[..at], parse_exponent(&body[at + 1..])?),
            None => (body, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut coefficient = 0_u128;
        let mut shift = -(i64::try_from(fraction.len()).ok()?);
        let mut sticky = false;
        for digit in whole.bytes().chain(fraction.bytes()) {
            if !digit.is_ascii_digit() {
                return None;
            }
            if coefficient > MAX_COEFFICIENT * 10 {
                shift += 1;
                sticky |= digit != b'0';
            } else {
                coefficient = coefficient * 10 + u128::from(digit - b'0');
            }
        }
        // A sticky digit can only break a tie upwards, so the lowest kept digit stands in for it.
        if sticky && coefficient.is_multiple_of(5) {
            coefficient += 1;
        }
        let exponent = exponent.saturating_add(shift).clamp(-100_000, 100_000) as i32;
        Some(Self::rounded(negative, Wide::from(coefficient), exponent))
    }

    /// Whether it is zero (of either sign).
    pub fn is_zero(self) -> bool {
        matches!(self.kind, Kind::Finite { coefficient: 0, .. })
    }

    /// Whether it is not a number.
    pub fn is_nan(self) -> bool {
        matches!(self.kind, Kind::Nan)
    }

    /// Whether it is infinite.
    pub fn is_infinite(self) -> bool {
        matches!(self.kind, Kind::Infinity)
    }

    /// Whether the sign is minus.
    pub fn is_negative(self) -> bool {
        self.negative
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        let magnitude = match self.kind {
            Kind::Nan => return f64::NAN,
            Kind::Infinity => f64::INFINITY,
            Kind::Finite { coefficient, exponent } => {
                format!("{coefficient}e{exponent}").parse().unwrap_or(f64::NAN)
            }
        };
        if self.negative { -magnitude } else { magnitude }
    }

    /// The integer part, if it fits.
    pub fn to_i64(self) -> Option<i64> {
        i64::try_from(self.to_i128()?).ok()
    }

    /// The integer part, if it fits 34 digits.
    pub fn to_i128(self) -> Option<i128> {
        let Kind::Finite { coefficient, exponent } = self.round_to(0, Rounding::Truncate).kind
        else {
            return None;
        };
        if coefficient == 0 {
            return Some(0);
        }
        let scale = 10_u128.checked_pow(u32::try_from(exponent).ok()?)?;
        let magnitude = i128::try_from(coefficient.checked_mul(scale)?).ok()?;
        Some(if self.negative { -magnitude } else { magnitude })
    }

    /// Whether it is a whole number.
    pub fn is_integral(self) -> bool {
        match self.kind {
            Kind::Finite { .. } => self.round_to(0, Rounding::Truncate).sub(self).is_zero(),
            _ => false,
        }
    }

    /// The absolute value.
    #[must_use]
    pub fn abs(self) -> Self {
        Self { negative: false, ..self }
    }

    /// The value with its sign turned.
    #[must_use]
    pub fn neg(self) -> Self {
        Self { negative: !self.negative, ..self }
    }

    /// Sum.
    #[must_use]
    pub fn add(self, other: Self) -> Self {
        match (self.kind, other.kind) {
            (Kind::Nan, _) | (_, Kind::Nan) => Self::NAN,
            (Kind::Infinity, Kind::Infinity) if self.negative != other.negative => Self::NAN,
            (Kind::Infinity, _) => self,
            (_, Kind::Infinity) => other,
            (
                Kind::Finite { coefficient: a, exponent: ea },
                Kind::Finite { coefficient: b, exponent: eb },
            ) => {
                if ea >= eb {
                    add_finite((self.negative, a, ea), (other.negative, b, eb))
                } else {
                    add_finite((other.negative, b, eb), (self.negative, a, ea))
                }
            }
        }
    }

    /// Difference.
    #[must_use]
    pub fn sub(self, other: Self) -> Self {
        self.add(other.neg())
    }

    /// Product.
    #[must_use]
    pub fn mul(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        match (self.kind, other.kind) {
            (Kind::Nan, _) | (_, Kind::Nan) => Self::NAN,
            (Kind::Infinity, _) if other.is_zero() => Self::NAN,
            (_, Kind::Infinity) if self.is_zero() => Self::NAN,
            (Kind::Infinity, _) | (_, Kind::Infinity) => Self::infinity(negative),
            (
                Kind::Finite { coefficient: a, exponent: ea },
                Kind::Finite { coefficient: b, exponent: eb },
            ) => Self::rounded(negative, Wide::product(a, b), ea + eb),
        }
    }

    /// Quotient.
    #[must_use]
    pub fn div(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        match (self.kind, other.kind) {
            (Kind::Nan, _) | (_, Kind::Nan) | (Kind::Infinity, Kind::Infinity) => Self::NAN,
            (Kind::Infinity, _) => Self::infinity(negative),
            (_, Kind::Infinity) => Self::finite(negative, 0, MIN_EXPONENT),
            (
                Kind::Finite { coefficient: a, exponent: ea },
                Kind::Finite { coefficient: b, exponent: eb },
            ) => match (a, b) {
                (0, 0) => Self::NAN,
                (_, 0) => Self::infinity(negative),
                (0, _) => Self::rounded(negative, Wide::from(0), ea - eb),
                _ => div_finite(negative, (a, ea), (b, eb)),
            },
        }
    }

    /// Remainder with the sign of the dividend.
    #[must_use]
    pub fn rem(self, other: Self) -> Self {
        match (self.kind, other.kind) {
            (Kind::Nan | Kind::Infinity, _) | (_, Kind::Nan) => Self::NAN,
            (_, Kind::Infinity) => self,
            (
                Kind::Finite { coefficient: a, exponent: ea },
                Kind::Finite { coefficient: b, exponent: eb },
            ) => {
                if b == 0 {
                    return Self::NAN;
                }
                rem_finite(self.negative, (a, ea), (b, eb))
            }
        }
    }

    /// Rounded to `10^-places` (negative: left of the point).
    #[must_use]
    pub fn round_to(self, places: i32, rounding: Rounding) -> Self {
        let Kind::Finite { coefficient, exponent } = self.kind else { return self };
        let drop = -places - exponent;
        if drop <= 0 {
            return self;
        }
        let (kept, rest, half) = if drop > 38 {
            (0, coefficient, u128::MAX)
        } else {
            let unit = 10_u128.pow(drop as u32);
            (coefficient / unit, coefficient % unit, unit / 2)
        };
        let up = rest != 0
            && match rounding {
                Rounding::Truncate => false,
                Rounding::Floor => self.negative,
                Rounding::Ceiling => !self.negative,
                Rounding::HalfEven => match rest.cmp(&half) {
                    Ordering::Less => false,
                    Ordering::Greater => true,
                    Ordering::Equal => kept % 2 == 1,
                },
            };
        Self::finite(self.negative, kept + u128::from(up), exponent + drop)
    }

    /// Rounded to `10^-places` and written with just that exponent; not a number where that takes
    /// more than 34 digits, as of the infinities.
    #[must_use]
    pub fn quantized(self, places: i32, rounding: Rounding) -> Self {
        let rounded = self.round_to(places, rounding);
        let Kind::Finite { coefficient, exponent } = rounded.kind else { return Self::NAN };
        // What was not rounded has fewer places than asked for: zeros are added.
        let Ok(zeros) = u32::try_from(exponent + places) else { return rounded };
        if coefficient == 0 {
            return Self::finite(rounded.negative, 0, -places);
        }
        let padded = 10_u128.checked_pow(zeros).and_then(|unit| coefficient.checked_mul(unit));
        match padded {
            Some(padded) if padded <= MAX_COEFFICIENT => {
                Self::finite(rounded.negative, padded, -places)
            }
            _ => Self::NAN,
        }
    }

    /// Square root; not a number below zero.
    #[must_use]
    pub fn sqrt(self) -> Self {
        let Kind::Finite { coefficient, exponent } = self.kind else {
            return if self.negative { Self::NAN } else { self };
        };
        if coefficient == 0 {
            return Self::finite(self.negative, 0, exponent.div_euclid(2));
        }
        if self.negative {
            return Self::NAN;
        }
        // 71 or 72 digits have a root of 36, two more than are kept; the exponent must be even.
        let least = 71 - Wide::from(coefficient).digits();
        let scale = least + u32::from((exponent - least as i32).rem_euclid(2) == 1);
        let (root, is_exact) = Wide::from(coefficient).times_ten_to(scale).root();
        let halved = (exponent - scale as i32) / 2;
        if is_exact {
            return Self::rounded(false, Wide::from(root), halved)
                .reduced_towards(exponent.div_euclid(2));
        }
        // One more digit that says "and something": it breaks ties and nothing else.
        Self::rounded(false, Wide::from(root).times_ten_to(1).plus(Wide::from(1)), halved - 1)
    }

    /// `self` to the power `other`. Whole exponents below 10,000 are multiplied out.
    #[must_use]
    pub fn pow(self, other: Self) -> Self {
        if let Some(n) = other.to_i64().filter(|n| other.is_integral() && n.abs() < 10_000) {
            let power = self.powi(n.unsigned_abs());
            return if n < 0 { Self::from_i64(1).div(power) } else { power };
        }
        if self.negative || self.is_zero() || self.is_infinite() || !other.is_finite() {
            return Self::from_f64_exact(self.to_f64().powf(other.to_f64()));
        }
        functions::power(self, other)
    }

    fn is_finite(self) -> bool {
        matches!(self.kind, Kind::Finite { .. })
    }

    fn powi(self, mut n: u64) -> Self {
        let (mut base, mut result) = (self, Self::from_i64(1));
        while n > 0 {
            if n & 1 == 1 {
                result = result.mul(base);
            }
            base = base.mul(base);
            n >>= 1;
        }
        result
    }

    /// Drops trailing zeros while the exponent stays at or below `target`, and in its range.
    fn reduced_towards(self, target: i32) -> Self {
        let Kind::Finite { mut coefficient, mut exponent } = self.kind else { return self };
        let target = target.min(MAX_EXPONENT);
        while coefficient != 0 && exponent < target && coefficient.is_multiple_of(10) {
            coefficient /= 10;
            exponent += 1;
        }
        Self::finite(self.negative, coefficient, exponent)
    }

    /// How many digits are too many, or below the least exponent.
    fn excess(coefficient: Wide, exponent: i32) -> u32 {
        let excess = coefficient.digits().saturating_sub(DIGITS);
        excess.max(u32::try_from(MIN_EXPONENT.saturating_sub(exponent)).unwrap_or(0))
    }

    /// Fits an exact result into 34 digits and the exponent range.
    fn rounded(negative: bool, coefficient: Wide, exponent: i32) -> Self {
        let drop = Self::excess(coefficient, exponent);
        if drop > 76 {
            return Self::finite(negative, 0, MIN_EXPONENT);
        }
        let mut kept = coefficient.divided_by_ten_to(drop);
        let mut exponent = exponent + drop as i32;
        if kept > MAX_COEFFICIENT {
            kept /= 10;
            exponent += 1;
        }
        if kept == 0 {
            return Self::finite(negative, 0, exponent.clamp(MIN_EXPONENT, MAX_EXPONENT));
        }
        while exponent > MAX_EXPONENT {
            if kept > MAX_COEFFICIENT / 10 {
                return Self::infinity(negative);
            }
            kept *= 10;
            exponent -= 1;
        }
        Self::finite(negative, kept, exponent)
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<i64>().unwrap_or(1_000_000_000).min(1_000_000_000);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

type Signed = (bool, u128, i32);

/// `a` has the larger exponent.
fn add_finite((an, a, ea): Signed, (bn, b, eb): Signed) -> Decimal {
    let gap = (ea - eb) as u32;
    if a == 0 {
        let negative = if b == 0 { an && bn } else { bn };
        return Decimal::rounded(negative, Wide::from(b), eb);
    }
    let digits = Wide::from(a).digits();
    if digits + gap > 72 {
        // `b` lies wholly below the digits that are kept: only its sign can matter.
        let widen = 37 - digits;
        let scaled = Wide::product(a, 10_u128.pow(widen));
        let exponent = ea - widen as i32;
        if b == 0 {
            return Decimal::rounded(an, scaled, exponent);
        }
        let nudged =
            if an == bn { scaled.plus(Wide::from(1)) } else { scaled.minus(Wide::from(1)) };
        return Decimal::rounded(an, nudged, exponent);
    }
    let aligned = Wide::from(a).times_ten_to(gap);
    let b = Wide::from(b);
    if an == bn {
        return Decimal::rounded(an, aligned.plus(b), eb);
    }
    match aligned.cmp(&b) {
        Ordering::Greater => Decimal::rounded(an, aligned.minus(b), eb),
        Ordering::Less => Decimal::rounded(bn, b.minus(aligned), eb),
        Ordering::Equal => Decimal::rounded(false, Wide::from(0), eb),
    }
}

fn div_finite(negative: bool, (a, ea): (u128, i32), (b, eb): (u128, i32)) -> Decimal {
    let scale = (36 + Wide::from(b).digits()).saturating_sub(Wide::from(a).digits());
    let (quotient, rest) = Wide::from(a).times_ten_to(scale).div_rem(b);
    let exponent = ea - eb - scale as i32;
    if rest == 0 {
        let rounded = Decimal::rounded(negative, quotient, exponent);
        // What was rounded keeps all its digits.
        let is_exact = quotient.ends_in_zeros(Decimal::excess(quotient, exponent));
        return if is_exact { rounded.reduced_towards(ea - eb) } else { rounded };
    }
    // One more digit that says "and something": it breaks ties and nothing else.
    let sticky = quotient.times_ten_to(1).plus(Wide::from(1));
    Decimal::rounded(negative, sticky, exponent - 1)
}

fn rem_finite(negative: bool, (a, ea): (u128, i32), (b, eb): (u128, i32)) -> Decimal {
    let exponent = ea.min(eb);
    if eb > ea {
        let gap = (eb - ea) as u32;
        if gap + Wide::from(b).digits() > 38 {
            return Decimal::finite(negative, a, ea);
        }
        return Decimal::finite(negative, a % (b * 10_u128.pow(gap)), exponent);
    }
    // (a * 10^gap) mod b, by square and multiply.
    let mut gap = (ea - eb) as u32;
    let (mut base, mut power) = (10 % b, 1 % b);
    while gap > 0 {
        if gap & 1 == 1 {
            power = Wide::product(power, base).div_rem(b).1;
        }
        base = Wide::product(base, base).div_rem(b).1;
        gap >>= 1;
    }
    Decimal::finite(negative, Wide::product(a % b, power).div_rem(b).1, exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    fn check(found: Decimal, expected: &str) {
        assert_eq!(found.to_bson().to_string(), expected);
    }

    #[test]
    fn packing_round_trips_through_bson() {
        for text in ["0", "1", "-1.50", "9.999999999999999999999999999999999E+6144", "1E-6176"] {
            let theirs: Decimal128 = text.parse().unwrap();
            assert_eq!(Decimal::from_bson(theirs).to_bson(), theirs, "{text}");
            assert_eq!(d(text).to_bson(), theirs, "{text}");
        }
        assert!(Decimal::from_bson("NaN".parse().unwrap()).is_nan());
        check(Decimal::infinity(true), "-Infinity");
    }

    #[test]
    fn sums_are_exact_and_keep_the_smaller_exponent() {
        check(d("0.1").add(d("0.20")), "0.30");
        check(d("1E40").add(d("1")), "1.000000000000000000000000000000000E+40");
        check(d("5").sub(d("5.0")), "0.0");
        check(
            d("9999999999999999999999999999999999").add(d("1")),
            "1.000000000000000000000000000000000E+34",
        );
        check(d("1E100").sub(d("1E-100")), "1.000000000000000000000000000000000E+100");
    }

    #[test]
    fn products_and_quotients_round_half_even() {
        check(d("1.5").mul(d("2")), "3.0");
        check(d("1").div(d("3")), "0.3333333333333333333333333333333333");
        check(d("2").div(d("3")), "0.6666666666666666666666666666666667");
        check(d("10").div(d("4")), "2.5");
        check(d("1").div(d("0")), "Infinity");
        check(
            d("7325894482958800829844426747369901").div(d("25")),
            "293035779318352033193777069894796.0",
        );
        check(d("5E-32").div(d("5E-6159")), "1.0000000000000000E+6127");
        assert!(d("0").div(d("0")).is_nan());
    }

    #[test]
    fn remainder_takes_the_sign_of_the_dividend() {
        check(d("-7").rem(d("3")), "-1");
        check(d("7.5").rem(d("2")), "1.5");
        check(d("1E30").rem(d("7")), "1");
    }

    #[test]
    fn doubles_become_fifteen_digits() {
        check(Decimal::from_f64(2.5), "2.50000000000000");
        check(Decimal::from_f64(0.1), "0.100000000000000");
        check(Decimal::from_f64_exact(1.0), "1");
        check(Decimal::from_f64_exact(0.1), "0.1000000000000000055511151231257827");
    }

    #[test]
    fn rounding_to_places() {
        check(d("2.5").round_to(0, Rounding::HalfEven), "2");
        check(d("3.5").round_to(0, Rounding::HalfEven), "4");
        check(d("-2.1").round_to(0, Rounding::Floor), "-3");
        check(d("2.1").round_to(0, Rounding::Ceiling), "3");
        check(d("1234").round_to(-2, Rounding::HalfEven), "1.2E+3");
        assert_eq!(d("-9.9").to_i64(), Some(-9));
        assert_eq!(d("1E30").to_i64(), None);
    }

    #[test]
    fn roots_and_powers() {
        check(d("4").sqrt(), "2");
        check(d("2").sqrt(), "1.414213562373095048801688724209698");
        check(d("0.999999999999999999999995").sqrt(), "0.9999999999999999999999975000000000");
        check(d("2").pow(d("10")), "1024");
        check(d("2").pow(d("-1")), "0.5");
    }

    #[test]
    fn parse_refuses_what_is_no_number() {
        for text in ["", "-", ".", "1e", "1.2.3", "0x1", " 1", "1 "] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
        check(d("1e999999"), "Infinity");
        check(
            d("12345678901234567890123456789012345678"),
            "1.234567890123456789012345678901235E+37",
        );
    }
}
