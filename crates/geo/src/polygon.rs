//! Polygons on the sphere: a ring around an area, and rings around holes in it.
//!
//! A ring's area lies on its left. Whether a point is in it is decided by counting how often the
//! arc from the point to a place that is known crosses the ring; the known place is the antipode of
//! the ring's first vertex.
//!
//! Always true: a ring has at least three vertices, all of them different, and no two of its edges
//! meet but at a vertex they share.

use crate::vector::{Vector, crosses, distance_to_arc, is_on, side, touches};
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// A closed line with an area on its left.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring {
    vertices: Vec<Vector>,
    /// Whether the antipode of the first vertex lies in the area.
    antipode_inside: bool,
}

/// An area with holes.
#[derive(Clone, Debug, PartialEq)]
pub struct Polygon {
    pub(crate) shell: Ring,
    pub(crate) holes: Vec<Ring>,
}

/// Why vertices make no ring.
pub(crate) fn ring_fault(vertices: &[Vector]) -> Option<String> {
    let count = vertices.len();
    let mut known: BTreeMap<[u64; 3], usize> = BTreeMap::new();
    for (at, vertex) in vertices.iter().enumerate() {
        // Adding zero makes one of the two zeros.
        let bits = [vertex.x, vertex.y, vertex.z].map(|value| (value + 0.0).to_bits());
        if let Some(first) = known.insert(bits, at) {
            return Some(format!("Duplicate vertices: {first} and {at}"));
        }
    }
    let edge = |at: usize| (vertices[at], vertices[(at + 1) % count]);
    let opposite = (0..count).map(edge).position(|(a, b)| a == b.antipode());
    if let Some(at) = opposite {
        return Some(format!("Vertices {at} and {} are antipodal", (at + 1) % count));
    }
    // Around the middle of an edge, how far it reaches: most pairs are told apart by that.
    let reach: Vec<(Vector, f64)> = (0..count)
        .map(|at| {
            let (a, b) = edge(at);
            let middle = a.plus(b).unit();
            (middle, middle.minus(a).length() + 1e-12)
        })
        .collect();
    // In the order in which edges begin along one axis, those that one may meet follow it closely.
    let axis = widest_axis(vertices);
    let mut order: Vec<(f64, f64, usize)> = reach
        .iter()
        .enumerate()
        .map(|(at, (middle, far))| (axis(*middle) - far, axis(*middle) + far, at))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (place, (_, end, one)) in order.iter().enumerate() {
        let near = order[place + 1..].iter().take_while(|(begin, ..)| begin <= end);
        let near = near.take_while(|_| !limits::poll_or_stop(1));
        for (_, _, other) in near {
            let (first, second) = (*one.min(other), *one.max(other));
            let ((middle, far), (other_middle, other_far)) = (reach[first], reach[second]);
            let gap = middle.minus(other_middle);
            if gap.dot(gap) > (far + other_far) * (far + other_far) {
                continue;
            }
            let ((a, b), (c, d)) = (edge(first), edge(second));
            let next = second == first + 1;
            let around = first == 0 && second + 1 == count;
            let fault = match (next, around) {
                // Neighbours share a vertex; they may not run back over each other.
                (true, false) => is_on(d, a, b) || is_on(a, c, d),
                (false, true) => is_on(b, c, d) || is_on(c, a, b),
                (true, true) => false,
                (false, false) => touches(a, b, c, d),
            };
            if fault {
                return Some(format!(
                    "Edges {first} and {second} cross. Edge locations in degrees: {}-{} and {}-{}",
                    in_degrees(a),
                    in_degrees(b),
                    in_degrees(c),
                    in_degrees(d)
                ));
            }
        }
    }
    None
}

/// The coordinate in which vertices differ most.
fn widest_axis(vertices: &[Vector]) -> fn(Vector) -> f64 {
    let axes: [fn(Vector) -> f64; 3] = [|v| v.x, |v| v.y, |v| v.z];
    let width = |axis: fn(Vector) -> f64| {
        let (low, high) = vertices.iter().fold((1.0_f64, -1.0_f64), |(low, high), vertex| {
            (low.min(axis(*vertex)), high.max(axis(*vertex)))
        });
        high - low
    };
    axes.into_iter().max_by(|a, b| width(*a).total_cmp(&width(*b))).unwrap_or(axes[0])
}

fn in_degrees(point: Vector) -> String {
    let (longitude, latitude) = point.degrees();
    format!("[{latitude:.7}, {longitude:.7}]")
}

/// Twice the tangent rule for the signed area of a triangle, from differences so that small ones
/// keep their digits.
fn signed_area(a: Vector, b: Vector, c: Vector) -> f64 {
    let volume = a.dot(b.minus(a).cross(c.minus(a)));
    2.0 * volume.atan2(1.0 + a.dot(b) + b.dot(c) + c.dot(a))
}

impl Ring {
    /// A ring around the area on the left of its edges.
    pub(crate) fn left_of(vertices: Vec<Vector>) -> Self {
        let first = vertices[0];
        let pairs = vertices[1..].windows(2);
        let area: f64 = pairs.map(|pair| signed_area(first, pair[0], pair[1])).sum();
        // Triangles from the first vertex never hold its antipode, so that what they add up to is
        // the area, less the whole sphere where the antipode is part of it.
        Self { vertices, antipode_inside: area < 0.0 }
    }

