//! How steep a curve is at its end.

use crate::phase::Allowed;

/// The points that are looked at: what happens once, where the data outgrows the cache or the first connection is
/// joined by another, is behind them.
const POINTS: usize = 3;

/// Between n = 100 and n = 10,000 a logarithm doubles, which is n^0.15; the rest is for what measurements differ by.
const LOGARITHM: f64 = 0.3;
/// In proportion is n^1.
const PROPORTION: f64 = 1.2;

/// The power of the place that the costs of the last points follow; none of fewer than three points.
pub(super) fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let told = points.iter().filter(|(at, cost)| *at > 0.0 && *cost > 0.0);
    let told: Vec<(f64, f64)> = told.map(|(at, cost)| (at.ln(), cost.ln())).collect();
    let last = told.len().checked_sub(POINTS).map(|first| &told[first..])?;
    let mean = |of: fn(&(f64, f64)) -> f64| last.iter().map(of).sum::<f64>() / POINTS as f64;
    let (at, cost) = (mean(|point| point.0), mean(|point| point.1));
    let both: f64 = last.iter().map(|point| (point.0 - at) * (point.1 - cost)).sum();
    let spread: f64 = last.iter().map(|point| (point.0 - at).powi(2)).sum();
    (spread > 0.0).then(|| both / spread)
}

/// Whether an operation may cost so much more.
pub(super) fn is_allowed(exponent: f64, allowed: Allowed) -> bool {
    exponent
        <= match allowed {
            Allowed::Logarithm => LOGARITHM,
            Allowed::Proportion => PROPORTION,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(cost: fn(f64) -> f64) -> f64 {
        let places = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];
        exponent(&places.map(|at| (at, cost(at)))).unwrap()
    }

    #[test]
    fn the_power_is_that_of_the_cost() {
        for (cost, power) in [
            ((|_| 17.0) as fn(f64) -> f64, 0.0),
            (|n| 3.0 * n.sqrt(), 0.5),
            (|n| 0.2 * n, 1.0),
            (|n| n * n, 2.0),
        ] {
            assert!((curve(cost) - power).abs() < 1e-9, "{power}: {}", curve(cost));
        }
    }

    #[test]
    fn a_logarithm_may_be_and_a_root_may_not() {
        assert!(is_allowed(curve(|n| 5.0 + n.max(2.0).ln()), Allowed::Logarithm));
        assert!(!is_allowed(curve(f64::sqrt), Allowed::Logarithm));
        assert!(is_allowed(curve(|n| 40.0 + n), Allowed::Proportion));
        assert!(!is_allowed(curve(|n| n * n), Allowed::Proportion));
    }

    #[test]
    fn what_happens_once_is_no_growth() {
        let points = [(0.0, 2.0), (1.0, 2.0), (10.0, 90.0), (100.0, 90.0), (1_000.0, 90.0)];
        assert_eq!(exponent(&points), Some(0.0));
        assert_eq!(exponent(&points[..3]), None, "a point at 0 has no logarithm");
    }
}
