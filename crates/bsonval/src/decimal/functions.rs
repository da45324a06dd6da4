//! Exponentials, logarithms and trigonometry of decimals, to all 34 digits.
//!
//! A decimal becomes a [`Fixed`] number, the function is found there by its series or by Newton's
//! iteration from the double's answer, and what comes out is rounded once. Below 10^-20 the odd
//! functions are their argument; angles past 10^40 have no digit behind the point and give NaN.

use super::fixed::Fixed;
use super::{Decimal, Kind};
use std::cmp::Ordering;
use std::sync::LazyLock;

/// π/180, as decimals have it.
pub const PI_OVER_180: &str = "0.01745329251994329576923690768488613";
/// 180/π
pub const OVER_PI_180: &str = "57.29577951308232087679815481410517";

struct Constants {
    pi: Fixed,
    ln2: Fixed,
    ln10: Fixed,
}

static CONSTANTS: LazyLock<Constants> = LazyLock::new(|| {
    // Machin's formula; logarithms by the series of the inverse hyperbolic tangent.
    let pi = inverse_series(5, true).times(16).sub(inverse_series(239, true).times(4));
    let ln2 = inverse_series(3, false).times(2);
    let ln10 = ln2.times(3).add(inverse_series(9, false).times(2));
    Constants { pi, ln2, ln10 }
});

/// `1/n ∓ 1/(3n³) + 1/(5n⁵) …`
fn inverse_series(n: u64, alternating: bool) -> Fixed {
    let mut power = Fixed::from_int(1).over(n);
    let mut sum = power;
    let mut at = 1;
    while !power.is_zero() {
        power = power.over(n * n);
        at += 2;
        let term = power.over(at);
        sum = if alternating && at % 4 == 3 { sum.sub(term) } else { sum.add(term) };
    }
    sum
}

fn one() -> Fixed {
    Fixed::from_int(1)
}

/// Where the first digit stands: `k` of `d.ddd × 10^k`.
fn magnitude(value: Decimal) -> i32 {
    match value.kind {
        Kind::Finite { coefficient, exponent } => {
            exponent + coefficient.checked_ilog10().unwrap_or(0) as i32
        }
        _ => 0,
    }
}

/// A finite decimal below 10^60; what lies below 10^-115 is cut off.
fn fixed(value: Decimal) -> Fixed {
    let Kind::Finite { coefficient, exponent } = value.kind else { return Fixed::ZERO };
    let mut result = Fixed::from_int(coefficient);
    if exponent < -160 {
        return Fixed::ZERO;
    }
    for _ in 0..exponent.clamp(0, 60) {
        result = result.times(10);
    }
    for _ in 0..exponent.min(0).unsigned_abs() {
        result = result.over(10);
    }
    Fixed { negative: value.negative, ..result }
}

/// `value × 10^scale` in 34 digits; what is exact keeps no zeros behind the point.
fn decimal(value: Fixed, mut scale: i32) -> Decimal {
    if value.is_zero() {
        return Decimal::finite(value.negative, 0, 0);
    }
    let mut rest = value.abs();
    while rest.compare(Fixed::from_int(10)).is_ge() {
        rest = rest.over(10);
        scale += 1;
    }
    while rest.compare(one()).is_lt() {
        rest = rest.times(10);
        scale -= 1;
    }
    let mut digits = String::with_capacity(60);
    for _ in 0..50 {
        digits.push(char::from(b'0' + (rest.whole() % 10) as u8));
        rest = rest.fraction().times(10);
    }
    let tail = &digits[34..];
    let exact = tail.bytes().all(|b| b == b'0') || tail.bytes().all(|b| b == b'9');
    let sign = if value.negative { "-" } else { "" };
    let rounded = Decimal::parse(&format!("{sign}{digits}e{}", scale - 49)).unwrap_or(Decimal::NAN);
    if exact { rounded.reduced_towards(0) } else { rounded }
}

fn exp_fixed(value: Fixed) -> Fixed {
    const HALVINGS: i32 = 24;
    let small = value.shifted(-HALVINGS);
    let (mut term, mut sum, mut at) = (one(), one(), 0);
    while !term.is_zero() && at < 60 {
        at += 1;
        term = term.mul(small).over(at);
        sum = sum.add(term);
    }
    for _ in 0..HALVINGS {
        sum = sum.mul(sum);
    }
    sum
}

