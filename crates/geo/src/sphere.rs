//! What a GeoJSON geometry covers of the sphere, and the caps that circles on it are.

use crate::polygon::Polygon;
use crate::vector::{Vector, distance_to_arc, is_on, touches};
use std::f64::consts::PI;

/// Points, lines and areas on the sphere: every GeoJSON geometry is some of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Single points.
    pub points: Vec<Vector>,
    /// Lines of at least two vertices.
    pub lines: Vec<Vec<Vector>>,
    /// Areas.
    pub polygons: Vec<Polygon>,
}

/// All points within an angle of a centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cap {
    /// Where it is.
    pub centre: Vector,
    /// How far it reaches, in radians.
    pub radius: f64,
}

impl Shape {
    /// One point.
    pub fn point(point: Vector) -> Self {
        Self { points: vec![point], ..Self::default() }
    }

    /// The one point it is, if it is one.
    pub fn as_point(&self) -> Option<Vector> {
        match (&self.points[..], self.lines.is_empty() && self.polygons.is_empty()) {
            ([point], true) => Some(*point),
            _ => None,
        }
    }

    fn own_points(&self) -> impl Iterator<Item = &Vector> {
        self.points.iter().take_while(|_| !limits::poll_or_stop(1))
    }

    fn line_edges(&self) -> impl Iterator<Item = (Vector, Vector)> + '_ {
        let edges = self.lines.iter().flat_map(|line| line.windows(2));
        edges.map(|pair| (pair[0], pair[1])).take_while(|_| !limits::poll_or_stop(1))
    }

    /// Everything that is drawn of it: points as edges without length, lines, and borders.
    pub(crate) fn edges(&self) -> Vec<(Vector, Vector)> {
        let points = self.points.iter().map(|point| (*point, *point));
        let borders = self.polygons.iter().flat_map(Polygon::edges);
        points.chain(self.line_edges()).chain(borders).collect()
    }

    /// Whether a point lies in one of its areas.
    pub(crate) fn area_contains(&self, point: Vector) -> bool {
        self.polygons.iter().any(|polygon| polygon.contains(point))
    }

    fn contains_point(&self, point: Vector) -> bool {
        self.own_points().any(|own| *own == point)
            || self.line_edges().any(|(a, b)| is_on(point, a, b))
            || self.area_contains(point)
    }

    fn intersects_arc(&self, a: Vector, b: Vector) -> bool {
        self.own_points().any(|point| is_on(*point, a, b))
            || self.line_edges().any(|(c, d)| touches(a, b, c, d))
            || self.polygons.iter().any(|polygon| polygon.intersects_arc(a, b))
    }

    fn intersects_polygon(&self, polygon: &Polygon) -> bool {
        self.own_points().any(|point| polygon.contains(*point))
            || self.line_edges().any(|(a, b)| polygon.intersects_arc(a, b))
            || self.polygons.iter().any(|own| own.intersects(polygon))
    }

    /// Whether two shapes have a point in common.
    pub fn intersects(&self, other: &Self) -> bool {
        other.own_points().any(|point| self.contains_point(*point))
            || other.line_edges().any(|(a, b)| self.intersects_arc(a, b))
            || other.polygons.iter().any(|polygon| self.intersects_polygon(polygon))
    }

    /// Whether every part of another shape lies in one of this one's areas.
    pub fn contains(&self, other: &Self) -> bool {
        let within = |part: &dyn Fn(&Polygon) -> bool| self.polygons.iter().any(part);
        other.own_points().all(|point| within(&|area| area.contains(*point)))
            && other.lines.iter().all(|line| {
                within(&|area| line.windows(2).all(|pair| area.contains_arc(pair[0], pair[1])))
            })
            && other.polygons.iter().all(|polygon| within(&|area| area.contains_polygon(polygon)))
    }

    /// The angle from a point to the nearest of it.
    pub fn distance(&self, from: Vector) -> f64 {
        let points = self.points.iter().map(|point| from.angle(*point));
        let lines = self.line_edges().map(|(a, b)| distance_to_arc(from, a, b));
        let polygons = self.polygons.iter().map(|polygon| polygon.distance(from));
        points.chain(lines).chain(polygons).fold(PI, f64::min)
    }
}

impl Cap {
    /// Whether a shape lies in it.
    pub fn contains(&self, shape: &Shape) -> bool {
        if self.radius >= PI {
            return true;
        }
        // What is far from the centre is near its antipode.
        let (far, rest) = (self.centre.antipode(), PI - self.radius);
        shape.points.iter().all(|point| self.centre.angle(*point) <= self.radius)
            && shape.line_edges().all(|(a, b)| distance_to_arc(far, a, b) >= rest)
            && shape.polygons.iter().all(|polygon| polygon.distance(far) >= rest)
    }
}
