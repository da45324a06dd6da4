//! Geospatial predicates: `$geoWithin`, `$geoIntersects`, `$near`, `$nearSphere`.
//!
//! Always true: a value that is no valid geometry satisfies none of them. `$near` is a condition on
//! the whole document, on the nearest of what the path stands for; the order it asks for is the
//! planner's affair.

use super::{Leaf, Node, Predicate};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::number::Number;
use bsonval::path::{LeafArrays, Path};
use bsonval::{raw, show};
use errors::{Code, Error, Result};
use geo::parse::Centre;
use geo::{EARTH_RADIUS_METRES, Geometry, Region, Vector};
use std::sync::Arc;

/// `$geoWithin` or `$geoIntersects`.
#[derive(Clone, Debug)]
pub struct GeoTest {
    within: bool,
    region: Region,
    /// `{$geoWithin: ...}` as the client wrote it.
    source: RawDocumentBuf,
}

/// `$near` or `$nearSphere`.
#[derive(Clone, Debug)]
pub struct GeoNear {
    centre: Centre,
    /// Where distances are measured on the sphere.
    sphere: Option<Vector>,
    /// What a radian is in the unit of distances; 1 on the plane.
    unit: f64,
    least: f64,
    most: f64,
    /// `{$near: ..., $maxDistance: ...}` as the client wrote it.
    source: RawDocumentBuf,
}

fn bad<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::bad_value(message))
}

/// Whether a name is one of those that ask for an order by distance.
fn is_near(name: &str) -> bool {
    matches!(name, "$near" | "$nearSphere" | "$geoNear")
}

/// Whether a name may stand beside `$near`, and does.
pub(super) fn belongs_to_near(name: &str, siblings: &RawDocument) -> bool {
    matches!(name, "$minDistance" | "$maxDistance" | "$uniqueDocs")
        && siblings.iter_elements().flatten().any(|field| is_near(field.key().as_str()))
}

impl GeoTest {
    pub(super) fn parse(name: &str, value: RawBsonRef<'_>, siblings: &RawDocument) -> Result<Self> {
        for field in raw::elements(siblings) {
            let field = field?;
            if field.name() != name {
                let extra = show::field(field.name(), field.value()?);
                return bad(format!("can't parse extra field: {extra}"));
            }
        }
        let RawBsonRef::Document(shapes) = value else {
            return bad("geometry must be an object");
        };
        let mut region = None;
        for shape in raw::elements(shapes) {
            let shape = shape?;
            if region.is_some() && name == "$geoWithin" {
                return bad(format!(
                    "$geoWithin doesn't accept multiple shapes {}",
                    show::field(name, value)
                ));
            }
            if shape.name() != "$uniqueDocs" {
                region = Some(Region::parse(shape.name(), shape.value()?)?);
            }
        }
        let Some(region) = region else { return bad("geo query doesn't have any geometry") };
        let within = name != "$geoIntersects";
        let shown = || show::document(siblings);
        if within && !region.has_area() {
            return bad(format!("$within not supported with provided geometry: {}", shown()));
        }
        if !within && !matches!(region, Region::Shape(_)) {
            return bad(format!("$geoIntersect not supported with provided geometry: {}", shown()));
        }
        Ok(Self { within, region, source: raw::document_of(name, value) })
    }

    /// What is searched.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// As written.
    pub(super) fn source(&self) -> &RawDocument {
        &self.source
    }

    pub(super) fn holds(&self, value: RawBsonRef<'_>) -> Result<bool> {
        limits::poll_work(1 + raw::size_of_ref(value) / limits::BYTES_PER_UNIT)?;
        let Ok(geometry) = Geometry::parse(value) else {
            // What is no geometry does not match; a reading that was stopped is no answer.
            return limits::check().map(|()| false);
        };
        let holds = if self.within {
            self.region.contains(&geometry)
        } else {
            self.region.intersects(&geometry)
        };
        limits::take_stop_error()?;
        Ok(holds)
    }
}

/// The parts of a near query, as they are read.
struct Parts {
    centre: Option<Centre>,
    least: f64,
    most: f64,
}

impl Parts {
    fn new() -> Self {
        Self { centre: None, least: 0.0, most: f64::INFINITY }
    }
}

