//! Words, stems, scores and searches, by example and at random.

use super::*;
use crate::language::LANGUAGES;
use bson::{Document, RawDocumentBuf, doc};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const PLAIN: Sensitivity = Sensitivity { case: false, diacritics: false };

fn terms_of(text: &str, language: Language, version: Version, like: Sensitivity) -> Vec<String> {
    let mut found = Vec::new();
    tokens(text, language, version, like, |term| found.push(term.to_owned()));
    found
}

fn check(language: Language, text: &str, expected: &[&str]) {
    assert_eq!(terms_of(text, language, Version::Three, PLAIN), expected, "{language:?}: {text}");
}

#[test]
fn languages_are_known_by_name_and_code() {
    for (language, name, code) in LANGUAGES {
        for given in [name, code, &name.to_uppercase(), &code.to_uppercase()] {
            assert_eq!(Language::parse(given, Version::Three).unwrap(), language);
        }
        assert_eq!(language.name(), name);
    }
    let error = Language::parse("klingon", Version::Three).unwrap_err();
    assert_eq!(error.message(), "unsupported language: \"klingon\" for text index version 3");
    assert_eq!(Language::parse("klingon", Version::One).unwrap(), Language::None);
}

#[test]
fn texts_become_terms_in_every_language() {
    check(Language::None, "The Quick, brown-fox's", &["the", "quick", "brown", "fox", "s"]);
    check(Language::English, "The running dogs weren't barking", &["run", "dog", "bark"]);
    check(Language::English, "Just coffees, and cakes!", &["just", "coffe", "cake"]);
    check(
        Language::English,
        "O'Brien's snake_case über-naïve",
        &["o'brien", "snake_cas", "uber", "naiv"],
    );
    check(Language::Danish, "og hundene løber", &["hund", "løb"]);
    check(Language::Dutch, "de katten en honden", &["kat", "hond"]);
    check(Language::Finnish, "ja koirat juoksevat", &["koira", "juoksev"]);
    check(Language::French, "les chevaux et les maisons", &["cheval", "maison"]);
    check(Language::German, "die Häuser und Bücher", &["haus", "buch"]);
    check(Language::Hungarian, "a házak és kutyák", &["haz", "kutya"]);
    check(Language::Italian, "il gatto e i cani", &["gatt", "can"]);
    check(Language::Norwegian, "og hundene løper", &["hund", "løp"]);
    check(Language::Portuguese, "os meninos e as meninas", &["menin", "menin"]);
    check(Language::Romanian, "şi casele", &["cas"]);
    check(Language::Russian, "и собаки бегут", &["собак", "бегут"]);
    check(Language::Spanish, "los niños y las canciones", &["nin", "cancion"]);
    check(Language::Swedish, "och hundarna springer", &["hund", "spring"]);
    check(Language::Turkish, "ve KITAPLAR", &["kıtap"]);
}

#[test]
fn cases_and_accents_matter_where_it_is_asked() {
    let of = |version, case, diacritics| {
        terms_of("Café ÉCLAIR", Language::None, version, Sensitivity { case, diacritics })
    };
    assert_eq!(of(Version::Three, false, false), ["cafe", "eclair"]);
    assert_eq!(of(Version::Three, true, false), ["Cafe", "ECLAIR"]);
    assert_eq!(of(Version::Three, false, true), ["café", "éclair"]);
    assert_eq!(of(Version::Three, true, true), ["Café", "ÉCLAIR"]);
    assert_eq!(of(Version::Two, false, false), ["café", "Éclair"]);
    check(Language::None, "ΟΔΟΣ οδος Straße", &["οδοσ", "οδοσ", "straße"]);
    check(Language::None, "한국어 “quoted”—dash…", &["한국어", "quoted", "dash"]);
}

