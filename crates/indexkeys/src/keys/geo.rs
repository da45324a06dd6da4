//! Keys of `2dsphere` and `2d` indexes.
//!
//! A part of geometry holds numbers of cells in the place of values: the smallest cell of a point, up
//! to some twenty that cover any other shape. The parts are multiplied out: an entry for each cell
//! with each value of the other parts.
//!
//! Always true:
//! 1. A document without geometry in any of the geometric parts has no entries.
//! 2. While a geometric part is not marked as multikey, every document has at most one point there
//!    and the part holds smallest cells only.

use super::{DocumentKeys, Found, KeyMaker, PartValue, PartValues, RecordKey, walk};
use crate::{IndexSpec, PartKind};
use ::geo::parse::number;
use ::geo::{Geometry, Grid, cell};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bsonval::show::{document as document_text, value as value_text};
use errors::{Code, Error, Result};

/// The most entries a document may have.
const MAX_ENTRIES: usize = 100_000;

/// What the parts of such an index hold.
#[derive(Clone, Debug)]
pub(super) struct GeoParts {
    kinds: Vec<PartKind>,
    grid: Grid,
}

/// What one part of the key holds of a document.
#[derive(Default)]
struct Column<'a> {
    values: Vec<Option<RawBsonRef<'a>>>,
    multikey: bool,
}

impl GeoParts {
    pub(super) fn of(spec: &IndexSpec) -> Option<Self> {
        let kinds = spec.parts.iter().map(|part| part.kind).collect();
        spec.is_geo().then_some(Self { kinds, grid: spec.grid })
    }
}

impl KeyMaker {
    /// The entries of a document, ascending and distinct.
    pub(super) fn make_geo(
        &self,
        geo: &GeoParts,
        document: &RawDocument,
        record: RecordKey<'_>,
    ) -> Result<DocumentKeys> {
        let mut keys = DocumentKeys::default();
        let mut columns: Vec<Column<'_>> = Vec::with_capacity(self.paths.len());
        let mut located = false;
        for (at, (path, kind)) in self.paths.iter().zip(&geo.kinds).enumerate() {
            let mut column = Column::default();
            column.collect(document, path, 0, kind.is_geo())?;
            if kind.is_geo() {
                let cells = match kind {
                    PartKind::Flat => flat_cells(&geo.grid, &column)?,
                    _ => sphere_cells(document, &column)?,
                };
                located |= !cells.values.is_empty();
                column.multikey |= cells.multikey;
                column.values = cells.values;
            }
            if column.values.is_empty() {
                column.values.push(None);
            }
            if column.multikey {
                keys.multikey |= 1 << at;
            }
            columns.push(column);
        }
        if !located {
            // Nothing is stored, so nothing is there to be marked.
            return Ok(DocumentKeys::default());
        }
        let count = columns.iter().try_fold(1_usize, |n, c| n.checked_mul(c.values.len()));
        if count.is_none_or(|count| count > MAX_ENTRIES) {
            return Err(Error::location(
                201,
                format!("Failed to build index keys: more than {MAX_ENTRIES} for one document"),
            ));
        }
        let mut at = vec![0; columns.len()];
        loop {
            let part_values: PartValues<'_> = columns
                .iter()
                .zip(&at)
                .map(|(column, at)| PartValue::Done(column.values[*at]))
                .collect();
            keys.entries.push(self.entry(&part_values, record)?);
            if !turn(&mut at, &columns) {
                break;
            }
        }
        keys.entries.sort_unstable();
        keys.entries.dedup_by(|b, a| a.key == b.key);
        Ok(keys)
    }
}

/// Goes to the next combination; false after the last.
fn turn(at: &mut [usize], columns: &[Column<'_>]) -> bool {
    for (position, column) in at.iter_mut().zip(columns).rev() {
        *position += 1;
        if *position < column.values.len() {
            return true;
        }
        *position = 0;
    }
    false
}

impl<'a> Column<'a> {
    /// Everything the path leads to; an array at its end is kept whole where it may be a point.
    /// Recursion is bounded by the path's length.
    fn collect(
        &mut self,
        document: &'a RawDocument,
        path: &[String],
        from: usize,
        whole: bool,
    ) -> Result<()> {
        let (array, next) = match walk(document, path, from)? {
            Found::Value(value) => {
                self.values.push(value);
                return Ok(());
            }
            Found::Array(array, next) => (array, next),
        };
        let end = next == path.len();
        if end && whole {
            self.values.push(Some(RawBsonRef::Array(array)));
            return Ok(());
        }
        self.multikey = true;
        let mut empty = true;
        for element in array {
            empty = false;
            match element? {
                element if end => self.values.push(Some(element)),
                RawBsonRef::Document(inner) => self.collect(inner, path, next, whole)?,
                _ => self.values.push(None),
            }
        }
        if empty {
            self.values.push(end.then_some(RawBsonRef::Undefined));
        }
        Ok(())
    }

    fn add(&mut self, cells: impl IntoIterator<Item = i64>) {
        self.values.extend(cells.into_iter().map(|cell| Some(RawBsonRef::Int64(cell))));
    }
}

/// Whether a value says that there is no place.
fn is_nowhere(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Null | RawBsonRef::Undefined => true,
        RawBsonRef::Array(array) => array.is_empty(),
        RawBsonRef::Document(document) => document.is_empty(),
        _ => false,
    }
}

