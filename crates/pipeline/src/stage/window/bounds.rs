//! The bounds of a window and how they move over a partition.

use super::functions::Scene;
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument};
use bsonval::SortPattern;
use bsonval::number::Number;
use errors::{Error, Result};
use expr::agg::{Unit, add_units, value_to_string};
use keystring::Direction;
use std::cmp::Ordering;

/// One end of a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound<T> {
    Unbounded,
    /// Relative to the current document.
    At(T),
}

/// A parsed `window`.
#[derive(Clone, Debug)]
pub(super) enum Bounds {
    /// Positions, both ends inside.
    Documents(Bound<i64>, Bound<i64>),
    /// Values of the sort field, both ends inside; with a unit they are dates.
    Range(Bound<Number>, Bound<Number>, Option<Unit>),
}

impl Bounds {
    /// The whole partition.
    pub(super) const WHOLE: Self = Self::Documents(Bound::Unbounded, Bound::Unbounded);

    pub(super) fn parse(
        window: Option<RawBsonRef<'_>>,
        sort_by: Option<&SortPattern>,
    ) -> Result<Self> {
        let Some(window) = window else { return Ok(Self::WHOLE) };
        let RawBsonRef::Document(window) = window else {
            return Err(Error::failed_to_parse("'window' field must be an object"));
        };
        let bounds = Self::read(window)?;
        bounds.check(sort_by)?;
        Ok(bounds)
    }

    fn read(window: &RawDocument) -> Result<Self> {
        let (mut documents, mut range, mut unit) = (None, None, None);
        for field in window {
            let (name, value) = field?;
            match name.as_str() {
                "documents" => documents = Some(value),
                "range" => range = Some(value),
                "unit" => unit = Some(value),
                _ => {
                    return Err(Error::failed_to_parse(
                        "'window' field can only contain 'documents' as the only argument or \
                         'range' with an optional 'unit' field",
                    ));
                }
            }
        }
        match (documents, range, unit) {
            (None, None, None) => Ok(Self::WHOLE),
            (Some(_), Some(_), _) => Err(Error::failed_to_parse(
                "Window bounds can specify either 'documents' or 'range', not both.",
            )),
            (_, None, Some(_)) => Err(Error::failed_to_parse(
                "Window bounds can only specify 'unit' with range-based bounds.",
            )),
            (Some(documents), None, None) => {
                let (low, high) = two(documents, "documents")?;
                let whole = |number: Number| {
                    number.to_exact_i64().ok_or_else(|| {
                        Error::failed_to_parse("Numeric document-based bounds must be an integer")
                    })
                };
                let bounds = Self::Documents(bound(low, whole)?, bound(high, whole)?);
                if let Self::Documents(Bound::At(low), Bound::At(high)) = &bounds
                    && low > high
                {
                    return Err(backwards(low, high));
                }
                Ok(bounds)
            }
            (None, Some(range), unit) => Self::read_range(range, unit),
        }
    }

    fn read_range(range: RawBsonRef<'_>, unit: Option<RawBsonRef<'_>>) -> Result<Self> {
        let (low, high) = two(range, "range")?;
        let unit = unit.map(read_unit).transpose()?;
        let number = |number: Number| match (unit, number.to_exact_i64()) {
            (Some(_), None) => {
                Err(Error::failed_to_parse("With 'unit', range-based bounds must be an integer"))
            }
            (Some(_), Some(whole)) => Ok(Number::Long(whole)),
            (None, _) => Ok(number),
        };
        let (low, high) = (bound(low, number)?, bound(high, number)?);
        if let (Bound::At(low), Bound::At(high)) = (low, high) {
            let (low, high) = (low.to_bson(), high.to_bson());
            if keystring::compare(low.as_raw_bson_ref(), high.as_raw_bson_ref()).is_gt() {
                let text = |value: &RawBson| value_to_string(value.as_raw_bson_ref());
                return Err(backwards(&text(&low), &text(&high)));
            }
        }
        Ok(Self::Range(low, high, unit))
    }

    fn check(&self, sort_by: Option<&SortPattern>) -> Result<()> {
        match self {
            Self::Documents(Bound::Unbounded, Bound::Unbounded) => Ok(()),
            Self::Documents(..) if sort_by.is_none() => {
                Err(Error::location(5339901, "Document-based bounds require a sortBy"))
            }
            Self::Documents(..) => Ok(()),
            Self::Range(..) => match sort_by.map(SortPattern::directions) {
                Some([Direction::Ascending]) => Ok(()),
                Some([_]) => {
                    Err(Error::location(8947401, "Range-based bounds require an ascending sortBy"))
                }
                _ => Err(Error::location(
                    5339902,
                    "Range-based bounds require sortBy a single field",
                )),
            },
        }
    }

    /// Whether documents go out of the window again.
    pub(super) fn slides(&self) -> bool {
        !matches!(self, Self::Documents(Bound::Unbounded, _) | Self::Range(Bound::Unbounded, ..))
    }
}

pub(super) fn read_unit(unit: RawBsonRef<'_>) -> Result<Unit> {
    let RawBsonRef::String(name) = unit else {
        return Err(Error::failed_to_parse("'unit' must be a string"));
    };
    Unit::parse(name)
        .ok_or_else(|| Error::failed_to_parse(format!("unknown time unit value: {name}")))
}

