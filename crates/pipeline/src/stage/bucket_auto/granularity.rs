//! Preferred numbers: the series `$bucketAuto` can round its boundaries to.
//!
//! A series is a list of mantissas that repeats in every power of ten (or the powers of two).

use bson::raw::RawBsonRef;
use bsonval::number::Number;
use errors::{Error, Result};

/// A series.
#[derive(Clone, Debug)]
pub(super) enum Granularity {
    /// Mantissas from 1 up to 10, ascending.
    Decades(Vec<f64>),
    PowersOfTwo,
}

const R80: [u16; 80] = [
    100, 103, 106, 109, 112, 115, 118, 122, 125, 128, 132, 136, 140, 145, 150, 155, 160, 165, 170,
    175, 180, 185, 190, 195, 200, 206, 212, 218, 224, 230, 236, 243, 250, 258, 265, 272, 280, 290,
    300, 307, 315, 325, 335, 345, 355, 365, 375, 387, 400, 412, 425, 437, 450, 462, 475, 487, 500,
    515, 530, 545, 560, 580, 600, 615, 630, 650, 670, 690, 710, 730, 750, 775, 800, 825, 850, 875,
    900, 925, 950, 975,
];

const E24: [u16; 24] = [
    100, 110, 120, 130, 150, 160, 180, 200, 220, 240, 270, 300, 330, 360, 390, 430, 470, 510, 560,
    620, 680, 750, 820, 910,
];

/// Every so manieth of a list.
fn every(step: usize, list: &[u16]) -> Vec<f64> {
    list.iter().step_by(step).map(|n| f64::from(*n) / 100.0).collect()
}

/// The finer E series: equal steps on the logarithmic scale, at three digits.
fn logarithmic(count: u32) -> Vec<f64> {
    let place = |at: u32| {
        let hundredfold = (100.0 * 10_f64.powf(f64::from(at) / f64::from(count))).round() as u32;
        // The standard has 9.20 where the formula gives 9.19.
        f64::from(if hundredfold == 919 { 920 } else { hundredfold }) / 100.0
    };
    (0..count).map(place).collect()
}

impl Granularity {
    pub(super) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::String(name) = value else {
            return Err(Error::location(
                40261,
                format!(
                    "The $bucketAuto 'granularity' field must be a string, but found type: {}.",
                    bsonval::types::name_of(value)
                ),
            ));
        };
        Ok(Self::Decades(match name {
            "R5" => vec![1.0, 1.6, 2.5, 4.0, 6.3],
            "R10" => every(8, &R80),
            "R20" => every(4, &R80),
            "R40" => every(2, &R80),
            "R80" => every(1, &R80),
            "1-2-5" => vec![1.0, 2.0, 5.0],
            "E6" => every(4, &E24),
            "E12" => every(2, &E24),
            "E24" => every(1, &E24),
            "E48" => logarithmic(48),
            "E96" => logarithmic(96),
            "E192" => logarithmic(192),
            "POWERSOF2" => return Ok(Self::PowersOfTwo),
            _ => {
                return Err(Error::location(
                    40257,
                    format!("Unknown rounding granularity '{name}'"),
                ));
            }
        }))
    }

    /// The least member of the series above a number; zero stays.
    pub(super) fn above(&self, value: f64) -> f64 {
        if value == 0.0 || value.is_infinite() {
            return value;
        }
        match self {
            Self::PowersOfTwo => {
                let mut power = value.log2().floor().exp2();
                while power <= value {
                    power *= 2.0;
                }
                power
            }
            Self::Decades(series) => {
                let mut exponent = value.log10().floor() as i32 - 1;
                loop {
                    let found = series.iter().map(|m| scaled(*m, exponent)).find(|n| *n > value);
                    if let Some(found) = found {
                        return found;
                    }
                    exponent += 1;
                }
            }
        }
    }

    /// The greatest member of the series below a number; zero stays.
    pub(super) fn below(&self, value: f64) -> f64 {
        if value == 0.0 || value.is_infinite() {
            return value;
        }
        match self {
            Self::PowersOfTwo => {
                let mut power = value.log2().ceil().exp2();
                while power >= value {
                    power /= 2.0;
                }
                power
            }
            Self::Decades(series) => {
                let mut exponent = value.log10().floor() as i32 + 1;
                loop {
                    let found =
                        series.iter().rev().map(|m| scaled(*m, exponent)).find(|n| *n < value);
                    if let Some(found) = found {
                        return found;
                    }
                    if exponent < -400 {
                        return 0.0;
                    }
                    exponent -= 1;
                }
            }
        }
    }
}

/// A mantissa in a decade, by the way that rounds least: whole numbers stay whole.
fn scaled(mantissa: f64, exponent: i32) -> f64 {
    let hundredfold = (mantissa * 100.0).round();
    let exponent = exponent - 2;
    if exponent >= 0 {
        hundredfold * 10_f64.powi(exponent)
    } else if exponent > -300 {
        hundredfold / 10_f64.powi(-exponent)
    } else {
        hundredfold * 1e-300 * 10_f64.powi(exponent + 300)
    }
}

/// A value as the number it must be.
pub(super) fn number(value: RawBsonRef<'_>) -> Result<f64> {
    let number = Number::from_bson(value).ok_or_else(|| {
        Error::location(
            40258,
            format!(
                "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found \
                 a value with type: {}",
                bsonval::types::name_of(value)
            ),
        )
    })?;
    let number = number.to_f64();
    if number.is_nan() {
        return Err(Error::location(
            40259,
            "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN",
        ));
    }
    if number < 0.0 {
        return Err(Error::location(
            40260,
            "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a \
             negative number",
        ));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str) -> Granularity {
        Granularity::parse(RawBsonRef::String(name)).unwrap()
    }

    #[test]
    fn numbers_round_to_their_neighbours_in_the_series() {
        let check = |name: &str, value: f64, below: f64, above: f64| {
            let series = series(name);
            assert_eq!(
                (series.below(value), series.above(value)),
                (below, above),
                "{name} {value}"
            );
        };
        check("R5", 16.0, 10.0, 25.0);
        check("R5", 17.0, 16.0, 25.0);
        check("R5", 0.99, 0.63, 1.0);
        check("R10", 1.0, 0.8, 1.25);
        check("1-2-5", 7.0, 5.0, 10.0);
        check("1-2-5", 10.0, 5.0, 20.0);
        check("E6", 100.0, 68.0, 150.0);
        check("E96", 953.0, 931.0, 976.0);
        check("E192", 919.0, 909.0, 920.0);
        check("POWERSOF2", 8.0, 4.0, 16.0);
        check("POWERSOF2", 0.75, 0.5, 1.0);
        check("E24", 0.0, 0.0, 0.0);
    }

    #[test]
    fn what_is_no_series_or_no_number_is_refused() {
        assert_eq!(Granularity::parse(RawBsonRef::String("E7")).unwrap_err().code().0, 40257);
        assert_eq!(Granularity::parse(RawBsonRef::Int32(7)).unwrap_err().code().0, 40261);
        assert_eq!(number(RawBsonRef::String("x")).unwrap_err().code().0, 40258);
        assert_eq!(number(RawBsonRef::Double(f64::NAN)).unwrap_err().code().0, 40259);
        assert_eq!(number(RawBsonRef::Int32(-1)).unwrap_err().code().0, 40260);
    }
}
