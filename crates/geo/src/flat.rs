//! Shapes on the plane: what `$box`, `$polygon` and `$center` mean.
//!
//! Always true: the border belongs to the shape.

use robust::{Coord, orient2d};

/// A point of the plane.
pub type Point = (f64, f64);

/// A shape on the plane.
#[derive(Clone, Debug, PartialEq)]
pub enum Flat {
    /// From the lower left corner to the upper right one.
    Box(Point, Point),
    /// A closed line through at least three points; the last is joined to the first.
    Polygon(Vec<Point>),
    /// A centre and a radius.
    Circle(Point, f64),
}

/// How far two points are from each other.
pub fn distance(a: Point, b: Point) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

/// On which side of the line from `a` to `b` a point lies; exact.
pub(crate) fn side(a: Point, b: Point, point: Point) -> f64 {
    let corner = |place: Point| Coord { x: place.0, y: place.1 };
    orient2d(corner(a), corner(b), corner(point))
}

fn is_on(point: Point, a: Point, b: Point) -> bool {
    let within = |low: f64, high: f64, value: f64| low.min(high) <= value && value <= low.max(high);
    side(a, b, point) == 0.0 && within(a.0, b.0, point.0) && within(a.1, b.1, point.1)
}

/// The edges of a polygon.
pub(crate) fn edges(corners: &[Point]) -> impl Iterator<Item = (Point, Point)> + '_ {
    let next = corners.iter().skip(1).chain(corners.first());
    corners.iter().copied().zip(next.copied())
}

pub(crate) fn polygon_contains(corners: &[Point], point: Point) -> bool {
    let mut inside = false;
    for (a, b) in edges(corners) {
        if is_on(point, a, b) {
            return true;
        }
        // A ray to the right, which takes of each edge the lower end only.
        if (a.1 > point.1) != (b.1 > point.1) {
            let left = side(a, b, point) > 0.0;
            inside ^= left == (b.1 > a.1);
        }
    }
    inside
}

impl Flat {
    /// A box between two opposite corners.
    pub fn between(a: Point, b: Point) -> Self {
        Self::Box((a.0.min(b.0), a.1.min(b.1)), (a.0.max(b.0), a.1.max(b.1)))
    }

    /// Whether a point lies in it.
    pub fn contains(&self, point: Point) -> bool {
        match self {
            Self::Box(low, high) => {
                low.0 <= point.0 && point.0 <= high.0 && low.1 <= point.1 && point.1 <= high.1
            }
            Self::Polygon(corners) => polygon_contains(corners, point),
            Self::Circle(centre, radius) => distance(*centre, point) <= *radius,
        }
    }
}