fn backwards(low: &dyn std::fmt::Display, high: &dyn std::fmt::Display) -> Error {
    Error::location(5339900, format!("Lower bound must not exceed upper bound: [{low}, {high}]"))
}

fn two<'a>(value: RawBsonRef<'a>, name: &str) -> Result<(RawBsonRef<'a>, RawBsonRef<'a>)> {
    let refuse = || {
        Error::failed_to_parse(format!(
            "Window bounds must be a 2-element array: {}",
            bsonval::show::field(name, value)
        ))
    };
    let array: &RawArray = value.as_array().ok_or_else(refuse)?;
    let mut elements = array.into_iter();
    match (elements.next().transpose()?, elements.next().transpose()?, elements.next()) {
        (Some(low), Some(high), None) => Ok((low, high)),
        _ => Err(refuse()),
    }
}

fn bound<T: From<Zero>>(
    value: RawBsonRef<'_>,
    number: impl Fn(Number) -> Result<T>,
) -> Result<Bound<T>> {
    match value {
        RawBsonRef::String("unbounded") => Ok(Bound::Unbounded),
        RawBsonRef::String("current") => Ok(Bound::At(Zero.into())),
        value => match Number::from_bson(value) {
            Some(found) => number(found).map(Bound::At),
            None => Err(Error::failed_to_parse(
                "Window bounds must be 'unbounded', 'current', or a number.",
            )),
        },
    }
}

/// No distance.
struct Zero;

impl From<Zero> for i64 {
    fn from(_: Zero) -> Self {
        0
    }
}

impl From<Zero> for Number {
    fn from(_: Zero) -> Self {
        Self::Int(0)
    }
}

/// Where a window stands: positions `from..to`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowRange {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl WindowRange {
    /// Where the window of the document at `at` stands; never before where this one does.
    pub(super) fn range_for(
        self,
        bounds: &Bounds,
        at: usize,
        scene: &mut Scene<'_>,
    ) -> Result<Self> {
        let len = scene.partition.len();
        match bounds {
            Bounds::Documents(low, high) => {
                let place = |offset: i64| {
                    let at = i64::try_from(at).unwrap_or(i64::MAX);
                    usize::try_from(at.saturating_add(offset)).unwrap_or(0).min(len)
                };
                let from = match low {
                    Bound::Unbounded => 0,
                    Bound::At(offset) => place(*offset),
                };
                let to = match high {
                    Bound::Unbounded => len,
                    Bound::At(offset) => place(offset.saturating_add(1)),
                };
                Ok(Self { from, to: to.max(from) })
            }
            Bounds::Range(low, high, unit) => {
                let current = sort_value(at, *unit, scene)?;
                let mut next = self;
                match low {
                    Bound::Unbounded => next.from = 0,
                    Bound::At(offset) => {
                        let least = moved(&current, *offset, *unit)?;
                        next.from = scan(next.from, &least, *unit, scene, Ordering::is_lt)?;
                    }
                }
                match high {
                    Bound::Unbounded => next.to = len,
                    Bound::At(offset) => {
                        let most = moved(&current, *offset, *unit)?;
                        next.to = scan(next.to, &most, *unit, scene, Ordering::is_le)?;
                    }
                }
                next.to = next.to.max(next.from);
                Ok(next)
            }
        }
    }
}

/// The first position from `at` on whose value does not stand so to the limit.
fn scan(
    mut at: usize,
    limit: &RawBson,
    unit: Option<Unit>,
    scene: &mut Scene<'_>,
    passes: impl Fn(Ordering) -> bool,
) -> Result<usize> {
    while at < scene.partition.len() {
        let value = sort_value(at, unit, scene)?;
        if !passes(keystring::compare(value.as_raw_bson_ref(), limit.as_raw_bson_ref())) {
            break;
        }
        at += 1;
    }
    Ok(at)
}

/// The value a document is sorted by: a date with a unit, else a number.
fn sort_value(at: usize, unit: Option<Unit>, scene: &mut Scene<'_>) -> Result<RawBson> {
    let value = scene.sort_value(at)?.unwrap_or(RawBson::Undefined);
    let fits = match unit {
        Some(_) => matches!(value, RawBson::DateTime(_)),
        None => Number::from_bson(value.as_raw_bson_ref()).is_some(),
    };
    if fits {
        return Ok(value);
    }
    let found = match value.as_raw_bson_ref() {
        RawBsonRef::Undefined => "missing",
        value => bsonval::types::name_of(value),
    };
    let (code, wanted) = if unit.is_some() { (5429513, "Date") } else { (5429413, "number") };
    Err(Error::location(
        code,
        format!("Invalid range: Expected the sortBy field to be a {wanted}, but it was {found}"),
    ))
}

fn moved(value: &RawBson, offset: Number, unit: Option<Unit>) -> Result<RawBson> {
    if let (RawBson::DateTime(date), Some(unit)) = (value, unit) {
        let amount = offset.to_exact_i64().unwrap_or(0);
        let millis = add_units(date.timestamp_millis(), unit, amount)?;
        return Ok(RawBson::DateTime(bson::DateTime::from_millis(millis)));
    }
    let number = Number::from_bson(value.as_raw_bson_ref()).unwrap_or(Number::Int(0));
    Ok(number.add(offset).to_bson())
}