fn as_double(value: RawBsonRef<'_>) -> Option<f64> {
    Number::from_bson(value).map(Number::to_f64)
}

/// A distance of either form of a near query; each has codes of its own.
fn distance(name: &str, value: RawBsonRef<'_>, [type_code, sign_code]: [Code; 2]) -> Result<f64> {
    let Some(distance) = as_double(value) else {
        return Err(Error::new(type_code, format!("{name} must be a number")));
    };
    if distance >= 0.0 {
        return Ok(distance);
    }
    Err(Error::new(sign_code, format!("{name} must be non-negative")))
}

impl GeoNear {
    pub(super) fn parse(operators: &RawDocument) -> Result<Self> {
        let mut legacy = Parts::new();
        let mut on_sphere = false;
        for field in raw::elements(operators) {
            let field = field?;
            let (name, value) = (field.name(), field.value()?);
            match name {
                _ if is_near(name) => {
                    if let Some((centre, most)) = legacy_centre(value)? {
                        legacy.centre = Some(centre);
                        legacy.most = most.unwrap_or(legacy.most);
                        on_sphere = name == "$nearSphere";
                    }
                }
                "$minDistance" => {
                    legacy.least = distance(name, value, [16893, 16894].map(Code::location))?;
                }
                "$maxDistance" => {
                    legacy.most = distance(name, value, [16895, 16896].map(Code::location))?;
                }
                "$uniqueDocs" => {}
                _ => {
                    return Err(Error::location(
                        34413,
                        format!("invalid argument in geo near query: {name}"),
                    ));
                }
            }
        }
        let Parts { centre, least, most } = match legacy.centre {
            Some(_) => legacy,
            None => geojson_query(operators)?,
        };
        let Some(centre) = centre else {
            return bad("$geometry is required for geo near query");
        };
        let sphere = if on_sphere || centre.geojson { centre.on_sphere() } else { None };
        if on_sphere && sphere.is_none() {
            return bad("Legacy point is out of bounds for spherical query");
        }
        let unit = if centre.geojson { EARTH_RADIUS_METRES } else { 1.0 };
        Ok(Self { centre, sphere, unit, least, most, source: operators.to_owned() })
    }

    /// The point that distances are measured from.
    pub fn centre(&self) -> Centre {
        self.centre
    }

    /// The point on the sphere, where distances are measured there.
    pub fn sphere(&self) -> Option<Vector> {
        self.sphere
    }

    /// What a radian is in the unit of distances: metres, or radians themselves; 1 on the plane.
    pub fn unit(&self) -> f64 {
        self.unit
    }

    /// The least and the greatest distance that is wanted.
    pub fn limits(&self) -> (f64, f64) {
        (self.least, self.most)
    }

    /// As written.
    pub(super) fn source(&self) -> &RawDocument {
        &self.source
    }

    /// How far a value is; `None` where it is no geometry.
    fn distance(&self, value: RawBsonRef<'_>) -> Option<f64> {
        let geometry = Geometry::parse(value).ok()?;
        match self.sphere {
            Some(centre) => Some(geometry.shape()?.distance(centre) * self.unit),
            None => Some(geo::flat::distance(self.centre.place, geometry.place()?)),
        }
    }

    /// The nearest of what a path stands for, and how far it is.
    pub fn nearest<'a>(
        &self,
        path: &Path,
        document: &'a RawDocument,
    ) -> Result<Option<(f64, RawBsonRef<'a>)>> {
        let mut nearest: Option<(f64, RawBsonRef<'a>)> = None;
        path.any(document, LeafArrays::Expand, &mut |value, _| {
            if let Some(value) = value
                && let Some(distance) = self.distance(value)
                && nearest.is_none_or(|(known, _)| distance < known)
            {
                nearest = Some((distance, value));
            }
            limits::poll()?;
            Ok(false)
        })?;
        limits::take_stop_error()?;
        Ok(nearest)
    }

    /// Whether a distance is neither too small nor too large.
    pub fn accepts(&self, distance: f64) -> bool {
        self.least <= distance && distance <= self.most
    }
}

