//! One scan of lists of values as several scans of one value each, which come in an order that the
//! one does not: `{a: {$in: [1, 2]}}` sorted by `b` on `{a: 1, b: 1}`.
//!
//! Always true: the bounds are disjoint, and together they are the bounds of the one scan.

use crate::interval::Intervals;

/// Into how many scans one may be split.
const MAX_SCANS: usize = 200;

/// A scan split into several.
pub struct Exploded {
    /// The bounds of each.
    pub bounds: Vec<Vec<Intervals>>,
    /// Against the index's order.
    pub backward: bool,
    /// So many leading parts have one value in each scan.
    prefix: usize,
}

impl Exploded {
    /// The leading parts, as a mask of multikey parts has them.
    pub fn parts(&self) -> u32 {
        1_u32.checked_shl(self.prefix as u32).map_or(u32::MAX, |end| end - 1)
    }
}

/// The fewest scans that come in the order asked for. `provides` says whether a scan of some bounds
/// does, and if so whether backward.
pub fn exploded(
    bounds: &[Intervals],
    provides: impl Fn(&[Intervals]) -> Option<bool>,
) -> Option<Exploded> {
    let mut first = bounds.to_vec();
    let mut scans = 1_usize;
    for (at, part) in bounds.iter().enumerate() {
        let values = part.as_slice().len();
        scans = scans.saturating_mul(values);
        if !part.is_points() || scans == 0 || scans > MAX_SCANS {
            return None;
        }
        if values == 1 {
            continue;
        }
        first[at] = part.single(0);
        if let Some(backward) = provides(&first) {
            let prefix = at + 1;
            return Some(Exploded { bounds: product(bounds, prefix), backward, prefix });
        }
    }
    None
}

/// The bounds with every combination of the values of the first `prefix` parts.
fn product(bounds: &[Intervals], prefix: usize) -> Vec<Vec<Intervals>> {
    let mut all = vec![bounds.to_vec()];
    for at in 0..prefix {
        all = all
            .iter()
            .flat_map(|one| {
                (0..bounds[at].as_slice().len()).map(|value| {
                    let mut one = one.clone();
                    one[at] = bounds[at].single(value);
                    one
                })
            })
            .collect();
    }
    all
}
