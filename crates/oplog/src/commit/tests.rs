//! A commit is read back: its operations, entries and events.

use super::*;
use crate::event::{self, AttachedDocument, Target};
use crate::notes::{Command, Notes};
use crate::{entry, event::Kind};
use bson::{Document, doc};

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

struct Fixed(Vec<(u64, Vec<u8>, RawDocumentBuf)>);

impl Rows for Fixed {
    fn get(&self, dictionary: u64, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.0.iter().find(|row| row.0 == dictionary && row.1 == key);
        Ok(found.map(|row| row.2.as_bytes().to_vec()))
    }
}

/// Inserted, changed, replaced and deleted by one commit, and another that stays.
fn commit(is_transaction: bool) -> Commit {
    let mut notes = Notes::new(is_transaction);
    let slot = notes.slot(7, [1; 16], "db.c");
    notes.insert(slot, b"1", 20);
    notes.insert(slot, b"2", 20);
    notes.overwritten(slot, b"1", &raw(&doc! {"_id": 1, "v": 1}));
    notes.update(slot, b"1", &raw(&doc! {"u": {"v": 2}}));
    notes.overwritten(slot, b"1", &raw(&doc! {"_id": 1, "v": 2}));
    notes.replace(slot, b"1", 20);
    notes.overwritten(slot, b"1", &raw(&doc! {"_id": 1, "v": 3}));
    notes.pre_image(&raw(&doc! {"_id": 1, "v": 3}));
    notes.delete(slot, b"1", &raw(&doc! {"_id": 1}));
    notes.command(&Command {
        ns: "db.$cmd",
        uuid: Some([1; 16]),
        object: &raw(&doc! {"drop": "c"}),
        object2: None,
    });
    let rows = Fixed(vec![(7, b"2".to_vec(), raw(&doc! {"_id": 2}))]);
    let head = Head { first: Time(5 << 32 | 1), span: notes.span(), is_transaction };
    Commit::new(head, notes.each().map(<[u8]>::to_vec).collect(), Box::new(rows)).unwrap()
}

fn all(commit: &Commit, wants: &dyn Fn(Option<&Name>) -> bool) -> Vec<Operation> {
    let mut cursor = Cursor::default();
    std::iter::from_fn(|| cursor.next(commit, wants).unwrap()).collect()
}

#[test]
fn operations_have_the_documents_of_their_moment() {
    let commit = commit(false);
    let shown: Vec<String> = all(&commit, &|_| true)
        .iter()
        .map(|operation| match &operation.what {
            What::Insert(document) => format!("i {}", Document::try_from(document).unwrap()),
            What::Update { id, after, .. } => format!(
                "u {} {}",
                Document::try_from(id).unwrap(),
                Document::try_from(after).unwrap()
            ),
            What::Replace(document) => format!("r {}", Document::try_from(document).unwrap()),
            What::Delete(id) => format!("d {}", Document::try_from(id).unwrap()),
            What::Command { object, .. } => format!("c {}", Document::try_from(object).unwrap()),
        })
        .collect();
    let expected = [
        r#"i { "_id": 1, "v": 1 }"#,
        r#"i { "_id": 2 }"#,
        r#"u { "_id": 1 } { "_id": 1, "v": 2 }"#,
        r#"r { "_id": 1, "v": 3 }"#,
        r#"d { "_id": 1 }"#,
        r#"c { "drop": "c" }"#,
    ];
    assert_eq!(shown, expected);
    assert_eq!(commit.operations(), 6);
}

#[test]
fn a_plain_commit_is_an_entry_for_each_operation() {
    let commit = commit(false);
    let times: Vec<u64> = all(&commit, &|_| true)
        .iter()
        .map(|operation| entry::plain(&commit, operation).unwrap())
        .filter_map(|entry| entry::time_of(&entry))
        .map(|time| time.0 & 0xFFFF_FFFF)
        .collect();
    assert_eq!(times, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_transaction_is_one_list() {
    let commit = commit(true);
    let mut list = entry::ApplyOps::begin(0);
    for operation in all(&commit, &|_| true) {
        list.push(&operation).unwrap();
    }
    let entry = list.finish(&commit, 6).unwrap();
    let entry = Document::try_from(&entry).unwrap();
    let operations = entry.get_document("o").unwrap().get_array("applyOps").unwrap();
    assert_eq!(operations.len(), 6);
    assert_eq!(entry.get_str("ns").unwrap(), "admin.$cmd");
}

#[test]
fn events_are_those_of_the_target() {
    let commit = commit(false);
    for (target, expected) in [
        (Target::Collection("db.c".into()), 6),
        (Target::Database("db".into()), 6),
        (Target::Cluster, 6),
        (Target::Collection("db.other".into()), 0),
        (Target::Database("other".into()), 0),
    ] {
        let operations = all(&commit, &|name| target.wants(name));
        let events: Vec<_> = operations
            .iter()
            .filter_map(|operation| {
                event::change_event(&commit, operation, &target, false).unwrap()
            })
            .collect();
        assert_eq!(events.len(), expected, "{target:?}");
        if let Some(last) = events.last() {
            assert_eq!(last.kind, Kind::Drop);
            assert_eq!(last.invalidates, matches!(target, Target::Collection(_)), "{target:?}");
        }
        let mut tokens: Vec<String> = events.iter().map(|event| event.token.to_text()).collect();
        let sorted = tokens.clone();
        tokens.sort();
        assert_eq!(tokens, sorted);
    }
}

#[test]
fn an_event_has_mongodbs_fields() {
    let commit = commit(true);
    let target = Target::Database("db".into());
    let operations = all(&commit, &|_| true);
    let event = event::change_event(&commit, &operations[2], &target, false).unwrap().unwrap();
    let full = AttachedDocument::Document(event.after().unwrap().clone());
    let shown =
        Document::try_from(&event.document(&full, &AttachedDocument::Null).unwrap()).unwrap();
    let names: Vec<&str> = shown.keys().map(String::as_str).collect();
    let expected = [
        "_id",
        "operationType",
        "clusterTime",
        "wallTime",
        "fullDocument",
        "ns",
        "documentKey",
        "updateDescription",
        "fullDocumentBeforeChange",
    ];
    assert_eq!(names, expected);
    assert_eq!(shown.get_document("ns").unwrap(), &doc! {"db": "db", "coll": "c"});
    assert_eq!(shown.get_document("documentKey").unwrap(), &doc! {"_id": 1});
}