    /// A ring around the smaller of the two areas it parts.
    pub(crate) fn enclosing_smaller_area(mut vertices: Vec<Vector>) -> Self {
        let first = vertices[0];
        let pairs = vertices[1..].windows(2);
        let area: f64 = pairs.map(|pair| signed_area(first, pair[0], pair[1])).sum();
        let left = if area < 0.0 { area + 4.0 * PI } else { area };
        if left > 2.0 * PI {
            vertices.reverse();
        }
        Self::left_of(vertices)
    }

    /// Its vertices, the first not repeated.
    pub fn vertices(&self) -> &[Vector] {
        &self.vertices
    }

    /// Its edges in order.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (Vector, Vector)> + '_ {
        let next = self.vertices[1..].iter().chain(&self.vertices[..1]);
        let edges = self.vertices.iter().copied().zip(next.copied());
        edges.take_while(|_| !limits::poll_or_stop(1))
    }

    fn is_on_border(&self, point: Vector) -> bool {
        self.edges().any(|(a, b)| is_on(point, a, b))
    }

    /// Whether a point that is not on the border lies in the area.
    fn surrounds(&self, point: Vector) -> bool {
        let known = self.vertices[0].antipode();
        let mut inside = self.antipode_inside;
        for (a, b) in self.edges() {
            let (a_left, b_left) = (side(point, known, a) > 0.0, side(point, known, b) > 0.0);
            if a_left == b_left {
                continue;
            }
            // The circles cross; the arcs do where their ends lie on both sides of the edge.
            let (of_point, of_known) = (side(a, b, point), side(a, b, known));
            let crossed = if a_left {
                of_point < 0.0 && of_known > 0.0
            } else {
                of_point > 0.0 && of_known < 0.0
            };
            inside ^= crossed;
        }
        inside
    }

    /// Whether a point lies in the area or on its border.
    pub(crate) fn contains(&self, point: Vector) -> bool {
        self.is_on_border(point) || self.surrounds(point)
    }

    fn contains_inside(&self, point: Vector) -> bool {
        !self.is_on_border(point) && self.surrounds(point)
    }

    /// A point a hair's breadth inside of the first edge.
    fn inner_point(&self) -> Vector {
        let (a, b) = (self.vertices[0], self.vertices[1]);
        let left = a.cross(b);
        let step = 1e-6 * a.minus(b).length() / left.length();
        a.plus(b).unit().plus(left.times(step)).unit()
    }
}

impl Polygon {
    /// A polygon of rings that were checked.
    pub(crate) fn new(shell: Ring, holes: Vec<Ring>) -> Self {
        Self { shell, holes }
    }

    /// The edges of its rings.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (Vector, Vector)> + '_ {
        self.shell.edges().chain(self.holes.iter().flat_map(Ring::edges))
    }

    fn is_on_border(&self, point: Vector) -> bool {
        self.edges().any(|(a, b)| is_on(point, a, b))
    }

    /// Whether a point lies in it or on its border.
    pub fn contains(&self, point: Vector) -> bool {
        self.shell.contains(point) && !self.holes.iter().any(|hole| hole.contains_inside(point))
    }

    /// Whether a whole arc lies in it.
    pub(crate) fn contains_arc(&self, a: Vector, b: Vector) -> bool {
        if !self.contains(a) || !self.contains(b) {
            return false;
        }
        // The places where the arc meets corners of the border part it.
        let mut stops = vec![a, b];
        for (c, d) in self.edges() {
            if crosses(a, b, c, d) {
                return false;
            }
            if c != a && c != b && is_on(c, a, b) {
                stops.push(c);
            }
        }
        stops.sort_by(|c, d| a.dot(*d).total_cmp(&a.dot(*c)));
        stops.windows(2).all(|pair| self.contains_piece(pair[0], pair[1]))
    }

    /// Whether an arc between two points of the polygon, which meets no border in between, lies in
    /// it: in doubt only where both ends are on the border.
    fn contains_piece(&self, a: Vector, b: Vector) -> bool {
        if a == b || !self.is_on_border(a) || !self.is_on_border(b) {
            return true;
        }
        self.edges().any(|(c, d)| is_on(a, c, d) && is_on(b, c, d))
            || self.contains(a.plus(b).unit())
    }

    /// Whether another polygon lies in it.
    pub(crate) fn contains_polygon(&self, other: &Self) -> bool {
        other.edges().all(|(a, b)| self.contains_arc(a, b))
            && !self.edges().any(|(a, _)| other.contains(a) && !other.is_on_border(a))
            && self.contains(other.shell.inner_point())
    }

    /// Whether it has a point in common with an arc.
    pub(crate) fn intersects_arc(&self, a: Vector, b: Vector) -> bool {
        self.edges().any(|(c, d)| touches(a, b, c, d)) || self.contains(a)
    }

    /// Whether two polygons have a point in common.
    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.contains(other.shell.vertices[0])
            || other.contains(self.shell.vertices[0])
            || self.edges().any(|(a, b)| other.edges().any(|(c, d)| touches(a, b, c, d)))
    }

    /// Whether the borders of two polygons cross.
    pub(crate) fn crosses(&self, other: &Self) -> bool {
        self.edges().any(|(a, b)| other.edges().any(|(c, d)| crosses(a, b, c, d)))
    }

    /// The angle from a point to the nearest of it.
    pub(crate) fn distance(&self, point: Vector) -> f64 {
        if self.contains(point) {
            return 0.0;
        }
        self.edges().map(|(a, b)| distance_to_arc(point, a, b)).fold(PI, f64::min)
    }
}
