//! Geospatial queries: whatever the index, they give what a walk over the collection gives, and
//! near ones in the order of distance.

use super::*;
use ::geo::{EARTH_RADIUS_METRES, Vector};

fn point(longitude: f64, latitude: f64) -> Document {
    doc! {"type": "Point", "coordinates": [longitude, latitude]}
}

fn square(low: f64, high: f64) -> Document {
    let corners = [[low, low], [high, low], [high, high], [low, high], [low, low]];
    let corners: Vec<Bson> = corners.iter().map(|c| Bson::from(c.to_vec())).collect();
    doc! {"type": "Polygon", "coordinates": [corners]}
}

/// Points a degree apart around the origin, and a few shapes.
fn places() -> Vec<Document> {
    let mut places: Vec<Document> = (-5..=5)
        .flat_map(|x| (-5..=5).map(move |y| (x, y)))
        .map(|(x, y)| doc! {"at": point(f64::from(x), f64::from(y)), "kind": (x + y) % 3})
        .collect();
    places.push(doc! {"at": square(2.25, 2.75), "kind": 7});
    places.push(doc! {"at": {"type": "LineString", "coordinates": [[-9, 0], [9, 1]]}, "kind": 7});
    places.push(doc! {"at": null, "kind": 7});
    places.push(doc! {"kind": 7});
    for (id, place) in places.iter_mut().enumerate() {
        place.insert("_id", id as i32);
    }
    places
}

