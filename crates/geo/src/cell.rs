//! Cells of the sphere: the six faces of a cube around it, each a square that falls into four, up
//! to thirty times.
//!
//! A cell's number is the face in three bits, two bits for each level that say which quarter, a one,
//! and zeros; a cell holds exactly those whose numbers lie around its own as far as its zeros reach.
//! As a signed number it is what a `2dsphere` index holds. On disk: `docs/formats/catalog.md`.
//!
//! Always true: a point lies in the cells of all levels above its own, and a search that looks at a
//! cell finds every point in it: where rounding could tell, cells are taken a little larger.

use crate::cover::{Coverable, Cut, Quadrant, cover, interleaved, joined};
use crate::sphere::Shape;
use crate::vector::{Vector, distance_to_arc};
use std::f64::consts::PI;

/// The level of the smallest cells.
const LEAF_LEVEL: u32 = 30;
/// Shapes are covered by cells of about a metre at the finest.
const FINEST_LEVEL: u32 = 23;
/// How many cells an index holds of a shape.
const KEY_CELLS: usize = 20;
/// How many cells a search looks at, and those around them.
const SEARCH_CELLS: usize = 20;
/// How much larger than itself a cell is taken: a few roundings, far less than the smallest cell.
const PAD: f64 = 1e-14;
/// What rounding may do to the product of two points and a corner.
const MARGIN: f64 = 1e-14;
/// What rounding may do to a distance, in radians: half a centimetre.
const SLACK: f64 = 1e-9;

/// A square on a face of the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    face: u8,
    level: u32,
    i: u32,
    j: u32,
}

/// What a search looks for on the sphere.
#[derive(Clone, Copy, Debug)]
pub enum Area<'a> {
    /// What meets a shape.
    Shape(&'a Shape),
    /// What comes within these angles of a point.
    Around {
        /// The point.
        centre: Vector,
        /// The least angle, in radians.
        low: f64,
        /// The greatest.
        high: f64,
    },
}

/// The coordinate on a face, of a share of its side: MongoDB's and S2's quadratic way to make cells
/// of a level about equally large.
fn projected(share: f64) -> f64 {
    if share >= 0.5 {
        (4.0 * share * share - 1.0) / 3.0
    } else {
        (1.0 - 4.0 * (1.0 - share) * (1.0 - share)) / 3.0
    }
}

/// The share of the side, of a coordinate on a face.
fn share(coordinate: f64) -> f64 {
    if coordinate >= 0.0 {
        0.5 * (1.0 + 3.0 * coordinate).sqrt()
    } else {
        1.0 - 0.5 * (1.0 - 3.0 * coordinate).sqrt()
    }
}

/// A direction as one face sees it: how far towards the face, and along its two sides.
fn seen_from(face: u8, point: Vector) -> [f64; 3] {
    let Vector { x, y, z } = if face < 3 { point } else { point.antipode() };
    match face % 3 {
        0 => [x, y, z],
        1 => [y, z, x],
        _ => [z, x, y],
    }
}

/// The direction that a face sees so.
fn shown_to(face: u8, [depth, along, up]: [f64; 3]) -> Vector {
    let point = match face % 3 {
        0 => Vector::new(depth, along, up),
        1 => Vector::new(up, depth, along),
        _ => Vector::new(along, up, depth),
    };
    if face < 3 { point } else { point.antipode() }
}

impl Quadrant for Cell {
    fn level(self) -> u32 {
        self.level
    }

    fn parts(self) -> [Self; 4] {
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j)| Self {
            face: self.face,
            level: self.level + 1,
            i: self.i * 2 + i,
            j: self.j * 2 + j,
        })
    }
}

impl Cell {
    fn faces() -> [Self; 6] {
        [0, 1, 2, 3, 4, 5].map(|face| Self { face, level: 0, i: 0, j: 0 })
    }

    /// The smallest cell around a point.
    fn leaf(point: Vector) -> Self {
        let sizes = [point.x.abs(), point.y.abs(), point.z.abs()];
        let axis = if sizes[0] >= sizes[1] && sizes[0] >= sizes[2] {
            0
        } else if sizes[1] >= sizes[2] {
            1
        } else {
            2
        };
        let face = if [point.x, point.y, point.z][axis] < 0.0 { axis + 3 } else { axis } as u8;
        let [depth, along, up] = seen_from(face, point);
        let side = f64::from(1_u32 << LEAF_LEVEL);
        let place = |coordinate: f64| (share(coordinate) * side).clamp(0.0, side - 1.0) as u32;
        Self { face, level: LEAF_LEVEL, i: place(along / depth), j: place(up / depth) }
    }

    fn number(self) -> u64 {
        let free = 2 * (LEAF_LEVEL - self.level);
        u64::from(self.face) << 61 | interleaved(self.i, self.j) << (free + 1) | 1 << free
    }

    /// The numbers of all cells in it.
    fn range(self) -> (i64, i64) {
        let reach = (1_u64 << (2 * (LEAF_LEVEL - self.level))) - 1;
        ((self.number() - reach) as i64, (self.number() + reach) as i64)
    }

    /// The cells around it.
    fn ancestors(self) -> impl Iterator<Item = Self> {
        (0..self.level).map(move |level| {
            let up = self.level - level;
            Self { level, i: self.i >> up, j: self.j >> up, ..self }
        })
    }

