//! What is special about the specifications of `2dsphere` and `2d` indexes.

use super::{IndexSpec, KeyPart, PartKind, cannot};
use crate::values::whole_number;
use bson::raw::{RawBsonRef, cstr};
use bsonval::show::value as value_text;
use errors::{Code, Error, Result};

/// The version of a `2dsphere` index that names none. All versions hold the same here.
const SPHERE_VERSION: i32 = 3;

/// Which parts may stand beside each other.
pub(super) fn check_parts(parts: &[KeyPart]) -> Result<()> {
    let has = |kind: PartKind| parts.iter().any(|part| part.kind == kind);
    let special = [PartKind::Hashed, PartKind::Sphere, PartKind::Flat];
    if special.into_iter().filter(|kind| has(*kind)).count() > 1 {
        return Err(cannot("Can't use more than one index plugin for a single index."));
    }
    let flat = parts.iter().filter(|part| part.kind == PartKind::Flat).count();
    if flat > 1 {
        return Err(Error::location(16800, "can't have 2 geo fields"));
    }
    if flat == 1 && parts[0].kind != PartKind::Flat {
        return Err(Error::location(16801, "2d has to be first in index"));
    }
    Ok(())
}

fn number(name: &str, value: RawBsonRef<'_>) -> Result<f64> {
    match value {
        RawBsonRef::Double(value) => Ok(value),
        RawBsonRef::Int32(value) => Ok(f64::from(value)),
        RawBsonRef::Int64(value) => Ok(value as f64),
        other => Err(Error::type_mismatch(format!(
            "The field '{name}' must be a number, but got {}",
            value_text(other)
        ))),
    }
}

impl IndexSpec {
    pub(super) fn take_geo_option(&mut self, name: &str, value: RawBsonRef<'_>) -> Result<()> {
        let number = number(name, value)?;
        match name {
            "min" => self.grid.min = number,
            "max" => self.grid.max = number,
            "bits" => self.grid.bits = number.clamp(0.0, 1e6) as u32,
            _ => {
                if !matches!(whole_number(value), Some(1..=3)) {
                    return Err(cannot(&format!(
                        "unsupported geo index version {{ 2dsphereIndexVersion : {} }}, only \
                         support versions: [1,2,3]",
                        value_text(value)
                    )));
                }
            }
        }
        Ok(())
    }

    /// The grid must have an area, and as many squares as fit into a number.
    pub(super) fn check_grid(&self) -> Result<()> {
        let ::geo::Grid { bits, min, max } = self.grid;
        if !(1..=32).contains(&bits) {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                format!("bits for hash must be > 0 and <= 32, but {bits} bits were specified"),
            ));
        }
        if !(min.is_finite() && max.is_finite() && min < max && (max - min).is_finite()) {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                format!(
                    "region for hash must be valid and have positive area, but [{min}, {max}] was \
                     specified"
                ),
            ));
        }
        Ok(())
    }

    /// A `2dsphere` index shows its version, given or not.
    pub(super) fn show_sphere_version(&mut self) -> Result<()> {
        if self.parts.iter().any(|part| part.kind == PartKind::Sphere)
            && self.shown.get("2dsphereIndexVersion")?.is_none()
        {
            self.shown.append(cstr!("2dsphereIndexVersion"), SPHERE_VERSION);
        }
        Ok(())
    }

    /// Whether one of its parts is made of geometry.
    pub fn is_geo(&self) -> bool {
        self.parts.iter().any(|part| part.kind.is_geo())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, RawDocumentBuf, doc};

    fn parse(spec: &Document) -> Result<IndexSpec> {
        let mut spec = spec.clone();
        spec.insert("name", "x");
        IndexSpec::parse(&RawDocumentBuf::try_from(&spec).unwrap())
    }

    fn refused(spec: &Document, code: i32, text: &str) {
        let error = parse(spec).expect_err(&format!("{spec} should be refused"));
        assert_eq!(error.code().0, code, "{spec}: {error}");
        assert!(error.message().contains(text), "{spec}: {error}");
    }

    #[test]
    fn geo_indexes_are_shown_with_their_options() {
        let shown = |spec: Document| Document::try_from(&*parse(&spec).unwrap().shown).unwrap();
        assert_eq!(
            shown(doc! {"key": {"a": 1, "p": "2dsphere", "q": "2dsphere"}}),
            doc! {
                "v": 2, "key": {"a": 1, "p": "2dsphere", "q": "2dsphere"}, "name": "x",
                "2dsphereIndexVersion": 3
            }
        );
        let spec = doc! {"key": {"p": "2dsphere"}, "2dsphereIndexVersion": 2};
        assert_eq!(shown(spec).get("2dsphereIndexVersion"), Some(&bson::Bson::Int32(2)));
        let flat = doc! {"key": {"p": "2d", "a": 1}, "bits": 20, "min": -1.5, "max": 10};
        assert_eq!(parse(&flat).unwrap().grid, ::geo::Grid { bits: 20, min: -1.5, max: 10.0 });
        assert_eq!(shown(flat).get("bits"), Some(&bson::Bson::Int32(20)));
    }

    #[test]
    fn impossible_geo_indexes_are_refused() {
        refused(&doc! {"key": {"a": 1, "p": "2d"}}, 16801, "2d has to be first in index");
        refused(&doc! {"key": {"q": "2d", "p": "2d"}}, 16800, "can't have 2 geo fields");
        refused(&doc! {"key": {"q": "2d", "p": "2dsphere"}}, 67, "more than one index plugin");
        refused(&doc! {"key": {"q": "hashed", "p": "2dsphere"}}, 67, "more than one index plugin");
        refused(&doc! {"key": {"p": "2d"}, "bits": 33}, 72, "but 33 bits were specified");
        refused(&doc! {"key": {"p": "2d"}, "bits": 0}, 72, "bits for hash must be > 0");
        refused(&doc! {"key": {"p": "2d"}, "min": 5, "max": 5}, 72, "positive area");
        refused(&doc! {"key": {"p": "2d"}, "bits": "x"}, 14, "must be a number");
        let version = doc! {"key": {"p": "2dsphere"}, "2dsphereIndexVersion": 4};
        refused(&version, 67, "unsupported geo index version { 2dsphereIndexVersion : 4 }");
    }
}
