//! Geometry as tables: what lies in, meets and is how far from what; what is refused; and that the
//! cells of a search hold whatever it may find.

#![expect(clippy::float_cmp, clippy::needless_pass_by_value, reason = "calls read as tables")]

use crate::parse::{Centre, Geometry, Region};
use crate::{Cap, EARTH_RADIUS_METRES, Flat, Grid, Shape, Vector, cell, grid};
use bson::raw::RawBson;
use bson::{Bson, bson, doc};
use proptest::prelude::*;

fn geometry(value: Bson) -> errors::Result<Geometry> {
    Geometry::parse(RawBson::try_from(value).unwrap().as_raw_bson_ref())
}

fn region(name: &str, value: Bson) -> errors::Result<Region> {
    Region::parse(name, RawBson::try_from(value).unwrap().as_raw_bson_ref())
}

fn geojson(kind: &str, coordinates: Bson) -> Bson {
    Bson::Document(doc! {"type": kind, "coordinates": coordinates})
}

fn point(longitude: f64, latitude: f64) -> Bson {
    geojson("Point", bson!([longitude, latitude]))
}

fn square(low: f64, high: f64) -> Bson {
    bson!([[low, low], [high, low], [high, high], [low, high], [low, low]])
}

fn polygon(loops: Vec<Bson>) -> Bson {
    geojson("Polygon", Bson::Array(loops))
}

fn in_strict_winding(loops: Bson) -> Bson {
    Bson::Document(doc! {
        "type": "Polygon",
        "coordinates": [loops],
        "crs": {
            "type": "name",
            "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}
        }
    })
}

fn check(region: &Region, value: Bson, contains: bool, meets: bool) {
    let parsed = geometry(value.clone()).unwrap();
    assert_eq!(region.contains(&parsed), contains, "{value} in {region:?}");
    if matches!(region, Region::Shape(_)) {
        assert_eq!(region.intersects(&parsed), meets, "{value} meets {region:?}");
    }
}

fn refused(value: Bson, text: &str) {
    let error = geometry(value.clone()).expect_err(&format!("{value} should be refused"));
    assert!(error.message().contains(text), "{value}: {error}");
}

#[test]
fn a_polygon_holds_what_lies_in_it_and_on_its_border() {
    let area = region("$geometry", polygon(vec![square(0.0, 10.0), square(4.0, 6.0)])).unwrap();
    for (longitude, latitude, inside) in [
        (1.0, 1.0, true),
        (0.0, 0.0, true),
        (0.0, 5.0, true),
        (5.0, 0.0, true),
        (5.0, 5.0, false),
        (4.0, 4.0, true),
        (-1.0, 5.0, false),
        (11.0, 5.0, false),
        (5.0, -0.001, false),
        (179.0, 5.0, false),
        (-175.0, -5.0, false),
        (180.0, 0.0, false),
        (0.0, 90.0, false),
    ] {
        check(&area, point(longitude, latitude), inside, inside);
        check(&area, bson!([longitude, latitude]), inside, inside);
    }
    check(&area, geojson("LineString", bson!([[1, 1], [2, 3], [1, 9]])), true, true);
    check(&area, geojson("LineString", bson!([[1, 1], [12, 3]])), false, true);
    check(&area, geojson("LineString", bson!([[1, 5], [9, 5]])), false, true);
    check(&area, geojson("LineString", bson!([[4.5, 5], [5.5, 5]])), false, false);
    check(&area, geojson("LineString", bson!([[-5, 5], [-1, 5]])), false, false);
    check(&area, polygon(vec![square(1.0, 3.0)]), true, true);
    check(&area, polygon(vec![square(0.0, 10.0), square(4.0, 6.0)]), true, true);
    check(&area, polygon(vec![square(0.0, 10.0)]), false, true);
    check(&area, polygon(vec![square(4.0, 6.0)]), false, true);
    check(&area, polygon(vec![square(4.5, 5.5)]), false, false);
    check(&area, polygon(vec![square(-20.0, 20.0)]), false, true);
    check(&area, polygon(vec![square(20.0, 30.0)]), false, false);
    check(&area, geojson("MultiPoint", bson!([[1, 1], [2, 2]])), true, true);
    check(&area, geojson("MultiPoint", bson!([[1, 1], [20, 2]])), false, true);
    let lines = bson!([[[1, 1], [2, 2]], [[20, 20], [30, 30]]]);
    check(&area, geojson("MultiLineString", lines), false, true);
    let areas = bson!([[square(1.0, 2.0)], [square(7.0, 8.0)]]);
    check(&area, geojson("MultiPolygon", areas), true, true);
    let collection = doc! {
        "type": "GeometryCollection",
        "geometries": [point(1.0, 1.0), geojson("LineString", bson!([[1, 1], [2, 2]]))]
    };
    check(&area, Bson::Document(collection), true, true);
}