fn ids(documents: &[Document]) -> Vec<i32> {
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

fn sorted(mut ids: Vec<i32>) -> Vec<i32> {
    ids.sort_unstable();
    ids
}

impl Room {
    fn find_by(&self, filter: &Document, hint: Document) -> Result<Vec<Document>> {
        let (filter, hint) = (raw(filter), raw(&hint));
        self.find_with(&FindRequest {
            filter: Some(&filter),
            hint: (!hint.is_empty()).then_some(RawBsonRef::Document(&hint)),
            ..FindRequest::default()
        })
    }

    fn refused(&self, filter: Document, code: i32, text: &str) {
        let error = self.find_by(&filter, doc! {}).expect_err(&format!("{filter}"));
        assert_eq!(error.code().0, code, "{filter}: {error}");
        assert!(error.message().contains(text), "{filter}: {error}");
    }
}

#[test]
fn geo_within_and_intersects_use_a_2dsphere_index() {
    let room = Room::with(&places());
    room.index(doc! {"key": {"at": "2dsphere"}});
    let within = doc! {"at": {"$geoWithin": {"$geometry": square(0.5, 3.5)}}};
    let meets = doc! {"at": {"$geoIntersects": {"$geometry": square(0.5, 3.5)}}};
    let near = doc! {"at": {"$geoWithin": {"$centerSphere": [[0, 0], 0.03]}}};
    let old = doc! {"at": {"$within": {"$centerSphere": [[0, 0], 0.03]}}};
    for (filter, expected) in [(within, 10), (meets, 11), (near.clone(), 9), (old, 9)] {
        let explained = room.explain(filter.clone(), doc! {});
        assert_eq!(stages(&explained), ["FETCH", "IXSCAN"], "{filter}");
        let found = sorted(ids(&room.find_by(&filter, doc! {}).unwrap()));
        let walked = ids(&room.find_by(&filter, doc! {"$natural": 1}).unwrap());
        assert_eq!(found, sorted(walked), "{filter}");
        assert_eq!(found.len(), expected, "{filter}");
        let examined = explained.get_document("executionStats").unwrap();
        let keys = examined.get_i32("totalKeysExamined").unwrap();
        assert!(keys < 80, "{filter}: {keys} keys");
    }
    // Flat shapes mean the plane, of which such an index knows nothing; no geometry, no index.
    let flat = doc! {"at": {"$geoWithin": {"$box": [[0.5, 0.5], [3.5, 3.5]]}}};
    assert_eq!(stages(&room.explain(flat.clone(), doc! {})), ["COLLSCAN"]);
    assert_eq!(room.find(flat).len(), 9);
    assert_eq!(stages(&room.explain(doc! {"at": {"$exists": true}}, doc! {})), ["COLLSCAN"]);
    assert_eq!(stages(&room.explain(doc! {}, doc! {"at": 1})), ["SORT", "COLLSCAN"]);
    let hint = room.find_by(&doc! {"kind": 7}, doc! {"at": "2dsphere"}).unwrap_err();
    assert_eq!(hint.code(), Code::NO_QUERY_EXECUTION_PLANS);
    assert_eq!(room.find_by(&near, doc! {"at": "2dsphere"}).unwrap().len(), 9);
}

#[test]
fn compound_indexes_bound_all_their_parts() {
    let room = Room::with(&places());
    room.index(doc! {"key": {"kind": 1, "at": "2dsphere"}});
    let filter = doc! {"kind": 1, "at": {"$geoWithin": {"$geometry": square(-2.5, 2.5)}}};
    let explained = room.explain(filter.clone(), doc! {});
    assert_eq!(stages(&explained), ["FETCH", "IXSCAN"]);
    let found = sorted(ids(&room.find_by(&filter, doc! {}).unwrap()));
    assert_eq!(found, sorted(ids(&room.find_by(&filter, doc! {"$natural": 1}).unwrap())));
    let near = doc! {"kind": 1, "at": {"$near": {"$geometry": point(0.0, 0.0)}}};
    assert_eq!(stages(&room.explain(near.clone(), doc! {})), ["GEO_NEAR_2DSPHERE", "IXSCAN"]);
    assert!(room.find(near).iter().all(|place| place.get_i32("kind").unwrap() == 1));
    // Nothing is said of what comes before the geometry.
    let near = doc! {"at": {"$near": {"$geometry": point(0.0, 0.0)}}};
    room.refused(near, 291, "unable to find index for $geoNear query");
}

#[test]
fn near_orders_by_distance() {
    let room = Room::with(&places());
    room.index(doc! {"key": {"at": "2dsphere"}});
    let limits = |least: f64, most: f64| {
        doc! {"at": {"$near": {
            "$geometry": point(0.2, 0.1), "$minDistance": least, "$maxDistance": most
        }}}
    };
    let found = room.find(limits(0.0, 1e9));
    assert_eq!(found.len(), 123);
    assert_eq!(found[0].get_document("at").unwrap(), &point(0.0, 0.0));
    assert_eq!(found[1].get_document("at").unwrap().get_str("type").unwrap(), "LineString");
    assert_eq!(found[2].get_document("at").unwrap(), &point(1.0, 0.0));
    let explained = room.explain(limits(0.0, 1e9), doc! {});
    assert_eq!(stages(&explained), ["GEO_NEAR_2DSPHERE", "IXSCAN"]);
    let run = explained.get_document("executionStats").unwrap();
    assert_eq!(run.get_i32("totalDocsExamined").unwrap(), 123);
    let ring = room.find(limits(80_000.0, 100_000.0));
    assert_eq!(ids(&ring), ids(&room.find(limits(80_000.0, 100_000.0))));
    assert_eq!(ring.len(), 1, "{ring:?}");
    assert!(room.find(limits(10.0, 5.0)).is_empty());
    // A sort of the client's own takes the order's place.
    let filter = raw(&limits(0.0, 250_000.0));
    let sort = raw(&doc! {"_id": -1});
    let request = FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        limit: 5,
        ..FindRequest::default()
    };
    let last = ids(&room.find_with(&request).unwrap());
    assert_eq!(last.len(), 5);
    assert!(last.is_sorted_by(|a, b| a > b));
    // Distances can be shown.
    let shown = raw(&doc! {"d": {"$meta": "geoNearDistance"}, "p": {"$meta": "geoNearPoint"}});
    let request = FindRequest {
        filter: Some(&filter),
        projection: Some(&shown),
        limit: 2,
        ..FindRequest::default()
    };
    let found = room.find_with(&request).unwrap();
    let expected = Vector::from_degrees(0.2, 0.1).angle(Vector::from_degrees(0.0, 0.0));
    let distance = found[0].get_f64("d").unwrap();
    assert!((distance - expected * EARTH_RADIUS_METRES).abs() < 1e-6);
    assert_eq!(found[0].get_document("p").unwrap(), &point(0.0, 0.0));
    let all = raw(&doc! {});
    let request =
        FindRequest { filter: Some(&all), projection: Some(&shown), ..FindRequest::default() };
    assert_eq!(room.find_with(&request).unwrap_err().code().0, 40218);
}