/// Of a number above zero.
fn ln_fixed(value: Fixed) -> Fixed {
    let power = value.exponent();
    let mantissa = value.shifted(-power);
    let mut guess = Fixed::from_f64(mantissa.to_f64().ln());
    for _ in 0..3 {
        let reached = exp_fixed(guess);
        guess = guess.add(mantissa.sub(reached).times(2).div(mantissa.add(reached)));
    }
    let twos = CONSTANTS.ln2.times(u64::from(power.unsigned_abs()));
    if power < 0 { guess.sub(twos) } else { guess.add(twos) }
}

/// Sine and cosine.
fn circle(value: Fixed) -> (Fixed, Fixed) {
    let quarter = CONSTANTS.pi.over(2);
    // How many quarters, by halving them down: no quotient of two long numbers is needed.
    let mut rest = value.abs();
    let mut turns = 0_u8;
    let mut step = (rest.exponent() - quarter.exponent()).max(-1) + 1;
    while step >= 0 {
        let part = quarter.shifted(step);
        if rest.compare(part).is_ge() {
            rest = rest.sub(part);
            turns = turns.wrapping_add(if step < 8 { 1 << step } else { 0 });
        }
        step -= 1;
    }
    let square = rest.mul(rest);
    let (mut sine, mut cosine) = (rest, one());
    let (mut odd, mut even) = (rest, one());
    let mut at = 0;
    while !(odd.is_zero() && even.is_zero()) && at < 400 {
        even = even.mul(square).over((at + 1) * (at + 2)).neg();
        odd = odd.mul(square).over((at + 2) * (at + 3)).neg();
        sine = sine.add(odd);
        cosine = cosine.add(even);
        at += 2;
    }
    let (sine, cosine) = match turns % 4 {
        0 => (sine, cosine),
        1 => (cosine, sine.neg()),
        2 => (sine.neg(), cosine.neg()),
        _ => (cosine.neg(), sine),
    };
    (if value.negative { sine.neg() } else { sine }, cosine)
}

fn atan_fixed(value: Fixed) -> Fixed {
    if value.abs().compare(one()).is_gt() {
        let rest = CONSTANTS.pi.over(2).sub(atan_fixed(one().div(value.abs())));
        return Fixed { negative: value.negative, ..rest };
    }
    let mut angle = Fixed::from_f64(value.to_f64().atan());
    for _ in 0..3 {
        let (sine, cosine) = circle(angle);
        let step = value.mul(cosine).sub(sine).div(cosine.add(value.mul(sine)));
        angle = angle.add(step);
    }
    angle
}

fn is_tiny(value: Decimal) -> bool {
    value.is_zero() || magnitude(value) < -20
}

/// An odd function that is its argument near zero, and `at_infinity` far out.
fn odd(value: Decimal, at_infinity: Decimal, f: fn(Decimal) -> Decimal) -> Decimal {
    match value.kind {
        Kind::Nan => Decimal::NAN,
        Kind::Infinity => Decimal { negative: value.negative, ..at_infinity },
        Kind::Finite { .. } if is_tiny(value) => value,
        Kind::Finite { .. } => f(value),
    }
}

/// e to the power of the value.
pub fn exp(value: Decimal) -> Decimal {
    match value.kind {
        Kind::Nan => return Decimal::NAN,
        Kind::Infinity if value.negative => return Decimal::ZERO,
        Kind::Infinity => return value,
        Kind::Finite { .. } => {}
    }
    if magnitude(value) >= 5 && !value.is_zero() {
        return if value.negative {
            Decimal::finite(false, 0, super::MIN_EXPONENT)
        } else {
            Decimal::infinity(false)
        };
    }
    let (mantissa, tens) = exp_parts(fixed(value));
    decimal(mantissa, tens)
}

/// `e^value` as a number near one and a power of ten.
fn exp_parts(value: Fixed) -> (Fixed, i32) {
    let tens = (value.to_f64() / std::f64::consts::LN_10).round() as i32;
    let whole = CONSTANTS.ln10.times(u64::from(tens.unsigned_abs()));
    let rest = if tens < 0 { value.add(whole) } else { value.sub(whole) };
    (exp_fixed(rest), tens)
}