#[test]
fn the_smaller_side_is_meant_unless_the_winding_is_strict() {
    let clockwise = bson!([[0, 0], [0, 10], [10, 10], [10, 0], [0, 0]]);
    let area = region("$geometry", polygon(vec![clockwise.clone()])).unwrap();
    check(&area, point(5.0, 5.0), true, true);
    check(&area, point(50.0, 5.0), false, false);
    let area = region("$geometry", in_strict_winding(clockwise.clone())).unwrap();
    check(&area, point(5.0, 5.0), false, false);
    check(&area, point(50.0, 5.0), true, true);
    check(&area, point(-175.0, -5.0), true, true);
    let area = region("$geometry", in_strict_winding(square(0.0, 10.0))).unwrap();
    check(&area, point(5.0, 5.0), true, true);
    check(&area, point(50.0, 5.0), false, false);
    // A document's own strict polygon is never matched.
    let world = region("$geometry", in_strict_winding(clockwise)).unwrap();
    let stored = geometry(in_strict_winding(square(20.0, 30.0))).unwrap();
    assert!(!world.contains(&stored) && !world.intersects(&stored));
}

#[test]
fn areas_may_hold_a_pole_and_cross_the_antimeridian() {
    let cap = bson!([[0, 60], [90, 60], [180, 60], [-90, 60], [0, 60]]);
    let area = region("$geometry", polygon(vec![cap])).unwrap();
    check(&area, point(0.0, 90.0), true, true);
    check(&area, point(123.0, 89.0), true, true);
    check(&area, point(45.0, 61.0), false, false);
    check(&area, point(0.0, -90.0), false, false);
    let across = bson!([[170, -10], [-170, -10], [-170, 10], [170, 10], [170, -10]]);
    let area = region("$geometry", polygon(vec![across])).unwrap();
    for (longitude, inside) in [(175.0, true), (180.0, true), (-180.0, true), (-175.0, true)] {
        check(&area, point(longitude, 0.0), inside, inside);
    }
    check(&area, point(0.0, 0.0), false, false);
    check(&area, point(160.0, 0.0), false, false);
}

#[test]
fn edges_are_arcs_of_great_circles() {
    let wide = bson!([[-60, 40], [60, 40], [60, 50], [-60, 50], [-60, 40]]);
    let area = region("$geometry", polygon(vec![wide])).unwrap();
    // Both long edges rise towards the middle: from 40° to 59°, from 50° to 67°.
    check(&area, point(0.0, 45.0), false, false);
    check(&area, point(0.0, 60.0), true, true);
    check(&area, point(0.0, 66.0), true, true);
}

#[test]
fn caps_hold_what_is_near_their_centre() {
    let cap =
        region("$centerSphere", bson!([[10, 50], (100_000.0 / EARTH_RADIUS_METRES)])).unwrap();
    check(&cap, point(10.0, 50.8), true, true);
    check(&cap, point(10.0, 51.0), false, false);
    check(&cap, bson!([11.3, 50]), true, true);
    check(&cap, geojson("LineString", bson!([[10, 50], [10, 50.5]])), true, true);
    check(&cap, geojson("LineString", bson!([[10, 50], [10, 52]])), false, true);
    check(&cap, polygon(vec![square(49.0, 51.0)]), false, false);
    let whole = region("$centerSphere", bson!([[10, 50], 4])).unwrap();
    check(&whole, point(-170.0, -50.0), true, true);
    check(&whole, polygon(vec![square(0.0, 10.0)]), true, true);
}

