//! Languages and options against known orders; sort keys against comparison.

use super::*;
use crate::{Direction, KeyBuilder, compare_under, decode_collated, skip};
use bson::rawbson;
use proptest::prelude::*;

fn collation(locale: &str, bend: impl FnOnce(&mut CollationRequest)) -> Collation {
    let mut request = CollationRequest::of_locale(locale);
    bend(&mut request);
    Collation::new(&request).unwrap()
}

/// The strings ascend strictly, as compared and as keys.
fn ascending(collation: &Collation, texts: &[&str]) {
    for pair in texts.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        assert_eq!(collation.compare_text(a, b), Ordering::Less, "{a} < {b} in {collation:?}");
        assert!(collation.sort_key(a) < collation.sort_key(b), "keys of {a} < {b}");
    }
}

fn equal(collation: &Collation, a: &str, b: &str) {
    assert_eq!(collation.compare_text(a, b), Ordering::Equal, "{a} = {b} in {collation:?}");
    assert_eq!(collation.sort_key(a), collation.sort_key(b), "keys of {a} = {b}");
}

#[test]
fn strengths_tell_apart_more_and_more() {
    let of = |strength| collation("en", |request| request.strength = strength);
    equal(&of(1), "resume", "Résumé");
    equal(&of(2), "resume", "RESUME");
    ascending(&of(2), &["resume", "résumé"]);
    ascending(&of(3), &["resume", "Resume", "résumé"]);
    equal(&of(4), "a\u{0}", "a");
    ascending(&of(5), &["a", "a\u{0}"]);
}

#[test]
fn languages_have_their_own_order() {
    ascending(&collation("sv", |_| ()), &["z", "å", "ä", "ö"]);
    ascending(&collation("de", |_| ()), &["a", "ä", "z"]);
    ascending(&collation("de@collation=phonebook", |_| ()), &["Ad", "Ä", "Af"]);
    ascending(&collation("es@collation=traditional", |_| ()), &["cz", "ch", "d"]);
    ascending(&collation("fr_CA", |_| ()), &["cote", "côte", "coté", "côté"]);
    ascending(&collation("fr", |_| ()), &["cote", "coté", "côte", "côté"]);
}

#[test]
fn options_bend_the_language() {
    let backwards = collation("pl", |request| request.backwards = Some(true));
    ascending(&backwards, &["cote", "côte", "coté", "côté"]);
    assert!(backwards.options().backwards && collation("fr_CA", |_| ()).options().backwards);
    ascending(&collation("fr_CA", |r| r.backwards = Some(false)), &["cote", "coté", "côte"]);
    ascending(&collation("en", |r| r.numeric_ordering = true), &["a2", "a10", "a010x"]);
    ascending(&collation("en", |_| ()), &["a010", "a10", "a2"]);
    ascending(&collation("en", |r| r.case_first = Some(CaseFirst::Upper)), &["A", "a", "B"]);
    assert_eq!(collation("da", |_| ()).options().case_first, CaseFirst::Upper);
    let cased = collation("en", |request| {
        request.strength = 1;
        request.case_level = Some(true);
    });
    ascending(&cased, &["e", "E"]);
    equal(&cased, "e", "é");
    let shifted = |max_variable| {
        collation("en", |request| {
            request.shifted = Some(true);
            request.max_variable = max_variable;
        })
    };
    equal(&shifted(MaxVariable::Punctuation), "black bird", "black-bird");
    equal(&shifted(MaxVariable::Space), "black bird", "blackbird");
    ascending(&shifted(MaxVariable::Space), &["black-bird", "blackbird"]);
    assert!(collation("th", |_| ()).options().shifted);
}

#[test]
fn names_are_icus_own() {
    let error = |name: &str| Collation::new(&CollationRequest::of_locale(name)).unwrap_err();
    let unknown = |name: &str, hint: Option<&str>| {
        let hint = hint.map(str::to_owned);
        assert_eq!(error(name), CollationError::UnknownLocale(hint), "{name}");
    };
    unknown("en-US", Some("en_US"));
    unknown("EN", Some("en"));
    unknown("en_QQ", Some("en"));
    unknown("xx", None);
    unknown("", None);
    unknown("de@collation=upside", Some("de"));
    unknown("de@kind=phonebook", Some("de"));
    assert_eq!(error("de@collation=search"), CollationError::UnsupportedType("search".to_owned()));
    assert!(matches!(error("de@collation=stroke"), CollationError::UnsupportedType(_)));
    for name in ["en_US_POSIX", "zh_Hant_TW", "sr_Latn", "zh@collation=stroke", "nb", "en_001"] {
        collation(name, |_| ());
    }
}

