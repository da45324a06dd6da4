//! Geometry from BSON: GeoJSON, legacy pairs and legacy shapes, with MongoDB's errors.
//!
//! Always true: what was parsed is valid, so that the rest of the crate need not ask again.

use crate::flat::{Flat, Point};
use crate::polygon::{Polygon, Ring, ring_fault};
use crate::sphere::{Cap, Shape};
use crate::vector::Vector;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use errors::{Error, Result};
use std::borrow::Cow;
use std::fmt::Write;

/// A geometry as a document holds it.
#[derive(Clone, Debug, PartialEq)]
pub enum Geometry {
    /// A pair of coordinates: a place on the plane, and on the sphere where it is one.
    Pair(Point),
    /// A GeoJSON point: a place on both.
    Point(Point),
    /// Any other GeoJSON.
    Shape(Shape),
    /// A polygon in MongoDB's CRS of strict winding, which says which side is meant. Only queries
    /// may use one.
    StrictWinding(Shape),
}

/// A geometry as a query names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Region {
    /// `$box`, `$polygon`, `$center`.
    Flat(Flat),
    /// `$geometry`.
    Shape(Shape),
    /// `$centerSphere`.
    Cap(Cap),
}

/// The point that distances are measured from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centre {
    /// As written.
    pub place: Point,
    /// Whether it was written as GeoJSON.
    pub geojson: bool,
}

fn bad<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::bad_value(message))
}

impl Geometry {
    /// Reads a stored value.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let parsed = Self::read(value);
        limits::take_stop_error()?;
        parsed
    }

    fn read(value: RawBsonRef<'_>) -> Result<Self> {
        match value {
            RawBsonRef::Array(_) => pair(value, true).map(Self::Pair),
            RawBsonRef::Document(document) => {
                let first = document.iter().next().transpose()?;
                if first.is_some_and(|(_, value)| number(value).is_some()) {
                    return pair(value, true).map(Self::Pair);
                }
                geojson(document)
            }
            _ => bad(format!("geo element must be an array or object: {}", text(value))),
        }
    }

    /// Its place on the plane: only points have one.
    pub fn place(&self) -> Option<Point> {
        match self {
            Self::Pair(place) | Self::Point(place) => Some(*place),
            Self::Shape(_) | Self::StrictWinding(_) => None,
        }
    }

    /// What it is on the sphere; pairs beyond its degrees are nothing there.
    pub fn shape(&self) -> Option<Cow<'_, Shape>> {
        match self {
            Self::Pair(place) | Self::Point(place) => {
                let (longitude, latitude) = *place;
                is_on_sphere(*place)
                    .then(|| Cow::Owned(Shape::point(Vector::from_degrees(longitude, latitude))))
            }
            Self::Shape(shape) => Some(Cow::Borrowed(shape)),
            Self::StrictWinding(_) => None,
        }
    }
}

impl Region {
    /// Reads one specifier, `$geometry` or a legacy shape.
    pub fn parse(name: &str, value: RawBsonRef<'_>) -> Result<Self> {
        let parsed = Self::read(name, value);
        limits::take_stop_error()?;
        parsed
    }