/// `None` where the logarithm is no number, or infinite.
fn ln_parts(value: Decimal) -> Option<Fixed> {
    let Kind::Finite { coefficient: 1.., exponent } = value.kind else { return None };
    let Kind::Finite { coefficient, .. } = value.kind else { return None };
    let tens = CONSTANTS.ln10.times(u64::from(exponent.unsigned_abs()));
    let mantissa = ln_fixed(Fixed::from_int(coefficient));
    Some(if exponent < 0 { mantissa.sub(tens) } else { mantissa.add(tens) })
}

fn logarithm(value: Decimal, finish: impl Fn(Fixed) -> Fixed) -> Decimal {
    match value.kind {
        Kind::Nan => Decimal::NAN,
        Kind::Infinity if !value.negative => value,
        _ if value.is_zero() => Decimal::infinity(true),
        _ if value.negative => Decimal::NAN,
        _ => ln_parts(value).map_or(Decimal::NAN, |ln| decimal(finish(ln), 0)),
    }
}

/// The natural logarithm; of a negative number NaN.
pub fn ln(value: Decimal) -> Decimal {
    logarithm(value, |ln| ln)
}

/// The logarithm to base 10; of a negative number NaN.
pub fn log10(value: Decimal) -> Decimal {
    logarithm(value, |ln| ln.div(CONSTANTS.ln10))
}

/// The logarithm to a base above zero and other than one.
pub fn log(value: Decimal, base: Decimal) -> Decimal {
    match ln_parts(base) {
        Some(of_base) => logarithm(value, |ln| ln.div(of_base)),
        None => ln(value).div(ln(base)),
    }
}

/// A positive number to a power that is not whole.
pub fn power(base: Decimal, exponent: Decimal) -> Decimal {
    let (Some(ln), true) = (ln_parts(base), magnitude(exponent) < 40) else {
        return Decimal::from_f64_exact(base.to_f64().powf(exponent.to_f64()));
    };
    let product = ln.mul(fixed(exponent));
    if product.abs().compare(Fixed::from_int(100_000)).is_ge() {
        let least = Decimal::finite(false, 0, super::MIN_EXPONENT);
        return if product.negative { least } else { Decimal::infinity(false) };
    }
    let (mantissa, tens) = exp_parts(product);
    decimal(mantissa, tens)
}

fn angle(value: Decimal, pick: fn(Fixed, Fixed) -> Fixed) -> Decimal {
    let Kind::Finite { .. } = value.kind else { return Decimal::NAN };
    if magnitude(value) > 40 {
        return Decimal::NAN;
    }
    let (sine, cosine) = circle(fixed(value));
    decimal(pick(sine, cosine), 0)
}

/// The sine of an angle in radians; of an infinite one NaN.
pub fn sin(value: Decimal) -> Decimal {
    odd(value, Decimal::NAN, |value| angle(value, |sine, _| sine))
}

/// The cosine of an angle in radians; of an infinite one NaN.
pub fn cos(value: Decimal) -> Decimal {
    angle(value, |_, cosine| cosine)
}

/// The tangent of an angle in radians; of an infinite one NaN.
pub fn tan(value: Decimal) -> Decimal {
    odd(value, Decimal::NAN, |value| angle(value, Fixed::div))
}

fn right_angle() -> Decimal {
    decimal(CONSTANTS.pi.over(2), 0)
}

/// The angle whose tangent the value is, in radians.
pub fn atan(value: Decimal) -> Decimal {
    if magnitude(value) > 50 {
        return Decimal { negative: value.negative, ..right_angle() };
    }
    odd(value, right_angle(), |value| decimal(atan_fixed(fixed(value)), 0))
}

/// The sine's or the cosine's side from the other.
fn other_side(value: Fixed) -> Fixed {
    one().sub(value).mul(one().add(value)).sqrt()
}

/// The angle whose sine the value is, in radians. Of numbers from -1 to 1.
pub fn asin(value: Decimal) -> Decimal {
    odd(value, Decimal::NAN, |value| {
        let sine = fixed(value);
        match sine.abs().compare(one()) {
            Ordering::Greater => Decimal::NAN,
            Ordering::Equal => Decimal { negative: value.negative, ..right_angle() },
            Ordering::Less => decimal(atan_fixed(sine.div(other_side(sine))), 0),
        }
    })
}