/// `$near: <point>`, or `$near: [x, y, maxDistance]`; `None` where it is neither.
fn legacy_centre(value: RawBsonRef<'_>) -> Result<Option<(Centre, Option<f64>)>> {
    if let Ok(centre) = Centre::parse(value) {
        return Ok(Some((centre, None)));
    }
    let parts: Vec<f64> = match value {
        RawBsonRef::Array(array) => array.into_iter().flatten().filter_map(as_double).collect(),
        RawBsonRef::Document(document) => {
            document.iter().flatten().filter_map(|(_, value)| as_double(value)).collect()
        }
        _ => return Ok(None),
    };
    let &[x, y, most] = &parts[..] else { return Ok(None) };
    if !x.is_finite() || !y.is_finite() {
        return Ok(None);
    }
    if most >= 0.0 {
        return Ok(Some((Centre { place: (x, y), geojson: false }, Some(most))));
    }
    Err(Error::location(18522, "max distance must be non-negative"))
}

/// `{$near: {$geometry: ..., $maxDistance: ...}}`.
fn geojson_query(operators: &RawDocument) -> Result<Parts> {
    let mut fields = raw::elements(operators);
    let Some(first) = fields.next().transpose()? else {
        return bad("empty geo near query object");
    };
    if let Some(extra) = fields.next().transpose()? {
        return bad(format!(
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field \
             found: {}",
            show::field(extra.name(), extra.value()?)
        ));
    }
    let RawBsonRef::Document(query) = first.value()? else {
        return bad("geo near query argument is not an object");
    };
    let mut parts = Parts::new();
    for field in raw::elements(query) {
        let field = field?;
        let (name, value) = (field.name(), field.value()?);
        match name {
            "$geometry" => {
                let RawBsonRef::Document(geometry) = value else {
                    return bad(format!(
                        "$near requires geojson point, given {}",
                        show::value(value)
                    ));
                };
                let centre = Centre::parse(value).map_err(|error| {
                    Error::bad_value(format!(
                        "invalid point in geo near query $geometry argument: {}  {}",
                        show::document(geometry),
                        error.message()
                    ))
                })?;
                if !centre.geojson {
                    return bad(format!(
                        "$near requires geojson point, given {}",
                        show::document(geometry)
                    ));
                }
                parts.centre = Some(centre);
            }
            "$minDistance" => parts.least = distance(name, value, [Code::BAD_VALUE; 2])?,
            "$maxDistance" => parts.most = distance(name, value, [Code::BAD_VALUE; 2])?,
            _ => return bad(format!("invalid argument in geo near query: {name}")),
        }
    }
    Ok(parts)
}

/// The near query of a filter, where it has one, and its path.
pub(super) fn near_of(root: &Node) -> Option<(&Path, &Arc<GeoNear>)> {
    let parts = match root {
        Node::And(parts) => &parts[..],
        other => std::slice::from_ref(other),
    };
    parts.iter().find_map(|part| match part {
        Node::Leaf(Leaf { path, predicate: Predicate::Near(near) }) => Some((path, near)),
        _ => None,
    })
}

/// How many near queries a tree holds, wherever they stand.
fn count(node: &Node) -> usize {
    match node {
        Node::And(parts) | Node::Or(parts) | Node::Nor(parts) => parts.iter().map(count).sum(),
        Node::Not(part) => count(part),
        Node::Leaf(leaf) => match &leaf.predicate {
            Predicate::Near(_) => 1,
            Predicate::ElemMatchObject(inner) | Predicate::ElemMatchValue(inner) => count(inner),
            _ => 0,
        },
        _ => 0,
    }
}

/// Refuses near queries, for filters that ask for no order.
pub(super) fn refuse_near(root: &Node) -> Result<()> {
    match count(root) {
        0 => Ok(()),
        _ => Err(Error::location(
            5_626_500,
            "$geoNear, $near, and $nearSphere are not allowed in this context",
        )),
    }
}

/// Checks that a near query stands alone, and where it can mean an order.
pub(super) fn check_near(root: &Node) -> Result<()> {
    match count(root) {
        0 => Ok(()),
        1 if near_of(root).is_some() => Ok(()),
        1 => bad("geo $near must be top-level expr"),
        _ => bad("Too many geoNear expressions"),
    }
}