    /// Its least and greatest coordinates on the face.
    fn bounds(self) -> [(f64, f64); 2] {
        let side = f64::from(1_u32 << self.level);
        [self.i, self.j].map(|at| {
            let (low, high) = (f64::from(at) / side, f64::from(at + 1) / side);
            (projected(low) - PAD, projected(high) + PAD)
        })
    }

    fn corners(self) -> [Vector; 4] {
        let [(left, right), (low, high)] = self.bounds();
        [(left, low), (right, low), (right, high), (left, high)]
            .map(|(along, up)| shown_to(self.face, [1.0, along, up]).unit())
    }

    fn centre(self) -> Vector {
        let [(left, right), (low, high)] = self.bounds();
        shown_to(self.face, [1.0, f64::midpoint(left, right), f64::midpoint(low, high)]).unit()
    }

    /// How far a point of the face's side of the sphere lies within each of the cell's borders.
    fn within(self, [depth, along, up]: [f64; 3]) -> [f64; 5] {
        let [(left, right), (low, high)] = self.bounds();
        [along - left * depth, right * depth - along, up - low * depth, high * depth - up, depth]
    }

    /// Whether an arc may have a point in it; never wrong where it says no.
    fn may_meet(self, from: Vector, to: Vector) -> bool {
        let (from, to) = (seen_from(self.face, from), seen_from(self.face, to));
        let (at_from, at_to) = (self.within(from), self.within(to));
        if at_from.iter().zip(at_to).any(|(a, b)| *a < 0.0 && b < 0.0) {
            return false;
        }
        // The arc's circle, where all corners lie on one side of it.
        let normal = Vector::new(from[0], from[1], from[2]).cross(Vector::new(to[0], to[1], to[2]));
        let [(left, right), (low, high)] = self.bounds();
        let corners = [(left, low), (right, low), (right, high), (left, high)];
        let sides = corners.map(|(along, up)| normal.dot(Vector::new(1.0, along, up)));
        !(sides.iter().all(|side| *side > MARGIN) || sides.iter().all(|side| *side < -MARGIN))
    }

    /// The angle from a point to the nearest of it.
    fn distance(self, from: Vector) -> f64 {
        if self.within(seen_from(self.face, from)).iter().all(|inside| *inside >= 0.0) {
            return 0.0;
        }
        let [a, b, c, d] = self.corners();
        [(a, b), (b, c), (c, d), (d, a)]
            .map(|(from_corner, to_corner)| distance_to_arc(from, from_corner, to_corner))
            .into_iter()
            .fold(PI, f64::min)
    }
}

/// A shape and everything that is drawn of it.
struct Drawn<'a> {
    shape: &'a Shape,
    edges: Vec<(Vector, Vector)>,
}

impl Coverable for Drawn<'_> {
    type Cell = Cell;
    /// The edges that may meet the cell.
    type Part = Vec<usize>;

    fn cut(&self, cell: Cell, around: &Vec<usize>) -> Cut<Vec<usize>> {
        let meets = |at: &usize| cell.may_meet(self.edges[*at].0, self.edges[*at].1);
        let known = around.iter().copied().take_while(|_| !limits::poll_or_stop(1));
        let part: Vec<usize> = known.filter(meets).collect();
        if !part.is_empty() {
            Cut::Border(part)
        } else if self.shape.area_contains(cell.centre()) {
            Cut::Inside
        } else {
            Cut::Outside
        }
    }
}

/// What lies within two angles of a point.
struct Around {
    centre: Vector,
    low: f64,
    high: f64,
}

impl Coverable for Around {
    type Cell = Cell;
    type Part = ();

    fn cut(&self, cell: Cell, (): &()) -> Cut<()> {
        let nearest = cell.distance(self.centre);
        let farthest = PI - cell.distance(self.centre.antipode());
        if nearest > self.high + SLACK || farthest < self.low - SLACK {
            Cut::Outside
        } else if nearest >= self.low && farthest <= self.high {
            Cut::Inside
        } else {
            Cut::Border(())
        }
    }
}

fn cells_of(area: Area<'_>, max_cells: usize) -> Vec<Cell> {
    let faces = Cell::faces();
    match area {
        Area::Shape(shape) => {
            let drawn = Drawn { shape, edges: shape.edges() };
            let all = (0..drawn.edges.len()).collect();
            cover(&drawn, &faces, &all, max_cells, FINEST_LEVEL)
        }
        Area::Around { centre, low, high } => {
            cover(&Around { centre, low, high }, &faces, &(), max_cells, FINEST_LEVEL)
        }
    }
}

/// What an index holds of a shape: the smallest cell around a point, cells that cover anything else.
pub fn keys(shape: &Shape) -> Vec<i64> {
    if let Some(point) = shape.as_point() {
        return vec![Cell::leaf(point).number() as i64];
    }
    let cells = cells_of(Area::Shape(shape), KEY_CELLS);
    cells.into_iter().map(|cell| cell.number() as i64).collect()
}

/// The ranges in which an index holds what a search may find. Where it holds points only, the cells
/// around those searched are left out.
pub fn search(area: Area<'_>, points_only: bool) -> Vec<(i64, i64)> {
    let cells = cells_of(area, SEARCH_CELLS);
    let mut ranges: Vec<(i64, i64)> = cells.iter().map(|cell| cell.range()).collect();
    if !points_only {
        let around = cells.iter().flat_map(|cell| cell.ancestors());
        ranges.extend(around.map(|cell| (cell.number() as i64, cell.number() as i64)));
    }
    joined(ranges)
}