/// The geometries of an array that is not a point itself.
fn several(array: &RawArray) -> Option<&RawArray> {
    let first = array.into_iter().next()?.ok()?;
    matches!(first, RawBsonRef::Document(_) | RawBsonRef::Array(_)).then_some(array)
}

/// The cells of a `2dsphere` part.
fn sphere_cells<'a>(document: &RawDocument, found: &Column<'_>) -> Result<Column<'a>> {
    let refuse = |reason: &str| {
        let shown = document_text(document);
        Error::location(16755, format!("Can't extract geo keys: {shown}  {reason}"))
    };
    let mut cells = Column::default();
    let mut count = 0;
    let mut take = |value: RawBsonRef<'_>| {
        let geometry = Geometry::parse(value)
            .map_err(|error| limits::check().err().unwrap_or_else(|| refuse(error.message())))?;
        let Some(shape) = geometry.shape() else {
            let shown = value_text(value);
            let reason = format!("can't project geometry into spherical CRS: {shown}");
            return Err(refuse(&reason));
        };
        count += 1;
        // Cells around others are searched for only where the part is marked.
        cells.multikey |= count > 1 || shape.as_point().is_none();
        cells.add(cell::keys(&shape));
        limits::take_stop_error()?;
        Ok(())
    };
    for value in found.values.iter().flatten().filter(|value| !is_nowhere(**value)) {
        match value {
            RawBsonRef::Array(array) if several(array).is_some() => {
                for value in *array {
                    take(value?)?;
                }
            }
            value => take(*value)?,
        }
    }
    Ok(cells)
}

/// The places of a `2d` part: pairs, and arrays of pairs.
fn flat_cells<'a>(grid: &Grid, found: &Column<'_>) -> Result<Column<'a>> {
    let mut cells = Column::default();
    for value in found.values.iter().flatten().filter(|value| !is_nowhere(**value)) {
        let places: Vec<RawBsonRef<'_>> = match value {
            RawBsonRef::Array(array) => array.into_iter().collect::<Result<_, _>>()?,
            RawBsonRef::Document(document) => {
                document.iter().map(|field| Ok(field?.1)).collect::<Result<_>>()?
            }
            // MongoDB leaves out what cannot be a place.
            _ => continue,
        };
        if places.first().is_some_and(|first| number(*first).is_some()) {
            cells.add([place(grid, *value, &places)?]);
            continue;
        }
        for inner in places {
            let parts: Vec<RawBsonRef<'_>> = match inner {
                RawBsonRef::Array(array) => array.into_iter().collect::<Result<_, _>>()?,
                RawBsonRef::Document(document) => {
                    document.iter().map(|field| Ok(field?.1)).collect::<Result<_>>()?
                }
                _ => {
                    return Err(Error::location(
                        16804,
                        "location object expected, location array not in correct format",
                    ));
                }
            };
            if !parts.is_empty() {
                cells.add([place(grid, inner, &parts)?]);
            }
        }
    }
    cells.multikey = cells.values.len() > 1;
    Ok(cells)
}

