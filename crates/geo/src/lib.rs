//! Geometry as MongoDB's geospatial operators mean it: GeoJSON on a sphere, legacy shapes on a plane.
//!
//! [`parse`] reads shapes from BSON with MongoDB's errors, [`sphere`] and [`flat`] answer what lies
//! in, meets or is near what, and [`cell`] and [`grid`] turn shapes into the cells that indexes hold
//! and into the ranges of cells that a search must look at.
//!
//! Always true:
//! 1. Which side of an edge a point lies on is decided exactly, so no two questions about the same
//!    points contradict each other.
//! 2. The border of a shape belongs to it.
//! 3. The ranges of a search hold a cell of every geometry that the shape searched for meets; they
//!    may hold others.
//!
//! What goes over many edges ends early where its operation is stopped (`limits::poll_or_stop`). Reading a
//! geometry then fails; whoever asks of a relation, distance or cover asks `limits::take_stop_error` before the
//! answer is used.
#![forbid(unsafe_code)]

pub mod cell;
mod cover;
pub mod flat;
pub mod grid;
pub mod parse;
pub mod polygon;
pub mod sphere;
pub mod vector;

#[cfg(test)]
mod tests;

pub use flat::Flat;
pub use grid::Grid;
pub use parse::{Geometry, Region};
pub use sphere::{Cap, Shape};
pub use vector::Vector;

/// The radius of MongoDB's Earth.
pub const EARTH_RADIUS_METRES: f64 = 6_378_100.0;