    fn read(name: &str, value: RawBsonRef<'_>) -> Result<Self> {
        let unknown = || bad(format!("unknown geo specifier: {name}: {}", text(value)));
        let parts = match value {
            RawBsonRef::Array(array) => array.into_iter().collect::<Result<Vec<_>, _>>()?,
            RawBsonRef::Document(document) => document
                .iter()
                .map(|field| field.map(|(_, value)| value))
                .collect::<Result<Vec<_>, _>>()?,
            _ => return unknown(),
        };
        match (name, value) {
            ("$geometry", RawBsonRef::Document(document)) => match geojson(document)? {
                Geometry::Shape(shape) | Geometry::StrictWinding(shape) => Ok(Self::Shape(shape)),
                Geometry::Point((x, y)) | Geometry::Pair((x, y)) => {
                    Ok(Self::Shape(Shape::point(Vector::from_degrees(x, y))))
                }
            },
            ("$geometry", _) => bad(format!("unknown GeoJSON type: {}", text(value))),
            ("$box", _) => {
                let corner = |at: usize| part(&parts, at).and_then(|value| pair(value, false));
                Ok(Self::Flat(Flat::between(corner(0)?, corner(1)?)))
            }
            ("$polygon", _) => {
                let corners =
                    parts.iter().map(|value| pair(*value, false)).collect::<Result<Vec<_>>>()?;
                if corners.len() < 3 {
                    return bad("Polygon must have at least 3 points");
                }
                Ok(Self::Flat(Flat::Polygon(corners)))
            }
            ("$center", _) => {
                let (centre, radius) = circle(&parts)?;
                Ok(Self::Flat(Flat::Circle(centre, radius)))
            }
            ("$centerSphere", _) => {
                let (centre, radius) = circle(&parts)?;
                Ok(Self::Cap(Cap { centre: on_sphere(centre)?, radius }))
            }
            _ => unknown(),
        }
    }

    /// Whether it has an area that others may lie in.
    pub fn has_area(&self) -> bool {
        match self {
            Self::Flat(_) | Self::Cap(_) => true,
            Self::Shape(shape) => !shape.polygons.is_empty(),
        }
    }

    /// Whether a stored geometry lies in it.
    pub fn contains(&self, geometry: &Geometry) -> bool {
        match self {
            Self::Flat(flat) => geometry.place().is_some_and(|place| flat.contains(place)),
            Self::Shape(own) => geometry.shape().is_some_and(|shape| own.contains(&shape)),
            Self::Cap(cap) => geometry.shape().is_some_and(|shape| cap.contains(&shape)),
        }
    }

    /// Whether a stored geometry has a point in common with it.
    pub fn intersects(&self, geometry: &Geometry) -> bool {
        match self {
            Self::Shape(own) => geometry.shape().is_some_and(|shape| own.intersects(&shape)),
            Self::Flat(_) | Self::Cap(_) => false,
        }
    }
}

impl Centre {
    /// Reads a point of a query, GeoJSON or a pair.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        if let RawBsonRef::Document(document) = value {
            let first = document.iter().next().transpose()?;
            if first.is_none_or(|(_, value)| number(value).is_none()) {
                return Ok(Self { place: point(document)?, geojson: true });
            }
        }
        Ok(Self { place: pair(value, false)?, geojson: false })
    }

    /// Its place on the sphere, if it has one.
    pub fn on_sphere(&self) -> Option<Vector> {
        is_on_sphere(self.place).then(|| Vector::from_degrees(self.place.0, self.place.1))
    }
}

fn is_on_sphere((longitude, latitude): Point) -> bool {
    longitude.abs() <= 180.0 && latitude.abs() <= 90.0
}

fn on_sphere(place: Point) -> Result<Vector> {
    let (longitude, latitude) = place;
    if !is_on_sphere(place) {
        return bad(format!(
            "Longitude/latitude is out of bounds, lng: {longitude} lat: {latitude}"
        ));
    }
    Ok(Vector::from_degrees(longitude, latitude))
}

/// A number of any type.
pub fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Double(value) => Some(value),
        RawBsonRef::Int32(value) => Some(f64::from(value)),
        RawBsonRef::Int64(value) => Some(value as f64),
        RawBsonRef::Decimal128(value) => value.to_string().parse().ok(),
        _ => None,
    }
}

fn part<'a>(parts: &[RawBsonRef<'a>], at: usize) -> Result<RawBsonRef<'a>> {
    match parts.get(at) {
        Some(value) => Ok(*value),
        None => bad("Point must be an array or object, instead got type missing"),
    }
}

