//! The points that are planned: enough of them, each once.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

fn planned(is_quick: bool) -> Vec<Phase> {
    let plan = Plan { clients: 4, is_quick, cache_bytes: Some(32 << 20), rounds: Cell::new(1) };
    let curves = Curve::value_variants().iter();
    curves.flat_map(|curve| curve.phases(&plan).unwrap()).collect()
}

#[test]
fn every_curve_has_points_enough_to_be_judged_by() {
    let mut places: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    for point in planned(false).iter().filter_map(|phase| phase.point) {
        places.entry((point.curve, point.operation)).or_default().insert(point.at);
    }
    let curves: BTreeSet<_> = places.keys().map(|(curve, _)| *curve).collect();
    assert_eq!(curves.len(), Curve::value_variants().len());
    for (line, places) in places {
        assert!(places.range(1..).count() >= 3, "{line:?}: {places:?}");
    }
}

#[test]
fn a_quick_run_has_some_of_the_points_of_each() {
    let (all, quick) = (planned(false), planned(true));
    assert!(quick.len() < all.len());
    let curves: BTreeSet<_> = quick.iter().filter_map(|p| p.point.map(|p| p.curve)).collect();
    assert_eq!(curves.len(), Curve::value_variants().len());
}

#[test]
fn no_point_is_measured_twice() {
    let mut names = BTreeSet::new();
    for phase in planned(false).iter().filter(|phase| phase.point.is_some()) {
        assert!(names.insert(phase.name.clone()), "{}", phase.name);
    }
}

#[test]
fn a_server_that_does_not_tell_its_cache_has_no_curve_of_data() {
    let plan = Plan { clients: 4, is_quick: true, cache_bytes: None, rounds: Cell::new(1) };
    for curve in Curve::value_variants() {
        assert_eq!(curve.phases(&plan).is_err(), *curve == Curve::Data, "{curve:?}");
    }
}