/// The angle whose cosine the value is, in radians. Of numbers from -1 to 1.
pub fn acos(value: Decimal) -> Decimal {
    let Kind::Finite { .. } = value.kind else { return Decimal::NAN };
    let cosine = fixed(value);
    match cosine.abs().compare(one()) {
        Ordering::Greater => Decimal::NAN,
        Ordering::Equal if value.negative => decimal(CONSTANTS.pi, 0),
        Ordering::Equal => Decimal::ZERO,
        Ordering::Less if cosine.is_zero() => right_angle(),
        Ordering::Less => {
            let angle = atan_fixed(other_side(cosine).div(cosine.abs()));
            decimal(if value.negative { CONSTANTS.pi.sub(angle) } else { angle }, 0)
        }
    }
}

/// The angle of the point `(x, y)`.
pub fn atan2(y: Decimal, x: Decimal) -> Decimal {
    if y.is_nan() || x.is_nan() {
        return Decimal::NAN;
    }
    let pi = CONSTANTS.pi;
    let signed = |angle: Fixed| decimal(Fixed { negative: y.negative, ..angle }, 0);
    match (y.is_infinite(), x.is_infinite(), x.negative) {
        (true, true, false) => return signed(pi.over(4)),
        (true, true, true) => return signed(pi.times(3).over(4)),
        (true, false, _) => return signed(pi.over(2)),
        (false, true, true) => return signed(pi),
        (false, true, false) => return Decimal::finite(y.negative, 0, 0),
        (false, false, _) => {}
    }
    if y.is_zero() {
        return if x.negative { signed(pi) } else { Decimal::finite(y.negative, 0, 0) };
    }
    if x.is_zero() {
        return signed(pi.over(2));
    }
    let apart = magnitude(y) - magnitude(x);
    if apart < -20 && !x.negative {
        return y.div(x);
    }
    let angle = if apart > 50 {
        pi.over(2)
    } else if apart < -50 {
        Fixed::ZERO
    } else {
        let scale = magnitude(x);
        atan_fixed(fixed(scaled(y.abs(), scale)).div(fixed(scaled(x.abs(), scale))))
    };
    signed(if x.negative { pi.sub(angle) } else { angle })
}

/// `value / 10^by`
fn scaled(value: Decimal, by: i32) -> Decimal {
    match value.kind {
        Kind::Finite { coefficient, exponent } => {
            Decimal::finite(value.negative, coefficient, exponent - by)
        }
        _ => value,
    }
}

/// `(e^x ± e^-x) / 2`
fn hyperbolic(value: Decimal, add: bool) -> Decimal {
    if magnitude(value) >= 5 {
        return Decimal { negative: value.negative && !add, ..Decimal::infinity(false) };
    }
    let x = fixed(value);
    let (rising, tens) = exp_parts(x.abs());
    let half = rising.over(2);
    let whole = if tens > 50 {
        half
    } else {
        let mut falling = one().div(rising).over(2);
        for _ in 0..2 * tens {
            falling = falling.over(10);
        }
        if add { half.add(falling) } else { half.sub(falling) }
    };
    decimal(Fixed { negative: x.negative && !add, ..whole }, tens)
}

/// The hyperbolic sine.
pub fn sinh(value: Decimal) -> Decimal {
    odd(value, Decimal::infinity(false), |value| hyperbolic(value, false))
}

/// The hyperbolic cosine.
pub fn cosh(value: Decimal) -> Decimal {
    match value.kind {
        Kind::Nan => Decimal::NAN,
        Kind::Infinity => Decimal::infinity(false),
        Kind::Finite { .. } => hyperbolic(value, true),
    }
}

/// The hyperbolic tangent.
pub fn tanh(value: Decimal) -> Decimal {
    odd(value, Decimal::from_i64(1), |value| {
        let x = fixed(value).abs();
        if magnitude(value) >= 3 {
            return Decimal { negative: value.negative, ..Decimal::from_i64(1) };
        }
        let twice = exp_fixed_wide(x.times(2).neg());
        let result = one().sub(twice).div(one().add(twice));
        decimal(Fixed { negative: value.negative, ..result }, 0)
    })
}

/// `e^value` of a number that is not above zero, as a whole number.
fn exp_fixed_wide(value: Fixed) -> Fixed {
    let (mut result, tens) = exp_parts(value);
    for _ in 0..tens.min(0).unsigned_abs().min(200) {
        result = result.over(10);
    }
    result
}

/// The inverse of the hyperbolic sine.
pub fn asinh(value: Decimal) -> Decimal {
    odd(value, Decimal::infinity(false), |value| {
        let result = if magnitude(value) > 40 {
            ln_parts(value.abs()).map(|ln| ln.add(CONSTANTS.ln2))
        } else {
            let x = fixed(value).abs();
            Some(ln_fixed(x.add(x.mul(x).add(one()).sqrt())))
        };
        let result = result.unwrap_or(Fixed::ZERO);
        decimal(Fixed { negative: value.negative, ..result }, 0)
    })
}