/// Every kind of text that the levels of a key treat differently.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "A",
        "ä",
        "b",
        "B",
        "é",
        "e\u{301}",
        "ß",
        "ss",
        "1",
        "10",
        "02",
        " ",
        "-",
        "_",
        "\u{0}",
        "\u{1}",
        "\u{fffe}",
        "\u{fffd}",
        "日",
        "ア",
        "ｱ",
        "あ",
        "ł",
        "ĳ",
        "\u{10ffff}",
        "😀",
        "क्",
    ]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn collations() -> impl Strategy<Value = Collation> {
    let locale = prop::sample::select(vec!["en", "de", "sv", "ja", "fr_CA", "zh", "th", "da"]);
    let flags = (any::<[bool; 4]>(), prop::option::of(any::<bool>()));
    (locale, 1_u8..=5, flags).prop_map(
        |(locale, strength, ([level, numeric, shifted, space], backwards))| {
            collation(locale, |request| {
                request.strength = strength;
                request.case_level = Some(level);
                request.numeric_ordering = numeric;
                request.shifted = Some(shifted);
                if space {
                    request.max_variable = MaxVariable::Space;
                }
                request.backwards = backwards;
            })
        },
    )
}

proptest! {
    #[test]
    fn keys_compare_as_texts_do(collation in collations(), a in texts(), b in texts()) {
        let order = collation.compare_text(&a, &b);
        prop_assert_eq!(collation.sort_key(&a).cmp(&collation.sort_key(&b)), order);
        let (left, right) = (
            rawbson!({ "x": [a.as_str(), 1] }),
            rawbson!({ "x": [b.as_str(), 1] }),
        );
        let (left, right) = (left.as_raw_bson_ref(), right.as_raw_bson_ref());
        prop_assert_eq!(compare_under(left, right, Some(&collation)), order);
        for direction in [Direction::Ascending, Direction::Descending] {
            let key = |value| {
                let mut key = KeyBuilder::new();
                key.append_under(value, direction, Some(&collation)).unwrap();
                key.into_bytes()
            };
            let (left, right) = (key(left), key(right));
            let expected = if direction == Direction::Ascending { order } else { order.reverse() };
            prop_assert_eq!(left.cmp(&right), expected);
            prop_assert_eq!(skip(&left, &[direction]).unwrap(), left.len());
            decode_collated(&left, &[], &[direction]).unwrap();
        }
        let (left, right) = (collation.transform(left).unwrap(), collation.transform(right).unwrap());
        prop_assert_eq!(crate::compare(left.as_raw_bson_ref(), right.as_raw_bson_ref()), order);
    }
}

/// The sort keys of version 1. A change here is a change of format: see `docs/formats/keystring.md`.
#[test]
fn golden_sort_keys_of_version_1() {
    let golden = include_str!("golden_v1.txt");
    let mut written = format!("version {SORT_KEY_VERSION}\n");
    let bent = |request: &mut CollationRequest| {
        (request.strength, request.numeric_ordering, request.shifted) = (5, true, Some(true));
    };
    for collation in [
        collation("en", |_| ()),
        collation("de@collation=phonebook", |_| ()),
        collation("sv", bent),
    ] {
        for text in ["", "a", "Äpfel 10", "naïve-\u{0}", "日本", "क्ष"] {
            let key = collation.sort_key(text);
            let key: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
            let locale = &collation.options().locale;
            written.push_str(
                &[locale, " | ", &key.concat(), " | ", text, "\n"].concat().replace('\0', "\\0"),
            );
        }
    }
    if std::env::var_os("FERN_GOLDEN").is_some_and(|mode| mode == "write") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/collation/golden_v1.txt");
        std::fs::write(path, &written).unwrap();
        return;
    }
    assert_eq!(golden, written);
}