#[test]
fn flat_shapes_hold_pairs_and_points_only() {
    let table = [
        ("$box", bson!([[0, 0], [10, 10]]), [(5.0, 5.0), (0.0, 10.0)], [(11.0, 5.0), (5.0, -1.0)]),
        ("$box", bson!([[10, 10], [0, 0]]), [(5.0, 5.0), (10.0, 0.0)], [(11.0, 5.0), (5.0, -1.0)]),
        (
            "$polygon",
            bson!([[0, 0], [4, 4], [8, 0], [8, 8], [0, 8]]),
            [(1.0, 5.0), (2.0, 2.0)],
            [(4.0, 3.0), (9.0, 4.0)],
        ),
        ("$center", bson!([[0, 0], 5]), [(3.0, 4.0), (0.0, 0.0)], [(4.0, 4.0), (-5.1, 0.0)]),
    ];
    for (name, value, yes, no) in table {
        let area = region(name, value).unwrap();
        for ((x, y), inside) in yes.map(|p| (p, true)).into_iter().chain(no.map(|p| (p, false))) {
            check(&area, bson!([x, y]), inside, inside);
            check(&area, bson!({"x": x, "y": y}), inside, inside);
            check(&area, point(x, y), inside, inside);
        }
        check(&area, geojson("LineString", bson!([[1, 5], [1, 6]])), false, false);
    }
}

