//! What a client has indexed: specifications, the keys of documents, geometry and words.

use crate::Target;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use fulltext::{Fields, Language, Query, Search, Sensitivity, Version};
use geo::cell::{self, Area};
use geo::{Geometry, Region, grid};
use indexkeys::IndexSpec;
use indexkeys::{KeyMaker, PrimaryKey, RecordKey};
use std::sync::Arc;

/// `{s: index specification, p: primary key, d: document, g: {operator: region}, q: search}`: the document's keys
/// are made and read back, its geometry is held against the region, its words against the search.
pub(super) const INDEXES: Target = Target {
    name: "indexes",
    corpus: || {
        let raw = |d: &Document| RawDocumentBuf::try_from(d).expect("a good document").into_bytes();
        corpus().iter().map(raw).collect()
    },
    start: || {
        let weights = [("a".to_owned(), 2.0), ("$**".to_owned(), 1.0)].into();
        let english = Language::find("english").expect("it is there");
        let fields = Fields::new(weights, english, "language".to_owned(), Version::Three);
        let fields = Arc::new(fields);
        Box::new(move |bytes| {
            let Ok(input) = wire::validate(bytes) else { return };
            let empty = RawDocumentBuf::new();
            let document = input.get_document("d").unwrap_or(&empty);
            if let Ok(spec) = input.get_document("s") {
                check_keys(spec, input.get_document("p").ok(), document);
            }
            if let Ok(regions) = input.get_document("g") {
                check_geometry(regions, document);
            }
            if let Ok(search) = input.get_str("q") {
                let sensitivity = Sensitivity { case: search.len() % 2 == 0, diacritics: false };
                let query = Query::parse(search, english, Version::Three, sensitivity);
                let search = Search::new(query, Arc::clone(&fields));
                let (_found, _verified) =
                    (search.matches(document), search.matches_indexed(document));
            }
        })
    },
};

fn check_keys(spec: &RawDocument, primary: Option<&RawDocument>, document: &RawDocument) {
    let Ok(spec) = IndexSpec::parse(spec) else { return };
    let primary = primary.and_then(|pattern| PrimaryKey::parse(pattern).ok().flatten());
    let id = RawBsonRef::Int32(7);
    let record_key = match &primary {
        None => keystring_of_seven(),
        Some(primary) => match primary.record_key(document, id, None) {
            Ok(record_key) => record_key,
            Err(_) => return,
        },
    };
    let keys = KeyMaker::new(&spec, None).under(primary.map(Arc::new));
    let record = RecordKey::new(id, &record_key);
    let Ok(made) = keys.make(document, record) else { return };
    let ascending = made.entries.windows(2).all(|pair| pair[0].key < pair[1].key);
    assert!(ascending, "entries ascend and are distinct");
    for entry in &made.entries {
        let named = keys.record_key_of(&entry.key, &entry.value);
        assert_eq!(named.expect("an entry names its document"), record_key);
        if keys.can_return_values() {
            keys.values(&entry.key, &entry.value).expect("an entry can be read");
        }
    }
}

fn keystring_of_seven() -> Vec<u8> {
    let mut key = keystring::KeyBuilder::new();
    let ascending = keystring::Direction::Ascending;
    key.append(RawBsonRef::Int32(7), ascending).expect("a number fits into a key");
    key.into_bytes()
}

fn check_geometry(regions: &RawDocument, document: &RawDocument) {
    let regions: Vec<Region> = regions
        .iter()
        .flatten()
        .filter_map(|(name, value)| Region::parse(name.as_str(), value).ok())
        .collect();
    for (_, value) in document.iter().flatten() {
        let Ok(geometry) = Geometry::parse(value) else { continue };
        if let Some(shape) = geometry.shape() {
            let keys = cell::keys(&shape);
            assert!(!keys.is_empty(), "every shape has a key");
            let found = cell::search(Area::Shape(&shape), false);
            let finds = |key: &i64| found.iter().any(|(low, high)| low <= key && key <= high);
            assert!(keys.iter().any(finds), "a search for a shape finds it");
        }
        for region in &regions {
            let (_inside, _meets) = (region.contains(&geometry), region.intersects(&geometry));
            if let Region::Flat(flat) = region {
                let _ranges = geo::Grid::default().search(grid::Area::Shape(flat));
            }
        }
    }
}

fn corpus() -> Vec<Document> {
    let point = doc! { "type": "Point", "coordinates": [12.5, 41.9] };
    let square =
        vec![vec![0.0, 0.0], vec![9.0, 0.0], vec![9.0, 9.0], vec![0.0, 9.0], vec![0.0, 0.0]];
    let polygon = doc! { "type": "Polygon", "coordinates": [square.clone()] };
    let line =
        doc! { "type": "LineString", "coordinates": [[0.0, 0.0], [5.0, 5.0], [179.0, -3.0]] };
    let many = doc! { "type": "MultiPolygon", "coordinates": [[square]] };
    vec![
        doc! {
            "s": { "key": { "p": "2dsphere", "a": 1 }, "name": "n" },
            "d": { "p": [point.clone(), polygon.clone()], "a": [1, 2] },
            "g": { "$geometry": polygon.clone(), "$centerSphere": [[1.0, 2.0], 0.5] },
        },
        doc! {
            "s": { "key": { "p": "2d" }, "name": "n", "bits": 20, "min": -500, "max": 500 },
            "d": { "p": [1.5, -2.5], "q": line.clone(), "r": many },
            "g": {
                "$box": [[-5.0, -5.0], [5.0, 5.0]], "$center": [[0.0, 0.0], 3.0],
                "$polygon": [[0.0, 0.0], [3.0, 6.0], [6.0, 0.0]],
                "$geometry": { "type": "GeometryCollection", "geometries": [point, line] },
            },
        },
        doc! {
            "s": { "key": { "x": 1, "_fts": "text", "_ftsx": 1 }, "weights": { "a": 3, "b.c": 1 }, "name": "n" },
            "d": { "x": 1, "a": "Coffees and the Caf\u{e9}s", "b": { "c": ["running", "ran"] }, "language": "french" },
            "q": "coffee -\"hot milk\" \"iced tea\" -sugar",
        },
        doc! {
            "s": { "key": { "a.$**": 1, "b": -1 }, "name": "n" },
            "d": { "a": { "b": [1, { "c": null }], "d": { "e": [] } }, "b": 5 },
        },
        doc! {
            "s": { "key": { "$**": 1 }, "name": "n", "wildcardProjection": { "a.b": 0 } },
            "d": { "a": { "b": 1, "c": [[1, 2], { "d": "text" }] } },
        },
        doc! {
            "s": { "key": { "c": 1 }, "name": "n", "unique": true, "clustering": true },
            "p": { "a.b": -1, "x": 1, "_id": 1 },
            "d": { "_id": 7, "a": { "b": "text" }, "x": 5_i64, "c": [1, 2.5] },
        },
        doc! {
            "s": { "key": { "h": "hashed", "a.b": 1 }, "name": "n", "sparse": true },
            "d": { "h": 5.0, "a": [{ "b": 1 }, { "b": [2, 3] }] },
        },
        doc! {
            "s": { "key": { "a": 1 }, "name": "n", "partialFilterExpression": { "a": { "$gt": 3 } },
                   "collation": { "locale": "de", "strength": 1 }, "unique": true },
            "d": { "a": ["\u{dc}ber", 7] },
        },
    ]
}