#[test]
fn near_stands_where_it_can_mean_an_order() {
    let room = Room::with(&places());
    let near = || doc! {"$near": {"$geometry": point(0.0, 0.0)}};
    room.refused(doc! {"at": near()}, 291, "unable to find index for $geoNear query");
    room.index(doc! {"key": {"at": "2dsphere"}});
    room.refused(doc! {"$or": [{"at": near()}, {"a": 1}]}, 2, "geo $near must be top-level expr");
    room.refused(doc! {"at": {"$not": near()}}, 2, "geo $near must be top-level expr");
    let element = doc! {"a": {"$elemMatch": {"at": near()}}};
    room.refused(element, 2, "geo $near must be top-level expr");
    room.refused(doc! {"at": near(), "b": near()}, 2, "Too many geoNear expressions");
    room.refused(doc! {"other": near()}, 291, "unable to find index");
    room.refused(doc! {"at": {"$near": [0, 0]}}, 291, "unable to find index");
    let natural = room.find_by(&doc! {"at": near()}, doc! {"$natural": 1}).unwrap_err();
    assert_eq!(natural.code(), Code::NO_QUERY_EXECUTION_PLANS);
    let matched = room.aggregate(vec![doc! {"$match": {"at": near()}}]).unwrap_err();
    assert_eq!(matched.code().0, 5_626_500);
    room.refused(
        doc! {"at": {"$near": {"$geometry": point(0.0, 0.0), "x": 1}}},
        2,
        "invalid argument",
    );
    room.refused(doc! {"at": {"$near": {"$geometry": [0, 0]}}}, 2, "requires geojson point");
    room.refused(
        doc! {"at": {"$near": {"$geometry": point(0.0, 100.0)}}},
        2,
        "invalid point in geo near query $geometry argument",
    );
    room.refused(doc! {"at": {"$near": [0, 0], "$maxDistance": -1}}, 16896, "non-negative");
    room.refused(doc! {"at": {"$near": [0, 0], "$gt": 1}}, 34413, "invalid argument in geo near");
    room.refused(
        doc! {"at": {"$near": {"$geometry": point(0.0, 0.0)}, "$maxDistance": 5}},
        2,
        "geo near accepts just one argument",
    );
    room.refused(doc! {"at": {"$geoWithin": {}}}, 2, "geo query doesn't have any geometry");
    room.refused(doc! {"at": {"$geoWithin": 5}}, 2, "geometry must be an object");
    room.refused(
        doc! {"at": {"$geoWithin": {"$geometry": point(0.0, 0.0)}}},
        2,
        "$within not supported with provided geometry",
    );
    room.refused(
        doc! {"at": {"$geoIntersects": {"$box": [[0, 0], [1, 1]]}}},
        2,
        "$geoIntersect not supported with provided geometry",
    );
    // Counts, distinct values and writes may ask for it, as in MongoDB.
    let filter =
        raw(&doc! {"at": {"$near": {"$geometry": point(0.0, 0.0), "$maxDistance": 120_000}}});
    let request = CountRequest { filter: Some(&filter), ..CountRequest::default() };
    assert_eq!(count(&mut room.ctx(), &room.ns, &request).unwrap(), 6);
    let statement =
        DeleteStatement { filter: &filter, only_one: true, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    assert_eq!(delete(&mut room.ctx(), &room.ns, &request).unwrap().n, 1);
    assert_eq!(room.find(doc! {"at": point(0.0, 0.0)}).len(), 0);
}

#[test]
fn a_2d_index_answers_flat_queries() {
    let documents: Vec<Document> = (0..400)
        .map(|n| doc! {"_id": n, "at": [n % 20, n / 20], "even": n % 2 == 0})
        .chain([doc! {"_id": 900, "at": [[50, 50], [60, 60]]}, doc! {"_id": 901}])
        .collect();
    let room = Room::with(&documents);
    room.index(doc! {"key": {"at": "2d", "even": 1}, "min": -100, "max": 100});
    for (shape, expected) in [
        (doc! {"$box": [[2, 2], [4, 5]]}, 12),
        (doc! {"$center": [[10, 10], 1]}, 5),
        (doc! {"$polygon": [[0, 0], [4, 0], [0, 4]]}, 15),
        (doc! {"$centerSphere": [[10, 10], 0.018]}, 5),
        (doc! {"$box": [[55, 55], [65, 65]]}, 1),
        (doc! {"$box": [[200, 200], [210, 210]]}, 0),
    ] {
        let filter = doc! {"at": {"$geoWithin": shape}};
        let explained = room.explain(filter.clone(), doc! {});
        assert_eq!(stages(&explained), ["FETCH", "IXSCAN"], "{filter}");
        let found = ids(&room.find_by(&filter, doc! {}).unwrap());
        assert_eq!(found.len(), expected, "{filter}");
        let walked = ids(&room.find_by(&filter, doc! {"$natural": 1}).unwrap());
        assert_eq!(sorted(found), sorted(walked), "{filter}");
    }
    let near = doc! {"at": {"$near": [3.2, 3.1], "$maxDistance": 1}};
    let explained = room.explain(near.clone(), doc! {});
    assert_eq!(stages(&explained), ["GEO_NEAR_2D", "IXSCAN"]);
    assert_eq!(ids(&room.find(near)), [63, 64, 83]);
    let near = doc! {"at": {"$near": [55, 55], "$minDistance": 5}, "even": true};
    assert_eq!(ids(&room.find(near))[0], 398);
    let sphere = doc! {"at": {"$nearSphere": [3.2, 3.1], "$maxDistance": 0.0175}};
    assert_eq!(ids(&room.find(sphere)), [63, 64, 83]);
    let geojson = doc! {"at": {"$near": {"$geometry": point(3.0, 3.0)}}};
    room.refused(geojson, 291, "unable to find index for $geoNear query");
    let refused = room.insert(&[doc! {"at": [150, 0]}]);
    assert_eq!(refused.errors[0].error.code().0, 13027);
}

#[test]
fn the_geo_near_stage_measures_documents() {
    let room = Room::with(&places());
    room.index(doc! {"key": {"at": "2dsphere"}});
    let stage = |extra: Document| {
        let mut stage = doc! {"near": point(0.0, 0.0), "distanceField": "far.away"};
        stage.extend(extra);
        doc! {"$geoNear": stage}
    };
    let all = room.aggregate(vec![stage(doc! {"query": {"kind": {"$ne": 7}}})]).unwrap();
    assert_eq!(all.len(), 121);
    let far = |place: &Document| place.get_document("far").unwrap().get_f64("away").unwrap();
    assert!(all.is_sorted_by(|a, b| far(a) <= far(b)));
    assert_eq!(far(&all[0]), 0.0);
    let degree = 1.0_f64.to_radians() * EARTH_RADIUS_METRES;
    assert!((far(&all[1]) - degree).abs() < 1e-6);
    let shown = doc! {
        "includeLocs": "where", "distanceMultiplier": 0.001, "key": "at",
        "minDistance": 1000, "maxDistance": {"$multiply": [1000, 112]},
        "query": {"kind": {"$ne": 7}}
    };
    let some = room.aggregate(vec![stage(shown), doc! {"$limit": 3}]).unwrap();
    assert_eq!(some.len(), 3);
    assert!((far(&some[0]) - degree / 1000.0).abs() < 1e-6);
    assert_eq!(some[0].get("where"), some[0].get("at"));
    let measured = doc! {"$addFields": {
        "d": {"$meta": "geoNearDistance"}, "p": {"$meta": "geoNearPoint"}
    }};
    let metas = room.aggregate(vec![stage(doc! {"key": "at"}), measured]).unwrap();
    assert!(metas.iter().all(|place| place.get_f64("d").unwrap() == far(place)));
    assert!(metas.iter().all(|place| place.get("p") == place.get("at")));
    assert_eq!(
        metas[0].keys().collect::<Vec<_>>(),
        ["_id", "at", "kind", "far", "d", "p"],
        "{}",
        metas[0]
    );
    let fails = |stages: Vec<Document>, code: i32, text: &str| {
        let error = room.aggregate(stages).unwrap_err();
        assert_eq!(error.code().0, code, "{error}");
        assert!(error.message().contains(text), "{error}");
    };
    let only = |stage: Document| vec![doc! {"$geoNear": stage}];
    fails(vec![doc! {"$limit": 1}, stage(doc! {})], 40602, "only valid as the first stage");
    fails(vec![doc! {"$facet": {"a": [stage(doc! {})]}}], 40600, "within a $facet stage");
    fails(only(doc! {"distanceField": "d"}), 5_860_400, "requires a 'near'");
    fails(only(doc! {"near": [0, 0]}), 16606, "requires a 'distanceField'");
    fails(only(doc! {"near": "$at", "distanceField": "d"}), 5_860_402, "constant");
    fails(
        only(doc! {"near": [0, 0], "distanceField": "d", "limit": 5}),
        50858,
        "no longer supports",
    );
    fails(vec![stage(doc! {"key": "other"})], 291, "unable to find index");
    let spherical = doc! {"near": [0, 0], "distanceField": "d", "spherical": true};
    let radians = room.aggregate(only(spherical)).unwrap();
    let degree = 1.0_f64.to_radians();
    assert!(radians.iter().any(|place| (place.get_f64("d").unwrap() - degree).abs() < 1e-12));
    room.index(doc! {"key": {"other": "2dsphere"}});
    fails(vec![stage(doc! {})], 27, "There is more than one 2dsphere index on db.c");
    let bare = Room::with(&[doc! {"_id": 1}]);
    let error = bare.aggregate(vec![stage(doc! {})]).unwrap_err();
    assert_eq!(error.code(), Code::INDEX_NOT_FOUND);
    assert!(Room::new().aggregate(vec![stage(doc! {})]).unwrap().is_empty());
}

fn coordinates() -> impl Strategy<Value = (f64, f64)> {
    let free = (-180.0..=180.0_f64, -90.0..=90.0_f64);
    let close = (-3.0..3.0_f64, -3.0..3.0_f64);
    let round = (-4..=4_i32, -4..=4_i32).prop_map(|(x, y)| (f64::from(x), f64::from(y)));
    prop_oneof![free, close, round]
}

/// A polygon around a place, valid by itself.
fn polygon() -> impl Strategy<Value = Document> {
    (coordinates(), 0.001..5.0_f64, 3..7_i32).prop_map(|((x, y), size, corners)| {
        let (x, y) = (x.clamp(-170.0, 170.0), y.clamp(-80.0, 80.0));
        let corner = |at: i32| {
            let angle = f64::from(at % corners) / f64::from(corners) * std::f64::consts::TAU;
            Bson::from(vec![x + size * angle.cos(), y + size * angle.sin()])
        };
        doc! {"type": "Polygon", "coordinates": [(0..=corners).map(corner).collect::<Vec<_>>()]}
    })
}

fn location() -> impl Strategy<Value = Bson> {
    let pair = coordinates().prop_map(|(x, y)| Bson::from(vec![x, y]));
    let geojson = coordinates().prop_map(|(x, y)| Bson::Document(point(x, y)));
    prop_oneof![
        2 => pair,
        3 => geojson,
        2 => polygon().prop_map(Bson::Document),
        1 => prop::collection::vec(coordinates(), 1..4).prop_map(|places| {
            let places = places.into_iter().map(|(x, y)| Bson::Document(point(x, y)));
            Bson::Array(places.collect())
        }),
        1 => Just(Bson::Null),
    ]
}

fn region() -> impl Strategy<Value = Document> {
    prop_oneof![
        polygon().prop_map(|area| doc! {"$geoWithin": {"$geometry": area}}),
        polygon().prop_map(|area| doc! {"$geoIntersects": {"$geometry": area}}),
        coordinates().prop_map(|(x, y)| doc! {"$geoIntersects": {"$geometry": point(x, y)}}),
        (coordinates(), 0.0..1.0_f64).prop_map(|((x, y), radius)| {
            doc! {"$geoWithin": {"$centerSphere": [[x, y], radius]}}
        }),
        (coordinates(), coordinates()).prop_map(|(from, to)| {
            doc! {"$geoWithin": {"$box": [[from.0, from.1], [to.0, to.1]]}}
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn geo_plans_give_what_a_collection_scan_gives(
        locations in prop::collection::vec((location(), 0..3_i32), 1..30),
        region in region(),
        kind in prop::option::of(0..3_i32),
        compound in 0..3_usize,
        built_first in any::<bool>(),
    ) {
        let documents: Vec<Document> = locations
            .into_iter()
            .enumerate()
            .map(|(id, (at, kind))| doc! {"_id": id as i32, "at": at, "kind": kind})
            .collect();
        let key = match compound {
            0 => doc! {"at": "2dsphere"},
            1 => doc! {"kind": 1, "at": "2dsphere"},
            _ => doc! {"at": "2dsphere", "kind": -1},
        };
        let room = Room::new();
        room.catalog.ensure_collection(&room.ns).unwrap();
        if built_first {
            room.index(doc! {"key": key.clone()});
        }
        prop_assert!(room.insert(&documents).errors.is_empty());
        if !built_first {
            room.index(doc! {"key": key});
        }
        room.check_valid();
        let mut filter = doc! {"at": region};
        if let Some(kind) = kind {
            filter.insert("kind", kind);
        }
        let found = sorted(ids(&room.find_by(&filter, doc! {}).unwrap()));
        let walked = sorted(ids(&room.find_by(&filter, doc! {"$natural": 1}).unwrap()));
        prop_assert_eq!(found, walked, "{}: {}", filter, room.explain(filter.clone(), doc! {}));
    }

    #[test]
    fn near_gives_what_sorting_everything_by_distance_gives(
        locations in prop::collection::vec(location(), 1..40),
        centre in coordinates(),
        limits in (0.0..2e6_f64, 0.0..2e7_f64),
    ) {
        let documents: Vec<Document> = locations
            .iter()
            .enumerate()
            .map(|(id, at)| doc! {"_id": id as i32, "at": at.clone()})
            .collect();
        let room = Room::with(&documents);
        room.index(doc! {"key": {"at": "2dsphere"}});
        let from = Vector::from_degrees(centre.0, centre.1);
        let distance = |at: &Bson| -> Option<f64> {
            let parse = |at: &Bson| {
                let at = bson::RawBson::try_from(at.clone()).unwrap();
                let at = ::geo::Geometry::parse(at.as_raw_bson_ref()).ok()?;
                Some(at.shape()?.distance(from) * EARTH_RADIUS_METRES)
            };
            parse(at).or_else(|| {
                at.as_array()?.iter().filter_map(parse).min_by(f64::total_cmp)
            })
        };
        let mut expected: Vec<f64> = locations
            .iter()
            .filter_map(distance)
            .filter(|far| (limits.0..=limits.1).contains(far))
            .collect();
        expected.sort_by(f64::total_cmp);
        let near = doc! {"$geometry": point(centre.0, centre.1), "$minDistance": limits.0, "$maxDistance": limits.1};
        let found = room.find(doc! {"at": {"$nearSphere": near}});
        let found: Vec<f64> =
            found.iter().filter_map(|place| distance(place.get("at").unwrap())).collect();
        prop_assert_eq!(found, expected);
    }
}