fn fields(weights: &[(&str, f64)]) -> Arc<Fields> {
    let weights: BTreeMap<String, f64> =
        weights.iter().map(|(path, weight)| ((*path).to_owned(), *weight)).collect();
    Arc::new(Fields::new(weights, Language::English, "language".to_owned(), Version::Three))
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn check_scores(weights: &[(&str, f64)], document: &Document, expected: &[(&str, f64)]) {
    let found = fields(weights).scores(&raw(document)).unwrap();
    let expected: BTreeMap<String, f64> =
        expected.iter().map(|(term, score)| ((*term).to_owned(), *score)).collect();
    assert_eq!(found, expected, "{document}");
}

#[test]
fn scores_are_mongodbs() {
    let a = [("a", 1.0)];
    check_scores(&a, &doc! { "a": "coffee" }, &[("coffe", 1.0)]);
    check_scores(&a, &doc! { "a": "Coffee Shopping" }, &[("coffe", 0.75), ("shop", 0.75)]);
    // The term is the whole text.
    check_scores(&a, &doc! { "a": "Cake" }, &[("cake", 1.1)]);
    // Three of three, falling by half: (1 + 1/2 + 1/4) × 1.
    check_scores(&a, &doc! { "a": "clothes clothes clothes" }, &[("cloth", 1.75)]);
    check_scores(&[("a", 1.0), ("b", 10.0)], &doc! { "a": "tea", "b": "tea" }, &[("tea", 12.1)]);
    check_scores(
        &a,
        &doc! { "a": ["tea", "green tea", ["no"]], "b": "x" },
        &[("green", 0.75), ("tea", 1.85)],
    );
    check_scores(&a, &doc! { "a": "the" }, &[]);
    check_scores(&a, &doc! { "a": 1 }, &[]);
}

#[test]
fn paths_lead_through_documents_and_arrays() {
    let nested = [("a.b", 1.0)];
    check_scores(&nested, &doc! { "a": { "b": "tea" } }, &[("tea", 1.1)]);
    check_scores(
        &nested,
        &doc! { "a": [{ "b": "tea" }, { "b": ["cake"] }, "no"] },
        &[("cake", 1.1), ("tea", 1.1)],
    );
    check_scores(&nested, &doc! { "a": "tea", "b": "tea" }, &[]);
    let all = [("$**", 2.0), ("x.y", 3.0)];
    check_scores(
        &all,
        &doc! { "a": "tea", "x": { "y": "tea", "z": [["cake"]] }, "language": "english" },
        &[("cake", 2.2), ("tea", 5.5)],
    );
    assert_eq!(fields(&all).paths(), None);
    let paths = fields(&[("a.b.c", 1.0)]).paths().unwrap();
    assert_eq!(paths, ["a.b.c", "a.b.language", "a.language", "language"]);
}

#[test]
fn documents_say_their_language() {
    let a = [("a", 1.0), ("b.a", 1.0)];
    let document =
        doc! { "language": "german", "a": "häuser", "b": { "language": "fr", "a": "chevaux" } };
    check_scores(&a, &document, &[("cheval", 1.0), ("haus", 1.0)]);
    for (language, code) in [(bson::Bson::from("klingon"), 17262), (bson::Bson::from(1), 17261)] {
        let error = fields(&a).scores(&raw(&doc! { "language": language })).unwrap_err();
        assert_eq!(error.code().0, code);
    }
    let error = fields(&a).scores(&raw(&doc! { "language": "klingon" })).unwrap_err();
    assert_eq!(error.message(), "language override unsupported: klingon");
}

fn query(search: &str) -> Query {
    Query::parse(search, Language::English, Version::Three, PLAIN)
}

#[test]
fn searches_have_terms_phrases_and_negations() {
    type Expected<'e> = (&'e str, &'e [&'e str], &'e [&'e str], &'e [&'e str], &'e [&'e str]);
    let cases: &[Expected<'_>] = &[
        ("coffee shops", &["coffe", "shop"], &[], &[], &[]),
        ("coffee -shop", &["coffe"], &["shop"], &[], &[]),
        ("coffee - shop", &["coffe", "shop"], &[], &[], &[]),
        ("pre-market", &["market", "pre"], &[], &[], &[]),
        ("-pre-market day", &["day"], &["market", "pre"], &[], &[]),
        ("\"coffee shop\" tea", &["coffe", "shop", "tea"], &[], &["coffee shop"], &[]),
        ("tea -\"coffee shop\"", &["tea"], &[], &[], &["coffee shop"]),
        ("tea - \"coffee shop\"", &["coffe", "shop", "tea"], &[], &["coffee shop"], &[]),
        ("\"open -end", &["end", "open"], &[], &[], &[]),
        ("the and", &[], &[], &[], &[]),
        ("", &[], &[], &[], &[]),
    ];
    for (search, terms, negated, phrases, negated_phrases) in cases {
        let query = query(search);
        assert!(query.terms().iter().eq(*terms), "{search}: {:?}", query.terms());
        assert!(query.negated_terms().iter().eq(*negated), "{search}");
        assert_eq!(query.phrases(), *phrases, "{search}");
        assert_eq!(query.negated_phrases(), *negated_phrases, "{search}");
    }
}