#[test]
fn what_is_no_geometry_is_refused_with_a_reason() {
    refused(bson!(5), "geo element must be an array or object: 5");
    refused(bson!({"type": "Pt"}), "unknown GeoJSON type: { type: \"Pt\" }");
    refused(bson!({"type": "Point"}), "Point must be an array or object, instead got type missing");
    refused(bson!(["x", 1]), "Point must only contain numeric elements, instead got type string");
    refused(bson!([1]), "Point must only contain numeric elements, instead got type missing");
    refused(bson!([(f64::NAN), 1]), "Point coordinates must be finite numbers");
    refused(point(181.0, 0.0), "Longitude/latitude is out of bounds, lng: 181 lat: 0");
    refused(point(0.0, -90.5), "Longitude/latitude is out of bounds, lng: 0 lat: -90.5");
    refused(geojson("LineString", bson!([[1, 1], [1, 1]])), "must have at least 2 vertices");
    refused(
        geojson("LineString", bson!(5)),
        "must be an array of coordinates, instead got type int",
    );
    refused(
        geojson("MultiPoint", bson!([])),
        "MultiPoint coordinates must have at least 1 element",
    );
    refused(geojson("Polygon", bson!([])), "Polygon has no loops.");
    refused(geojson("Polygon", bson!(1)), "Polygon coordinates must be an array");
    refused(polygon(vec![bson!([[0, 0], [1, 0], [1, 1]])]), "Loop is not closed: [ [ 0, 0 ]");
    refused(polygon(vec![bson!([[0, 0], [1, 0], [0, 0]])]), "at least 3 different vertices");
    let bow = bson!([[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]);
    refused(polygon(vec![bow]), "Edges 0 and 2 cross. Edge locations in degrees: [0.0000000,");
    let eight = bson!([[0, 0], [2, 0], [1, 1], [2, 2], [0, 2], [1, 1], [0, 0]]);
    refused(polygon(vec![eight]), "Duplicate vertices: 2 and 5");
    let far = bson!([[0, 0], [180, 0], [90, 50], [0, 0]]);
    refused(polygon(vec![far]), "Vertices 0 and 1 are antipodal");
    let line = geojson("LineString", bson!([[0, 10], [180, -10]]));
    refused(line, "Vertices 0 and 1 are antipodal");
    let apart = polygon(vec![square(0.0, 1.0), square(5.0, 6.0)]);
    refused(apart, "Secondary loops not contained by first exterior loop");
    let nested = polygon(vec![square(0.0, 9.0), square(1.0, 8.0), square(2.0, 3.0)]);
    refused(nested, "Polygon interior loops cannot be nested");
    let crossing = polygon(vec![square(0.0, 9.0), square(1.0, 5.0), square(4.0, 8.0)]);
    refused(crossing, "Polygon isn't valid");
    let crs = |name: &str| {
        bson!({
            "type": "Point", "coordinates": [0, 0],
            "crs": {"type": "name", "properties": {"name": name}}
        })
    };
    assert!(geometry(crs("EPSG:4326")).is_ok());
    assert!(geometry(crs("urn:ogc:def:crs:OGC:1.3:CRS84")).is_ok());
    refused(crs("EPSG:9999"), "Unknown CRS name: EPSG:9999");
    refused(
        crs("urn:x-mongodb:crs:strictwinding:EPSG:4326"),
        "Strict winding order is only supported by polygon",
    );
    let inner = bson!({"type": "GeometryCollection", "geometries": []});
    refused(inner.clone(), "GeometryCollection geometries must have at least 1 element");
    let nested = bson!({"type": "GeometryCollection", "geometries": [inner]});
    refused(nested, "GeometryCollections cannot be nested");
}

#[test]
fn malformed_regions_are_refused() {
    let refused = |name: &str, value: Bson, text: &str| {
        let error = region(name, value).unwrap_err();
        assert!(error.message().contains(text), "{error}");
    };
    refused("$circle", bson!([]), "unknown geo specifier: $circle");
    refused("$box", bson!([[0, 0]]), "Point must be an array or object");
    refused("$box", bson!([[0, 0, 0], [1, 1]]), "Point must only contain two numeric elements");
    refused("$polygon", bson!([[0, 0], [1, 1]]), "Polygon must have at least 3 points");
    refused("$center", bson!([[0, 0], -1]), "radius must be a non-negative number");
    refused("$center", bson!([[0, 0], 1, 2]), "Only 2 fields allowed for circular region");
    refused("$centerSphere", bson!([[0, 100], 1]), "Longitude/latitude is out of bounds");
}

#[test]
fn distances_are_those_of_great_circles() {
    let berlin = Vector::from_degrees(13.4, 52.5);
    let metres = |value: Bson| {
        let value = geometry(value).unwrap();
        (value.shape().unwrap().distance(berlin) * EARTH_RADIUS_METRES).round()
    };
    assert_eq!(metres(point(13.4, 52.5)), 0.0);
    assert_eq!(metres(point(13.4, 53.5)), 111_319.0);
    assert_eq!(metres(point(-166.6, -52.5)), (std::f64::consts::PI * 6_378_100.0).round());
    // On a meridian the foot of the perpendicular is what is near, not an end.
    let line = geojson("LineString", bson!([[13.4, 53.5], [13.4, 60], [40, 60]]));
    assert_eq!(metres(line), 111_319.0);
    let passing = geojson("LineString", bson!([[0, 0], [0, 80]]));
    let foot = (13.4_f64.to_radians().sin() * 52.5_f64.to_radians().cos()).asin();
    assert_eq!(metres(passing), (foot * EARTH_RADIUS_METRES).round());
    assert_eq!(metres(polygon(vec![bson!([[0, 40], [30, 40], [30, 60], [0, 60], [0, 40]])])), 0.0);
    let centre =
        Centre::parse(RawBson::try_from(bson!([3, 4])).unwrap().as_raw_bson_ref()).unwrap();
    assert_eq!((centre.place, centre.geojson), ((3.0, 4.0), false));
    assert_eq!(crate::flat::distance(centre.place, (0.0, 0.0)), 5.0);
}

fn holds(ranges: &[(i64, i64)], keys: &[i64]) -> bool {
    keys.iter().any(|key| ranges.iter().any(|(low, high)| low <= key && key <= high))
}

fn coordinates() -> impl Strategy<Value = (f64, f64)> {
    let free = (-180.0..=180.0_f64, -90.0..=90.0_f64);
    // Places where rounding bites: round degrees, corners of the cube, the poles.
    let round =
        (-12..=12_i32, -6..=6_i32).prop_map(|(x, y)| (f64::from(x) * 15.0, f64::from(y) * 15.0));
    prop_oneof![3 => free, 2 => round]
}

/// A polygon with corners on a circle: valid by itself.
fn round_polygon() -> impl Strategy<Value = Option<Bson>> {
    (coordinates(), 0.0..1.0_f64, 3..9_usize).prop_map(|((x, y), size, corners)| {
        let radius = 40.0 * size.powi(4) + 1e-5;
        let around = (0..=corners).map(|at| {
            let angle = (at % corners) as f64 / corners as f64 * std::f64::consts::TAU;
            bson!([(x + radius * angle.cos()), (y + radius * angle.sin())])
        });
        let whole = polygon(vec![Bson::Array(around.collect())]);
        geometry(whole.clone()).is_ok().then_some(whole)
    })
}

fn any_shape() -> impl Strategy<Value = Option<Bson>> {
    let line = (coordinates(), coordinates()).prop_map(|(from, to)| {
        let line = geojson("LineString", bson!([[(from.0), (from.1)], [(to.0), (to.1)]]));
        geometry(line.clone()).is_ok().then_some(line)
    });
    prop_oneof![
        3 => coordinates().prop_map(|(x, y)| Some(point(x, y))),
        2 => round_polygon(),
        1 => line,
    ]
}

fn shape(value: Bson) -> Shape {
    geometry(value).unwrap().shape().unwrap().into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_search_on_the_sphere_looks_at_a_cell_of_all_it_may_find(
        wanted in any_shape(),
        stored in any_shape(),
        centre in coordinates(),
        width in 0.0..1.0_f64,
    ) {
        let (Some(wanted), Some(stored)) = (wanted, stored) else { return Ok(()) };
        let (wanted, stored) = (shape(wanted), shape(stored));
        let keys = cell::keys(&stored);
        prop_assert!(!keys.is_empty() && keys.len() <= 24);
        let points_only = stored.as_point().is_some();
        if wanted.intersects(&stored) {
            prop_assert!(stored.intersects(&wanted));
            prop_assert!(holds(&cell::search(cell::Area::Shape(&wanted), points_only), &keys));
        }
        prop_assert!(!wanted.contains(&stored) || wanted.intersects(&stored));
        let centre = Vector::from_degrees(centre.0, centre.1);
        let distance = stored.distance(centre);
        let area = cell::Area::Around {
            centre,
            low: (distance - width).max(0.0),
            high: distance + 1e-12,
        };
        prop_assert!(holds(&cell::search(area, points_only), &keys));
    }

    #[test]
    fn a_point_in_a_polygon_is_near_and_one_outside_is_not(
        area in round_polygon(),
        place in coordinates(),
    ) {
        let Some(area) = area else { return Ok(()) };
        let area = shape(area);
        let point = Vector::from_degrees(place.0, place.1);
        let inside = area.contains(&Shape::point(point));
        prop_assert_eq!(inside, area.intersects(&Shape::point(point)));
        prop_assert!(!inside || area.distance(point) == 0.0);
        let cap = Cap { centre: point, radius: area.distance(point) * 0.999 };
        prop_assert!(!cap.contains(&area) || inside);
    }

    #[test]
    fn a_search_on_the_grid_looks_at_the_square_of_all_it_may_find(
        place in coordinates(),
        corners in prop::collection::vec(coordinates(), 3..6),
        radius in 0.0..90.0_f64,
        bits in 1..=32_u32,
    ) {
        let grid = Grid { bits, ..Grid::default() };
        let key = grid.key(place);
        let shapes = [
            Flat::between(corners[0], corners[1]),
            Flat::Circle(corners[0], radius),
            Flat::Polygon(corners.clone()),
        ];
        for shape in shapes {
            if shape.contains(place) {
                prop_assert!(holds(&grid.search(grid::Area::Shape(&shape)), &[key]), "{shape:?}");
            }
        }
        let distance = crate::flat::distance(place, corners[0]);
        let ring = grid::Area::Around { centre: corners[0], low: distance * 0.5, high: distance };
        prop_assert!(holds(&grid.search(ring), &[key]));
        let centre = Vector::from_degrees(corners[0].0, corners[0].1);
        let angle = centre.angle(Vector::from_degrees(place.0, place.1));
        let cap = grid::Area::Cap(Cap { centre, radius: angle });
        prop_assert!(holds(&grid.search(cap), &[key]));
    }
}

#[test]
fn searches_of_small_places_are_narrow() {
    let ranges = cell::search(cell::Area::Shape(&shape(polygon(vec![square(10.0, 10.01)]))), true);
    let width: u64 = ranges.iter().map(|(low, high)| high.abs_diff(*low)).sum();
    assert!(ranges.len() <= 20);
    // The square is about 2.4e-9 of the sphere; covering it may cost a few times that.
    assert!((width as f64) / (u64::MAX as f64) < 2e-8, "{width}");
}
