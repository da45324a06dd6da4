//! The collation document: what is accepted, what is refused and how, what is shown.

use super::*;
use bson::{Document, doc};

fn raw_doc(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn read(document: &Document) -> Result<Option<Collation>> {
    parse(&raw_doc(document))
}

#[test]
fn a_collation_is_shown_in_full_and_reads_back() {
    for (given, differs) in [
        (doc! { "locale": "en_US" }, doc! {}),
        (doc! { "locale": "fr_CA" }, doc! { "backwards": true }),
        (doc! { "locale": "da" }, doc! { "caseFirst": "upper" }),
        (doc! { "locale": "th" }, doc! { "alternate": "shifted" }),
        (doc! { "locale": "de@collation=phonebook" }, doc! {}),
        (doc! { "locale": "en", "strength": 2.9 }, doc! { "strength": 2 }),
        (
            doc! { "locale": "en", "strength": 1_i64, "caseLevel": true },
            doc! { "strength": 1, "caseLevel": true },
        ),
        (
            doc! { "locale": "en", "maxVariable": "space", "normalization": true, "version": "57.1" },
            doc! { "maxVariable": "space", "normalization": true },
        ),
    ] {
        let collation = read(&given).unwrap().unwrap();
        let mut expected = doc! {
            "locale": given.get_str("locale").unwrap(), "caseLevel": false, "caseFirst": "off",
            "strength": 3, "numericOrdering": false, "alternate": "non-ignorable",
            "maxVariable": "punct", "normalization": false, "backwards": false, "version": "57.1",
        };
        expected.extend(differs);
        let shown = Document::try_from(&to_document(&collation)).unwrap();
        assert_eq!(shown, expected);
        assert!(shown.keys().eq(expected.keys()), "{shown}");
        assert_eq!(read(&shown).unwrap(), Some(collation));
    }
    assert_eq!(read(&doc! { "locale": "simple" }).unwrap(), None);
}

#[test]
fn wrong_documents_are_refused_with_mongodbs_codes() {
    for (document, code) in [
        (doc! {}, 40414),
        (doc! { "strength": 1 }, 40414),
        (doc! { "locale": 1 }, 14),
        (doc! { "locale": "en", "colour": 1 }, 40415),
        (doc! { "locale": "xx" }, 2),
        (doc! { "locale": "" }, 2),
        (doc! { "locale": "en-US" }, 2),
        (doc! { "locale": "de@collation=search" }, 2),
        (doc! { "locale": "en", "strength": 0 }, 2),
        (doc! { "locale": "en", "strength": 6 }, 2),
        (doc! { "locale": "en", "strength": -1 }, 2),
        (doc! { "locale": "en", "strength": "2" }, 14),
        (doc! { "locale": "en", "caseFirst": "first" }, 2),
        (doc! { "locale": "en", "caseFirst": "upper", "strength": 2 }, 2),
        (doc! { "locale": "da", "strength": 2 }, 2),
        (doc! { "locale": "fr", "backwards": true, "strength": 1 }, 2),
        (doc! { "locale": "en", "alternate": "yes" }, 2),
        (doc! { "locale": "en", "maxVariable": "symbol" }, 2),
        (doc! { "locale": "en", "caseLevel": 1 }, 14),
        (doc! { "locale": "en", "version": "60" }, 161),
    ] {
        assert_eq!(read(&document).unwrap_err().code().0, code, "{document}");
    }
}