/// The number of a pair's place on the grid.
fn place(grid: &Grid, value: RawBsonRef<'_>, parts: &[RawBsonRef<'_>]) -> Result<i64> {
    let [first, second, ..] = parts else {
        return Err(Error::location(13068, "geo field only has 1 element"));
    };
    let (Some(x), Some(y)) = (number(*first), number(*second)) else {
        return Err(Error::location(
            13026,
            format!(
                "geo values must be 'legacy coordinate pairs' for 2d indexes :: caused by :: {}",
                value_text(value)
            ),
        ));
    };
    if !grid.holds((x, y)) {
        return Err(Error::new(
            Code::location(13027),
            format!(
                "point not in interval of [ {}, {} ] :: caused by :: {}",
                grid.min,
                grid.max,
                value_text(value)
            ),
        ));
    }
    Ok(grid.key((x, y)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SEVEN;
    use bson::{Document, RawDocumentBuf, doc};

    fn keys(key: Document, document: &Document) -> Result<DocumentKeys> {
        let spec = doc! {"key": key, "name": "x"};
        let spec = IndexSpec::parse(&RawDocumentBuf::try_from(&spec).unwrap()).unwrap();
        let raw = RawDocumentBuf::try_from(document).unwrap();
        KeyMaker::new(&spec, None).make(&raw, RecordKey::new(RawBsonRef::Int32(7), &SEVEN))
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
    fn check(key: Document, document: Document, entries: usize, multikey: u32) {
        let keys = keys(key.clone(), &document).unwrap();
        assert_eq!((keys.entries.len(), keys.multikey), (entries, multikey), "{key} of {document}");
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
    fn refused(key: Document, document: Document, code: i32, text: &str) {
        let error = keys(key, &document).expect_err(&format!("{document} should be refused"));
        assert_eq!(error.code().0, code, "{document}: {error}");
        assert!(error.message().contains(text), "{document}: {error}");
    }

    #[test]
    fn points_have_one_entry_and_shapes_several() {
        let sphere = || doc! {"p": "2dsphere"};
        check(sphere(), doc! {"p": [3, 4]}, 1, 0);
        check(sphere(), doc! {"p": {"lng": 3, "lat": 4}}, 1, 0);
        check(sphere(), doc! {"p": {"type": "Point", "coordinates": [3, 4]}}, 1, 0);
        for nothing in [doc! {}, doc! {"p": null}, doc! {"p": []}, doc! {"p": {}}] {
            check(sphere(), nothing, 0, 0);
        }
        check(sphere(), doc! {"p": [{"type": "Point", "coordinates": [3, 4]}, [5, 6]]}, 2, 1);
        check(doc! {"a.p": "2dsphere"}, doc! {"a": [{"p": [1, 2]}, {"p": [3, 4]}, {}]}, 2, 1);
        let line = doc! {"type": "LineString", "coordinates": [[0, 0], [10, 10]]};
        let found = keys(sphere(), &doc! {"p": line}).unwrap();
        assert!((4..=24).contains(&found.entries.len()), "{}", found.entries.len());
        assert_eq!(found.multikey, 1);
    }

    #[test]
    fn other_parts_are_multiplied_out() {
        let key = || doc! {"a": 1, "p": "2dsphere", "b": -1};
        check(key(), doc! {"p": [3, 4]}, 1, 0);
        check(key(), doc! {"a": [1, 2], "p": [3, 4], "b": [5, 6, 7]}, 6, 0b101);
        check(key(), doc! {"a": 1}, 0, 0);
        check(doc! {"p": "2dsphere", "q": "2dsphere"}, doc! {"q": [3, 4]}, 1, 0);
        check(doc! {"p": "2d", "b": 1}, doc! {"p": [3, 4], "b": [1, 2]}, 2, 0b10);
        check(doc! {"p": "2d"}, doc! {"p": [[3, 4], [5, 6], {"x": 7, "y": 8}]}, 3, 1);
        check(doc! {"p": "2d"}, doc! {"p": "nowhere"}, 0, 0);
    }

    #[test]
    fn what_is_no_geometry_is_refused() {
        let sphere = || doc! {"p": "2dsphere"};
        refused(sphere(), doc! {"p": 5}, 16755, "geo element must be an array or object");
        refused(sphere(), doc! {"p": {"type": "Point"}}, 16755, "instead got type missing");
        refused(sphere(), doc! {"p": {"type": "Pt", "x": 1}}, 16755, "unknown GeoJSON type");
        refused(
            sphere(),
            doc! {"p": {"type": "Point", "coordinates": [200, 0]}},
            16755,
            "Longitude/latitude is out of bounds, lng: 200 lat: 0",
        );
        refused(sphere(), doc! {"p": [200, 0]}, 16755, "can't project geometry");
        let flat = || doc! {"p": "2d"};
        refused(flat(), doc! {"p": [200, 0]}, 13027, "point not in interval of [ -180, 180 ]");
        refused(flat(), doc! {"p": [1]}, 13068, "geo field only has 1 element");
        refused(flat(), doc! {"p": [1, "x"]}, 13026, "legacy coordinate pairs");
        let point = doc! {"type": "Point", "coordinates": [1, 2]};
        refused(flat(), doc! {"p": point}, 16804, "location object expected");
    }

    #[test]
    fn cells_on_disk_do_not_change() {
        let cell = |key: Document, document: Document| {
            let spec = doc! {"key": key.clone(), "name": "x"};
            let spec = IndexSpec::parse(&RawDocumentBuf::try_from(&spec).unwrap()).unwrap();
            let entry = keys(key, &document).unwrap().entries.remove(0);
            KeyMaker::new(&spec, None).values(&entry.key, &entry.value).unwrap().remove(0)
        };
        let found = [
            cell(doc! {"p": "2dsphere"}, doc! {"p": [0, 0]}),
            cell(doc! {"p": "2dsphere"}, doc! {"p": [13.4, 52.5]}),
            cell(doc! {"p": "2dsphere"}, doc! {"p": [-70.7, -33.4]}),
            cell(doc! {"p": "2d"}, doc! {"p": [13.4, 52.5]}),
        ];
        let expected = [
            1_729_382_256_910_270_465_i64,
            6_714_740_601_295_962_333,
            -7_563_714_270_290_201_913,
            3_458_209_213_027_123,
        ];
        assert_eq!(found, expected.map(bson::Bson::Int64));
    }
}