/// The inverse of the hyperbolic cosine. Of numbers from 1 on.
pub fn acosh(value: Decimal) -> Decimal {
    let Kind::Finite { .. } = value.kind else {
        return if value.negative { Decimal::NAN } else { value };
    };
    if magnitude(value) > 40 {
        let ln = ln_parts(value).unwrap_or(Fixed::ZERO);
        return decimal(ln.add(CONSTANTS.ln2), 0);
    }
    let x = fixed(value);
    if x.compare(one()).is_lt() {
        return Decimal::NAN;
    }
    decimal(ln_fixed(x.add(x.sub(one()).mul(x.add(one())).sqrt())), 0)
}

/// The inverse of the hyperbolic tangent. Of numbers from -1 to 1.
pub fn atanh(value: Decimal) -> Decimal {
    odd(value, Decimal::NAN, |value| {
        let x = fixed(value).abs();
        match x.compare(one()) {
            Ordering::Greater => Decimal::NAN,
            Ordering::Equal => Decimal::infinity(value.negative),
            Ordering::Less => {
                let result = ln_fixed(one().add(x).div(one().sub(x))).over(2);
                decimal(Fixed { negative: value.negative, ..result }, 0)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: Decimal, expected: &str) {
        assert_eq!(found.to_bson().to_string(), expected);
    }

    fn d(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn exponentials_and_logarithms_have_all_digits() {
        check(exp(d("1")), "2.718281828459045235360287471352662");
        check(exp(d("0")), "1");
        check(exp(d("-1")), "0.3678794411714423215955237701614609");
        check(exp(d("100")), "2.688117141816135448412625551580014E+43");
        check(ln(d("10")), "2.302585092994045684017991454684364");
        check(ln(d("1")), "0");
        check(ln(d("2")), "0.6931471805599453094172321214581766");
        check(ln(d("1E-6000")), "-13815.51055796427410410794872810619");
        check(log10(d("1000")), "3");
        check(log10(d("2")), "0.3010299956639811952137388947244930");
        check(log(d("8"), d("2")), "3");
        check(power(d("2"), d("0.5")), "1.414213562373095048801688724209698");
        check(power(d("4"), d("0.5")), "2");
        check(exp(d("Infinity")), "Infinity");
        check(exp(d("1E10")), "Infinity");
    }

    #[test]
    fn angles_have_all_digits() {
        check(sin(d("1")), "0.8414709848078965066525023216302990");
        check(cos(d("1")), "0.5403023058681397174009366074429766");
        check(tan(d("1")), "1.557407724654902230506974807458360");
        check(sin(d("-1")), "-0.8414709848078965066525023216302990");
        check(sin(d("1E22")), "-0.8522008497671888017727058937530294");
        check(cos(d("0")), "1");
        check(sin(d("0")), "0");
        check(asin(d("1")), "1.570796326794896619231321691639751");
        check(acos(d("-1")), "3.141592653589793238462643383279503");
        check(acos(d("1")), "0");
        check(asin(d("0.5")), "0.5235987755982988730771072305465838");
        check(acos(d("0.5")), "1.047197551196597746154214461093168");
        check(atan(d("1")), "0.7853981633974483096156608458198757");
        check(atan(d("-Infinity")), "-1.570796326794896619231321691639751");
        check(atan2(d("1"), d("-1")), "2.356194490192344928846982537459627");
        check(atan2(d("4"), d("3")), "0.9272952180016122324285124629224288");
    }

    #[test]
    fn hyperbolic_functions_have_all_digits() {
        check(sinh(d("1")), "1.175201193643801456882381850595601");
        check(cosh(d("1")), "1.543080634815243778477905620757062");
        check(tanh(d("1")), "0.7615941559557648881194582826047936");
        check(asinh(d("1")), "0.8813735870195430252326093249797923");
        check(acosh(d("2")), "1.316957896924816708625046347307968");
        check(acosh(d("1")), "0");
        check(atanh(d("0.5")), "0.5493061443340548456976226184612629");
        check(atanh(d("1")), "Infinity");
        check(cosh(d("0")), "1");
        check(sinh(d("-Infinity")), "-Infinity");
    }
}
