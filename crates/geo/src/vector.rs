//! Points on the unit sphere as directions from its centre, and edges between them as the shorter
//! arc of a great circle.
//!
//! Always true: the sign of [`side`] is exact for the coordinates at hand; lengths and angles are
//! rounded as floating point is.

use robust::{Coord3D, orient3d};

/// A direction from the centre of the sphere.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the coordinates of a vector")]
pub struct Vector {
    pub x: f64,
    pub y: f64,
    pub z: f64,
}

/// Sine and cosine of degrees, exact at the quarters: the antimeridian and the poles are one place
/// however they are written.
fn sine_and_cosine(degrees: f64) -> (f64, f64) {
    let quarter = degrees / 90.0;
    if quarter.fract() == 0.0 {
        return match (quarter as i64).rem_euclid(4) {
            0 => (0.0, 1.0),
            1 => (1.0, 0.0),
            2 => (0.0, -1.0),
            _ => (-1.0, 0.0),
        };
    }
    degrees.to_radians().sin_cos()
}

impl Vector {
    /// Any direction.
    pub const fn new(x: f64, y: f64, z: f64) -> Self {
        Self { x, y, z }
    }

    /// The place of a longitude and latitude.
    pub fn from_degrees(longitude: f64, latitude: f64) -> Self {
        let (sin_longitude, cos_longitude) = sine_and_cosine(longitude);
        let (sin_latitude, cos_latitude) = sine_and_cosine(latitude);
        Self::new(cos_latitude * cos_longitude, cos_latitude * sin_longitude, sin_latitude)
    }

    /// Its longitude and latitude, in degrees.
    pub fn degrees(self) -> (f64, f64) {
        let longitude = self.y.atan2(self.x).to_degrees();
        (longitude, self.z.atan2(self.x.hypot(self.y)).to_degrees())
    }

    /// The product of the lengths and the cosine between them.
    pub fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    /// The normal of the plane through both.
    #[must_use]
    pub fn cross(self, other: Self) -> Self {
        Self::new(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self::new(self.x + other.x, self.y + other.y, self.z + other.z)
    }

    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self::new(self.x - other.x, self.y - other.y, self.z - other.z)
    }

    #[must_use]
    pub(crate) fn times(self, factor: f64) -> Self {
        Self::new(self.x * factor, self.y * factor, self.z * factor)
    }

    /// The opposite point of the sphere.
    #[must_use]
    pub fn antipode(self) -> Self {
        self.times(-1.0)
    }

    /// Its length.
    pub fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The same direction on the unit sphere.
    #[must_use]
    pub fn unit(self) -> Self {
        self.times(1.0 / self.length())
    }

    /// The angle between two directions, in radians.
    pub fn angle(self, other: Self) -> f64 {
        self.cross(other).length().atan2(self.dot(other))
    }

    fn corner(self) -> Coord3D<f64> {
        Coord3D { x: self.x, y: self.y, z: self.z }
    }
}

/// On which side of the great circle from `a` to `b` a point lies: positive on the left as seen from
/// outside, zero on the circle.
pub fn side(a: Vector, b: Vector, point: Vector) -> f64 {
    let centre = Coord3D { x: 0.0, y: 0.0, z: 0.0 };
    orient3d(a.corner(), b.corner(), point.corner(), centre)
}

/// Whether a point lies on the arc from `a` to `b`, its ends included.
pub(crate) fn is_on(point: Vector, a: Vector, b: Vector) -> bool {
    if point == a || point == b {
        return true;
    }
    if side(a, b, point) != 0.0 {
        return false;
    }
    let length = a.dot(b);
    // The half around the middle leaves out the far side of the circle.
    point.dot(a.plus(b)) > 0.0 && point.dot(a) >= length && point.dot(b) >= length
}

/// Whether two arcs cross at a point inside both.
pub(crate) fn crosses(a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    let of_a = side(c, d, a);
    if of_a == 0.0 {
        return false;
    }
    let sign = of_a.signum();
    // All four agree only where the arcs meet; where their circles meet on the far side they do not.
    side(c, d, b) * sign < 0.0 && side(a, b, c) * sign < 0.0 && side(a, b, d) * sign > 0.0
}

/// Whether two arcs have a point in common.
pub(crate) fn touches(a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    crosses(a, b, c, d) || is_on(c, a, b) || is_on(d, a, b) || is_on(a, c, d) || is_on(b, c, d)
}

/// The angle from a point to the nearest of an arc.
pub(crate) fn distance_to_arc(point: Vector, a: Vector, b: Vector) -> f64 {
    let normal = a.cross(b);
    let length = normal.length();
    let between = normal.cross(a).dot(point) > 0.0 && b.cross(normal).dot(point) > 0.0;
    if length == 0.0 || !between {
        return point.angle(a).min(point.angle(b));
    }
    let height = normal.times(1.0 / length);
    // The angle to the plane, precise also where it is small or close to a right angle.
    let along = point.minus(height.times(point.dot(height))).length();
    point.dot(height).abs().atan2(along)
}
