//! The grid of a `2d` index: a square of the plane that falls into four, as often as it has bits.
//!
//! A place's number is which quarter it lies in at each level, two bits a level, the first level
//! first: the squares of every level are ranges of numbers. On disk: `docs/formats/catalog.md`.
//!
//! Always true: a search that looks at a square finds every point in it: squares are taken a little
//! larger than they are.

use crate::cover::{Coverable, Cut, Quadrant, cover, interleaved, joined};
use crate::flat::{self, Flat, Point};
use crate::sphere::Cap;
use std::f64::consts::FRAC_PI_2;

/// How many squares a search looks at.
const SEARCH_CELLS: usize = 20;

/// The grid: its bits a side, and its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// From 1 to 32.
    pub bits: u32,
    /// The least coordinate.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Default for Grid {
    /// Degrees, to about half a metre.
    fn default() -> Self {
        Self { bits: 26, min: -180.0, max: 180.0 }
    }
}

/// What a search looks for on the plane.
#[derive(Clone, Copy, Debug)]
pub enum Area<'a> {
    /// What lies in a shape.
    Shape(&'a Flat),
    /// What lies within these distances of a place.
    Around {
        /// The place.
        centre: Point,
        /// The least distance.
        low: f64,
        /// The greatest.
        high: f64,
    },
    /// What lies in a cap of the sphere, in degrees.
    Cap(Cap),
}

/// A square of the grid.
#[derive(Clone, Copy)]
struct Square {
    level: u32,
    i: u32,
    j: u32,
}

impl Quadrant for Square {
    fn level(self) -> u32 {
        self.level
    }

    fn parts(self) -> [Self; 4] {
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j)| Self {
            level: self.level + 1,
            i: self.i * 2 + i,
            j: self.j * 2 + j,
        })
    }
}

impl Grid {
    /// Whether a place lies on it.
    pub fn holds(&self, (x, y): Point) -> bool {
        let within = |value: f64| self.min <= value && value <= self.max;
        within(x) && within(y)
    }

    /// The number of a place that lies on it.
    pub fn key(&self, (x, y): Point) -> i64 {
        let side = f64::from(self.bits).exp2();
        let scale = side / (self.max - self.min);
        let at = |value: f64| ((value - self.min) * scale).clamp(0.0, side - 1.0) as u32;
        self.signed(interleaved(at(x), at(y)))
    }

    /// Numbers of 64 bits keep their order as signed ones.
    fn signed(&self, number: u64) -> i64 {
        if self.bits == 32 { (number ^ 1 << 63) as i64 } else { number as i64 }
    }

    fn range(&self, square: Square) -> (i64, i64) {
        let free = 2 * (self.bits - square.level);
        let below = if free >= 64 { u64::MAX } else { (1 << free) - 1 };
        let first = if free >= 64 { 0 } else { interleaved(square.i, square.j) << free };
        (self.signed(first), self.signed(first | below))
    }

    /// The ranges in which an index holds what a search may find.
    pub fn search(&self, area: Area<'_>) -> Vec<(i64, i64)> {
        let boxes = match area {
            Area::Cap(cap) => boxes_around(&cap),
            _ => Vec::new(),
        };
        let region = OnGrid { grid: *self, area, boxes };
        let whole = Square { level: 0, i: 0, j: 0 };
        let squares = cover(&region, &[whole], &(), SEARCH_CELLS, self.bits);
        joined(squares.into_iter().map(|square| self.range(square)).collect())
    }
}

/// An area, cut by the squares of a grid.
struct OnGrid<'a> {
    grid: Grid,
    area: Area<'a>,
    /// Around a cap.
    boxes: Vec<(Point, Point)>,
}