/// Two numbers in an array or a document; stored ones may have more behind them.
fn pair(value: RawBsonRef<'_>, allows_more_fields: bool) -> Result<Point> {
    let mut parts: [Option<RawBsonRef<'_>>; 3] = [None; 3];
    match value {
        RawBsonRef::Array(array) => {
            for (slot, value) in parts.iter_mut().zip(array) {
                *slot = Some(value?);
            }
        }
        RawBsonRef::Document(document) => {
            for (slot, field) in parts.iter_mut().zip(document) {
                *slot = Some(field?.1);
            }
        }
        other => {
            return bad(format!(
                "Point must be an array or object, instead got type {}",
                type_name(Some(other))
            ));
        }
    }
    let coordinate = |at: usize| match parts[at].and_then(number) {
        Some(value) => Ok(value),
        None => bad(format!(
            "Point must only contain numeric elements, instead got type {}",
            type_name(parts[at])
        )),
    };
    let place = (coordinate(0)?, coordinate(1)?);
    if !allows_more_fields && parts[2].is_some() {
        return bad("Point must only contain two numeric elements");
    }
    if !place.0.is_finite() || !place.1.is_finite() {
        return bad("Point coordinates must be finite numbers");
    }
    Ok(place)
}

fn circle(parts: &[RawBsonRef<'_>]) -> Result<(Point, f64)> {
    let centre = pair(part(parts, 0)?, false)?;
    let radius = parts.get(1).copied().and_then(number).filter(|radius| *radius >= 0.0);
    let Some(radius) = radius else { return bad("radius must be a non-negative number") };
    if parts.len() > 2 {
        return bad("Only 2 fields allowed for circular region");
    }
    Ok((centre, radius))
}

/// A GeoJSON object of any type.
fn geojson(document: &RawDocument) -> Result<Geometry> {
    let unknown = || bad(format!("unknown GeoJSON type: {}", text(RawBsonRef::Document(document))));
    let Some(RawBsonRef::String(kind)) = document.get("type")? else { return unknown() };
    match kind {
        "Point" => point(document).map(Geometry::Point),
        "Polygon" if has_strict_winding_crs(document)? => {
            let polygon = strict_winding_polygon(document.get("coordinates")?)?;
            Ok(Geometry::StrictWinding(Shape { polygons: vec![polygon], ..Shape::default() }))
        }
        "GeometryCollection" => collection(document).map(Geometry::Shape),
        "LineString" | "Polygon" | "MultiPoint" | "MultiLineString" | "MultiPolygon" => {
            let mut shape = Shape::default();
            add(&mut shape, kind, document)?;
            Ok(Geometry::Shape(shape))
        }
        _ => unknown(),
    }
}

/// Whether the `crs` asks for polygons by their winding.
fn has_strict_winding_crs(document: &RawDocument) -> Result<bool> {
    let crs = match document.get("crs")? {
        None => return Ok(false),
        Some(RawBsonRef::Document(crs)) => crs,
        Some(_) => return bad("GeoJSON CRS must be an object"),
    };
    if !matches!(crs.get("type")?, Some(RawBsonRef::String("name"))) {
        return bad("GeoJSON CRS must have field \"type\": \"name\"");
    }
    let Some(RawBsonRef::Document(properties)) = crs.get("properties")? else {
        return bad("CRS must have field \"properties\" which is an object");
    };
    match properties.get("name")? {
        Some(RawBsonRef::String("urn:ogc:def:crs:OGC:1.3:CRS84" | "EPSG:4326")) => Ok(false),
        Some(RawBsonRef::String("urn:x-mongodb:crs:strictwinding:EPSG:4326")) => Ok(true),
        Some(RawBsonRef::String(name)) => bad(format!("Unknown CRS name: {name}")),
        _ => bad("In CRS, \"properties.name\" must be a string"),
    }
}

fn check_crs(document: &RawDocument) -> Result<()> {
    if has_strict_winding_crs(document)? {
        return bad("Strict winding order is only supported by polygon");
    }
    Ok(())
}

fn point(document: &RawDocument) -> Result<Point> {
    check_crs(document)?;
    let Some(coordinates) = document.get("coordinates")? else {
        return bad("Point must be an array or object, instead got type missing");
    };
    let place = pair(coordinates, true)?;
    on_sphere(place)?;
    Ok(place)
}

fn collection(document: &RawDocument) -> Result<Shape> {
    let Some(RawBsonRef::Array(geometries)) = document.get("geometries")? else {
        return bad("GeometryCollection geometries must be an array");
    };
    let mut shape = Shape::default();
    let mut empty = true;
    for (at, geometry) in geometries.into_iter().enumerate() {
        empty = false;
        let RawBsonRef::Document(geometry) = geometry? else {
            return bad(format!("Element {at} of \"geometries\" is not an object"));
        };
        let shown = || text(RawBsonRef::Document(geometry));
        match geometry.get("type")? {
            Some(RawBsonRef::String("GeometryCollection")) => {
                return bad(format!("GeometryCollections cannot be nested: {}", shown()));
            }
            Some(RawBsonRef::String("Point")) => {
                let (longitude, latitude) = point(geometry)?;
                shape.points.push(Vector::from_degrees(longitude, latitude));
            }
            Some(RawBsonRef::String(
                kind @ ("LineString" | "Polygon" | "MultiPoint" | "MultiLineString"
                | "MultiPolygon"),
            )) => add(&mut shape, kind, geometry)?,
            _ => return bad(format!("Unknown GeoJSON type: {}", shown())),
        }
    }
    if empty {
        return bad("GeometryCollection geometries must have at least 1 element");
    }
    Ok(shape)
}

/// Adds what a GeoJSON object of a known type draws.
fn add(shape: &mut Shape, kind: &str, document: &RawDocument) -> Result<()> {
    check_crs(document)?;
    let coordinates = document.get("coordinates")?;
    let list = || match coordinates {
        Some(RawBsonRef::Array(list)) => {
            list.into_iter().collect::<Result<Vec<_>, _>>().map_err(Error::from)
        }
        _ => bad(format!("{kind} coordinates must be an array")),
    };
    let some = |count: usize| match count {
        0 => bad(format!("{kind} coordinates must have at least 1 element")),
        _ => Ok(()),
    };
    match kind {
        "LineString" => shape.lines.push(line(coordinates)?),
        "Polygon" => shape.polygons.push(polygon(coordinates)?),
        "MultiPoint" => {
            let points = points(coordinates)?;
            some(points.len())?;
            shape.points.extend(points);
        }
        "MultiLineString" => {
            let lines = list()?;
            some(lines.len())?;
            for coordinates in lines {
                shape.lines.push(line(Some(coordinates))?);
            }
        }
        _ => {
            let polygons = list()?;
            some(polygons.len())?;
            for coordinates in polygons {
                shape.polygons.push(polygon(Some(coordinates))?);
            }
        }
    }
    Ok(())
}

/// An array of positions.
fn points(coordinates: Option<RawBsonRef<'_>>) -> Result<Vec<Vector>> {
    let Some(RawBsonRef::Array(positions)) = coordinates else {
        return bad(format!(
            "GeoJSON coordinates must be an array of coordinates, instead got type {}",
            type_name(coordinates)
        ));
    };
    let mut found = Vec::new();
    for position in positions {
        let position = position?;
        if !matches!(position, RawBsonRef::Array(_)) {
            return bad(format!(
                "GeoJSON coordinates must be an array, instead got type {}",
                type_name(Some(position))
            ));
        }
        found.push(on_sphere(pair(position, true)?)?);
    }
    Ok(found)
}

fn shown(coordinates: Option<RawBsonRef<'_>>) -> String {
    coordinates.map_or_else(String::new, text)
}

fn line(coordinates: Option<RawBsonRef<'_>>) -> Result<Vec<Vector>> {
    let mut vertices = points(coordinates)?;
    vertices.dedup();
    if vertices.len() < 2 {
        return bad(format!(
            "GeoJSON LineString must have at least 2 vertices: {}",
            shown(coordinates)
        ));
    }
    if let Some(at) = vertices.windows(2).position(|pair| pair[0] == pair[1].antipode()) {
        return bad(format!(
            "GeoJSON LineString is not valid: Vertices {at} and {} are antipodal {}",
            at + 1,
            shown(coordinates)
        ));
    }
    Ok(vertices)
}

/// The vertices of a closed loop, the last not repeated, and checked.
fn loop_vertices(coordinates: RawBsonRef<'_>) -> Result<Vec<Vector>> {
    let mut vertices = points(Some(coordinates))?;
    let shown = || text(coordinates);
    match (vertices.first(), vertices.last()) {
        (Some(first), Some(last)) if first == last => {}
        (None, _) => return bad(format!("Loop has no vertices: {}", shown())),
        _ => return bad(format!("Loop is not closed: {}", shown())),
    }
    vertices.dedup();
    vertices.pop();
    if vertices.len() < 3 {
        return bad(format!(
            "Loop must have at least 3 different vertices, {} unique vertices were provided: {}",
            vertices.len().max(1),
            shown()
        ));
    }
    if let Some(fault) = ring_fault(&vertices) {
        return bad(format!("Loop is not valid: {} {fault}", shown()));
    }
    Ok(vertices)
}

fn loops(coordinates: Option<RawBsonRef<'_>>) -> Result<&RawArray> {
    match coordinates {
        Some(RawBsonRef::Array(loops)) => Ok(loops),
        other => bad(format!(
            "Polygon coordinates must be an array, instead got type {}",
            type_name(other)
        )),
    }
}

fn polygon(coordinates: Option<RawBsonRef<'_>>) -> Result<Polygon> {
    let mut rings: Vec<Ring> = Vec::new();
    let mut first: Option<(RawBsonRef<'_>, Polygon)> = None;
    for coordinates in loops(coordinates)? {
        let coordinates = coordinates?;
        let ring = Ring::enclosing_smaller_area(loop_vertices(coordinates)?);
        match &first {
            None => first = Some((coordinates, Polygon::new(ring, Vec::new()))),
            Some((shell, area)) => {
                let hole = Polygon::new(ring, Vec::new());
                if !area.contains_polygon(&hole) {
                    return bad(format!(
                        "Secondary loops not contained by first exterior loop - secondary loops \
                         must be holes: {} first loop: {}",
                        text(coordinates),
                        text(*shell)
                    ));
                }
                rings.push(hole.shell);
            }
        }
    }
    let Some((_, mut whole)) = first else { return bad("Polygon has no loops.") };
    for (at, hole) in rings.into_iter().enumerate() {
        check_hole(&whole, &hole, at + 1, coordinates)?;
        whole.holes.push(hole);
    }
    Ok(whole)
}

/// A hole may touch the shell and other holes in single points only.
fn check_hole(
    polygon: &Polygon,
    hole: &Ring,
    at: usize,
    coordinates: Option<RawBsonRef<'_>>,
) -> Result<()> {
    let common =
        polygon.shell.vertices().iter().filter(|vertex| hole.vertices().contains(vertex)).count();
    if common > 1 {
        return bad(format!(
            "Loop {at} shares more than one vertex with its parent loop 0: {}",
            shown(coordinates)
        ));
    }
    let own = Polygon::new(hole.clone(), Vec::new());
    for (other, known) in polygon.holes.iter().enumerate() {
        let known = Polygon::new(known.clone(), Vec::new());
        if known.contains_polygon(&own) || own.contains_polygon(&known) {
            return bad(format!("Polygon interior loops cannot be nested: {}", shown(coordinates)));
        }
        if known.crosses(&own) {
            return bad(format!(
                "Polygon isn't valid: Loops {} and {at} cross {}",
                other + 1,
                shown(coordinates)
            ));
        }
    }
    Ok(())
}

/// A polygon of one loop whose area is on its left.
fn strict_winding_polygon(coordinates: Option<RawBsonRef<'_>>) -> Result<Polygon> {
    let mut loops = loops(coordinates)?.into_iter();
    match (loops.next().transpose()?, loops.next()) {
        (Some(coordinates), None) => {
            Ok(Polygon::new(Ring::left_of(loop_vertices(coordinates)?), Vec::new()))
        }
        _ => {
            bad(format!("Only one simple loop is allowed in a big polygon: {}", shown(coordinates)))
        }
    }
}

fn type_name(value: Option<RawBsonRef<'_>>) -> &'static str {
    match value {
        None => "missing",
        Some(RawBsonRef::Double(_)) => "double",
        Some(RawBsonRef::String(_)) => "string",
        Some(RawBsonRef::Document(_)) => "object",
        Some(RawBsonRef::Array(_)) => "array",
        Some(RawBsonRef::Binary(_)) => "binData",
        Some(RawBsonRef::Undefined) => "undefined",
        Some(RawBsonRef::ObjectId(_)) => "objectId",
        Some(RawBsonRef::Boolean(_)) => "bool",
        Some(RawBsonRef::DateTime(_)) => "date",
        Some(RawBsonRef::Null) => "null",
        Some(RawBsonRef::RegularExpression(_)) => "regex",
        Some(RawBsonRef::DbPointer(_)) => "dbPointer",
        Some(RawBsonRef::JavaScriptCode(_)) => "javascript",
        Some(RawBsonRef::Symbol(_)) => "symbol",
        Some(RawBsonRef::JavaScriptCodeWithScope(_)) => "javascriptWithScope",
        Some(RawBsonRef::Int32(_)) => "int",
        Some(RawBsonRef::Timestamp(_)) => "timestamp",
        Some(RawBsonRef::Int64(_)) => "long",
        Some(RawBsonRef::Decimal128(_)) => "decimal",
        Some(RawBsonRef::MinKey) => "minKey",
        Some(RawBsonRef::MaxKey) => "maxKey",
    }
}

/// The most of a value that a message shows.
const SHOWN_BYTES: usize = 2000;

/// A value as messages show it.
fn text(value: RawBsonRef<'_>) -> String {
    let mut out = String::new();
    write_text(&mut out, value);
    out.truncate(out.floor_char_boundary(SHOWN_BYTES));
    out
}

fn write_text(out: &mut String, value: RawBsonRef<'_>) {
    if out.len() > SHOWN_BYTES {
        return;
    }
    // Writing to a text cannot fail.
    let _ = match value {
        RawBsonRef::Double(value) if value.fract() == 0.0 && value.abs() < 1e15 => {
            write!(out, "{value:.1}")
        }
        RawBsonRef::Double(value) => write!(out, "{value}"),
        RawBsonRef::Int32(value) => write!(out, "{value}"),
        RawBsonRef::Int64(value) => write!(out, "{value}"),
        RawBsonRef::Boolean(value) => write!(out, "{value}"),
        RawBsonRef::String(value) => write!(out, "\"{value}\""),
        RawBsonRef::Null => write!(out, "null"),
        RawBsonRef::Array(array) => {
            out.push('[');
            for (at, value) in array.into_iter().flatten().enumerate() {
                out.push_str(if at == 0 { " " } else { ", " });
                write_text(out, value);
            }
            write!(out, " ]")
        }
        RawBsonRef::Document(document) => {
            out.push('{');
            for (at, (name, value)) in document.iter().flatten().enumerate() {
                out.push_str(if at == 0 { " " } else { ", " });
                out.push_str(name.as_str());
                out.push_str(": ");
                write_text(out, value);
            }
            write!(out, " }}")
        }
        other => write!(out, "{}", type_name(Some(other))),
    };
}