fn matches(search: &str, like: Sensitivity, text: &str) -> bool {
    let query = Query::parse(search, Language::English, Version::Three, like);
    Search::new(query, fields(&[("a", 1.0)])).matches(&raw(&doc! { "a": text })).unwrap()
}

#[test]
fn searches_match_documents() {
    let check = |search: &str, text: &str, expected: bool| {
        assert_eq!(matches(search, PLAIN, text), expected, "{search} in {text}");
    };
    check("coffee", "Two COFFEES", true);
    check("tea coffee", "coffee", true);
    check("tea", "steam", false);
    check("coffee -black", "black coffee", false);
    check("\"coffee shop\"", "a Coffee shops guide", true);
    check("\"coffee shop\"", "shop for coffee", false);
    check("coffee -\"coffee shop\"", "my coffee shop", false);
    check("coffee -\"coffee shop\"", "shop coffee", true);
    check("cafe", "Café", true);
    check("-coffee", "tea", false);
    check("the", "the", false);
    let case = Sensitivity { case: true, diacritics: false };
    assert!(matches("Coffee", case, "Coffee") && !matches("Coffee", case, "coffee"));
    assert!(!matches("\"Hot Tea\" hot", case, "Hot tea"));
    let accents = Sensitivity { case: false, diacritics: true };
    assert!(matches("Café", accents, "CAFÉ") && !matches("Café", accents, "cafe"));
}

#[test]
fn long_terms_are_cut_and_stay_distinct() {
    let (a, b) = ("é".repeat(200) + "a", "é".repeat(200) + "b");
    assert_eq!(index_term("short"), "short");
    assert_eq!(index_term(&a).len(), 224 + 32);
    assert_ne!(index_term(&a), index_term(&b));
    assert!(index_term(&a).starts_with(&"é".repeat(112)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Neither the stemmers nor the folding may fail on what a client sends.
    #[test]
    fn any_text_becomes_terms(
        text in "(\\PC|[a-zäöåéèñçşığßłőűšžа-яıİ'’\u{301}\u{308} ]){0,24}",
        language in 0..LANGUAGES.len(),
        case in any::<bool>(),
        diacritics in any::<bool>(),
    ) {
        let language = LANGUAGES[language].0;
        for version in [Version::Two, Version::Three] {
            let like = Sensitivity { case, diacritics };
            for term in terms_of(&text, language, version, like) {
                prop_assert!(!term.is_empty());
            }
            let upper = terms_of(&text.to_uppercase(), language, version, PLAIN);
            prop_assert_eq!(upper, terms_of(&text.to_uppercase(), language, version, PLAIN));
        }
        Query::parse(&text, language, Version::Three, PLAIN);
    }

    /// A document found by its terms is found by the search, and the other way round.
    #[test]
    fn a_search_finds_the_documents_that_have_its_terms(
        words in prop::collection::vec("[a-e]{1,2}(s|ing)?", 0..6),
        search in prop::collection::vec("[a-e]{1,2}(s|ed)?", 1..3),
    ) {
        let document = raw(&doc! { "a": words.join(" ") });
        let fields = fields(&[("a", 1.0)]);
        let terms = fields.scores(&document).unwrap();
        let search = Search::new(query(&search.join(" ")), Arc::clone(&fields));
        let found = search.query().index_terms().iter().any(|term| terms.contains_key(term));
        prop_assert_eq!(found, search.matches(&document).unwrap());
        if found {
            prop_assert!(search.matches_indexed(&document).unwrap());
        }
    }
}