impl Coverable for OnGrid<'_> {
    type Cell = Square;
    type Part = ();

    fn cut(&self, cell: Square, (): &()) -> Cut<()> {
        let Grid { min, max, .. } = self.grid;
        let pad = (max - min) * 1e-12;
        let size = (max - min) / f64::from(cell.level).exp2();
        let bounds = |at: u32| {
            let low = min + size * f64::from(at);
            (low - pad, low + size + pad)
        };
        let ((left, right), (bottom, top)) = (bounds(cell.i), bounds(cell.j));
        let (low, high) = ((left, bottom), (right, top));
        match self.area {
            Area::Shape(Flat::Box(from, to)) => of_box(low, high, *from, *to),
            Area::Shape(Flat::Polygon(corners)) => of_polygon(low, high, corners),
            Area::Shape(Flat::Circle(centre, radius)) => {
                of_ring(low, high, *centre, (0.0, *radius), pad)
            }
            Area::Around { centre, low: least, high: most } => {
                of_ring(low, high, centre, (least, most), pad)
            }
            Area::Cap(_) => {
                let cuts = self.boxes.iter().map(|(from, to)| of_box(low, high, *from, *to));
                cuts.fold(Cut::Outside, |so_far, cut| match (so_far, cut) {
                    (Cut::Inside, _) | (_, Cut::Inside) => Cut::Inside,
                    (Cut::Outside, Cut::Outside) => Cut::Outside,
                    _ => Cut::Border(()),
                })
            }
        }
    }
}

fn of_box(low: Point, high: Point, from: Point, to: Point) -> Cut<()> {
    if high.0 < from.0 || high.1 < from.1 || to.0 < low.0 || to.1 < low.1 {
        Cut::Outside
    } else if from.0 <= low.0 && from.1 <= low.1 && high.0 <= to.0 && high.1 <= to.1 {
        Cut::Inside
    } else {
        Cut::Border(())
    }
}

fn of_ring(low: Point, high: Point, centre: Point, (least, most): (f64, f64), pad: f64) -> Cut<()> {
    let gap = |low: f64, high: f64, at: f64| (low - at).max(at - high).max(0.0);
    let reach = |low: f64, high: f64, at: f64| (at - low).abs().max((high - at).abs());
    let nearest = gap(low.0, high.0, centre.0).hypot(gap(low.1, high.1, centre.1));
    let farthest = reach(low.0, high.0, centre.0).hypot(reach(low.1, high.1, centre.1));
    // Distances of far places are rounded more than coordinates are.
    let slack = pad + farthest * 1e-12;
    if nearest > most + slack || farthest < least - slack {
        Cut::Outside
    } else if nearest >= least && farthest <= most {
        Cut::Inside
    } else {
        Cut::Border(())
    }
}

fn of_polygon(low: Point, high: Point, polygon: &[Point]) -> Cut<()> {
    let corners = [low, (high.0, low.1), high, (low.0, high.1)];
    let meets = |a: Point, b: Point| {
        let apart = (a.0 < low.0 && b.0 < low.0)
            || (a.0 > high.0 && b.0 > high.0)
            || (a.1 < low.1 && b.1 < low.1)
            || (a.1 > high.1 && b.1 > high.1);
        let sides = corners.map(|corner| flat::side(a, b, corner));
        !(apart || sides.iter().all(|side| *side > 0.0) || sides.iter().all(|side| *side < 0.0))
    };
    if flat::edges(polygon).any(|(a, b)| meets(a, b)) {
        Cut::Border(())
    } else if flat::polygon_contains(polygon, low) {
        Cut::Inside
    } else {
        Cut::Outside
    }
}

/// Longitudes and latitudes that a cap does not reach beyond.
fn boxes_around(cap: &Cap) -> Vec<(Point, Point)> {
    let (longitude, latitude) = cap.centre.degrees();
    // A little more, for what rounding takes away.
    let radius = cap.radius.min(std::f64::consts::PI) + 1e-9;
    let reach = radius.to_degrees();
    let (south, north) = (latitude - reach, latitude + reach);
    if south <= -90.0 || north >= 90.0 {
        return vec![((-180.0, south.max(-90.0)), (180.0, north.min(90.0)))];
    }
    let ratio = radius.sin() / latitude.to_radians().cos();
    if ratio >= 1.0 || radius >= FRAC_PI_2 {
        return vec![((-180.0, south), (180.0, north))];
    }
    let width = ratio.asin().to_degrees();
    let (west, east) = (longitude - width, longitude + width);
    let band = |west: f64, east: f64| ((west, south), (east, north));
    if west < -180.0 {
        vec![band(-180.0, east), band(west + 360.0, 180.0)]
    } else if east > 180.0 {
        vec![band(west, 180.0), band(-180.0, east - 360.0)]
    } else {
        vec![band(west, east)]
    }
}
