//! Our decimals against decNumber's, its author's own arithmetic, on random numbers.
//!
//! `FERN_DECIMAL_CASES` says how many; 20,000 take a second or two, and a million were run when
//! this was written.

use super::*;
use dec::Context;

type Theirs = dec::Decimal128;

/// `SplitMix64`: the same numbers from the same seed everywhere.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    fn between(&mut self, low: i32, high: i32) -> i32 {
        low + self.below((high - low + 1) as u64) as i32
    }

    /// Of any length, often with runs of nines and zeros and a five at the end: where rounding
    /// carries, and where it ties.
    fn coefficient(&mut self) -> u128 {
        let length = self.below(u64::from(DIGITS) + 1);
        let run = [0, 9, 5, 1][self.below(4) as usize];
        let style = self.below(3);
        let digit = |random: &mut Self, at| match style {
            0 => random.below(10),
            1 if random.below(4) == 0 => random.below(10),
            _ if at + 1 == length => 5,
            _ => run,
        };
        (0..length).fold(0, |sum, at| sum * 10 + u128::from(digit(self, at)))
    }

    fn exponent(&mut self) -> i32 {
        match self.below(8) {
            0 => self.between(MIN_EXPONENT, MIN_EXPONENT + 80),
            1 => self.between(MAX_EXPONENT - 80, MAX_EXPONENT),
            2 => self.between(MIN_EXPONENT, MAX_EXPONENT),
            3 => self.between(-3200, -3000),
            4 => self.between(-100, 100),
            _ => self.between(-36, 4),
        }
    }

    fn number(&mut self) -> Decimal {
        let negative = self.below(2) == 1;
        match self.below(64) {
            0 => Decimal::infinity(negative),
            1 => Decimal::NAN,
            _ => Decimal::finite(negative, self.coefficient(), self.exponent()),
        }
    }
}

fn text(number: Decimal) -> String {
    let sign = if number.negative { "-" } else { "" };
    match number.kind {
        Kind::Nan => "NaN".to_owned(),
        Kind::Infinity => format!("{sign}Infinity"),
        Kind::Finite { coefficient, exponent } => format!("{sign}{coefficient}E{exponent}"),
    }
}

fn theirs(number: Decimal) -> Theirs {
    Context::<Theirs>::default().parse(text(number)).expect("decNumber reads its own form")
}

fn ours(number: Theirs) -> Decimal {
    if number.is_nan() {
        return Decimal::NAN;
    }
    if number.is_infinite() {
        return Decimal::infinity(number.is_signed());
    }
    let digits = number.coefficient_digits();
    let coefficient = digits.iter().fold(0, |sum, digit| sum * 10 + u128::from(*digit));
    Decimal::finite(number.is_signed(), coefficient, number.exponent())
}

/// What differs for one pair of numbers.
fn differences(random: &mut Random) -> Vec<String> {
    let (a, b) = (random.number(), random.number());
    let (ta, tb) = (theirs(a), theirs(b));
    let mut found = Vec::new();
    let mut compare = |what: String, mine: Decimal, other: Decimal| {
        if mine != other && !(mine.is_nan() && other.is_nan()) {
            let (a, b, mine, other) = (text(a), text(b), text(mine), text(other));
            found.push(format!("{what} of {a} and {b}: {mine}, decNumber has {other}"));
        }
    };
    let mut context = Context::<Theirs>::default();
    compare("itself".to_owned(), a, ours(ta));
    compare("sum".to_owned(), a.add(b), ours(context.add(ta, tb)));
    compare("difference".to_owned(), a.sub(b), ours(context.sub(ta, tb)));
    compare("product".to_owned(), a.mul(b), ours(context.mul(ta, tb)));
    compare("quotient".to_owned(), a.div(b), ours(context.div(ta, tb)));
    context.clear_status();
    let rest = context.rem(ta, tb);
    // decNumber gives up where the whole quotient is longer than 34 digits; MongoDB does not.
    if !context.status().division_impossible() {
        compare("remainder".to_owned(), a.rem(b), ours(rest));
    }
    let places = random.between(-40, 40);
    for (own, their) in [
        (Rounding::HalfEven, dec::Rounding::HalfEven),
        (Rounding::Truncate, dec::Rounding::Down),
        (Rounding::Floor, dec::Rounding::Floor),
        (Rounding::Ceiling, dec::Rounding::Ceiling),
    ] {
        context.set_rounding(their);
        let unit = theirs(Decimal::finite(false, 1, -places));
        // An infinity is rounded to itself there, and to none of our numbers of so many places.
        if !a.is_infinite() {
            let quantized = context.quantize(ta, unit);
            let what = format!("{own:?} to {places} places");
            compare(what, a.quantized(places, own), ours(quantized));
        }
    }
    context.set_rounding(dec::Rounding::HalfEven);
    let digits: String =
        (0..random.below(60)).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
    let tail = ["", "5", "50", "500000000000000000000000001"][random.below(4) as usize];
    let long = format!("{}.{digits}{tail}E{}", random.below(100), random.exponent());
    let parsed = context.parse(long.as_str()).expect("a number");
    let read = Decimal::parse(&long).expect("a number");
    compare(format!("reading of {long}"), read, ours(parsed));
    compare("square root".to_owned(), a.sqrt(), root(a));
    if let Some(order) = context.partial_cmp(ta, tb) {
        let own = match a.sub(b) {
            // Equal infinities have no difference.
            difference if difference.is_nan() => Ordering::Equal,
            difference if difference.is_zero() => Ordering::Equal,
            difference if difference.is_negative() => Ordering::Less,
            _ => Ordering::Greater,
        };
        if order != own && !(a.is_infinite() || b.is_infinite()) {
            found.push(format!("order of {} and {}: {own:?}, {order:?}", text(a), text(b)));
        }
    }
    found
}

/// decNumber's root of 34 digits: its fixed form has none, so the longer one is told the range.
fn root(number: Decimal) -> Decimal {
    let mut context = Context::<dec::Decimal<12>>::default();
    context.set_precision(DIGITS as usize).expect("12 units are 36 digits");
    context.set_max_exponent(6144).expect("in range");
    context.set_min_exponent(-6143).expect("in range");
    context.set_clamp(true);
    let mut value = context.parse(text(number)).expect("a number");
    context.sqrt(&mut value);
    ours(value.to_decimal128())
}

#[test]
fn arithmetic_is_that_of_decnumber() {
    let cases = std::env::var("FERN_DECIMAL_CASES").ok().map(|cases| cases.parse().unwrap());
    let mut random = Random(21);
    let mut found: Vec<String> = Vec::new();
    for _ in 0..cases.unwrap_or(20_000) {
        found.extend(differences(&mut random));
    }
    let some = found.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(found.is_empty(), "{} differences, among them:\n{some}", found.len());
}
