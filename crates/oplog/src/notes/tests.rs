//! Notes are read as they were written, go back to a mark, and damage is an error.

use super::*;
use bson::doc;
use bson::raw::RawDocumentBuf;
use proptest::prelude::*;

fn raw(document: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn sample() -> Notes {
    let mut notes = Notes::new(false);
    let slot = notes.slot(7, [1; 16], "db.c");
    notes.insert(slot, b"key1", 30);
    notes.insert(slot, b"key2", 30);
    let other = notes.slot(9, [2; 16], "db.d");
    notes.pre_image(&raw(&doc! {"_id": 1, "a": 1}));
    notes.update(other, b"key2", &raw(&doc! {"u": {"a": 2}}));
    notes.overwritten(other, b"key2", &raw(&doc! {"_id": 1, "a": 2}));
    notes.replace(other, b"key2", 30);
    notes.delete(slot, b"kez", &raw(&doc! {"_id": 3}));
    notes.command(&Command {
        ns: "db.$cmd",
        uuid: Some([2; 16]),
        object: &raw(&doc! {"drop": "d"}),
        object2: Some(&raw(&doc! {"numRecords": 1})),
    });
    notes.session(&Session { id: [3; 16], user: [4; 32], number: 5 });
    notes.statements(0, 2);
    notes.wall(1_600_000_000_123);
    notes
}

fn shown(notes: &[&[u8]]) -> Result<Vec<String>> {
    let mut decoder = Decoder::default();
    let mut all = Vec::new();
    for note in notes {
        decoder.read(note, |item, key| {
            all.push(format!("{item:?} {}", String::from_utf8_lossy(key)));
            Ok(())
        })?;
    }
    Ok(all)
}

#[test]
fn what_is_written_is_read() {
    let notes = sample();
    let all: Vec<&[u8]> = notes.each().collect();
    let shown = shown(&all).unwrap();
    let starts = [
        "Name { dictionary: 7,",
        "Insert(0) key1",
        "Insert(0) key2",
        "Name { dictionary: 9,",
        "PreImage(",
        "Update(1, ",
        "Overwritten(1, ",
        "Replace(1) key2",
        "Delete(0, ",
        "Command(",
        "Session(",
        "Statements { first: 0, count: 2, statement: 0 }",
        "Wall(1600000000123)",
    ];
    assert_eq!(shown.len(), starts.len(), "{shown:#?}");
    for (line, start) in shown.iter().zip(starts) {
        assert!(line.starts_with(start), "{line} is not {start}");
    }
    assert_eq!(notes.span(), 6);
}

#[test]
fn golden_notes_are_read_and_written_the_same() {
    let notes = sample();
    let all: Vec<&[u8]> = notes.each().collect();
    let golden = testkit::golden(env!("CARGO_MANIFEST_DIR"), "notes.v1.bin", &all.concat());
    assert_eq!(shown(&[&golden]).unwrap(), shown(&all).unwrap());
}

#[test]
fn a_run_of_inserts_costs_few_bytes() {
    let mut notes = Notes::new(false);
    let slot = notes.slot(7, [1; 16], "db.c");
    for number in 0..1000_u32 {
        let key = [&b"a longer prefix"[..], &number.to_be_bytes()].concat();
        notes.insert(slot, &key, 100);
    }
    assert!(notes.each().map(<[u8]>::len).sum::<usize>() < 1000 * 6);
}

#[test]
fn notes_go_back_to_a_mark() {
    let mut notes = sample();
    let before: Vec<u8> = notes.each().flatten().copied().collect();
    let span = notes.span();
    let mark = notes.mark();
    let slot = notes.slot(11, [5; 16], "db.e");
    for number in 0..20_000_u32 {
        notes.insert(slot, &number.to_be_bytes(), 10);
    }
    assert!(notes.each().count() > 1);
    notes.truncate(mark);
    let after: Vec<u8> = notes.each().flatten().copied().collect();
    assert_eq!((before, span), (after, notes.span()));
    // Keys behind it stand for themselves.
    let slot = notes.slot(7, [1; 16], "db.c");
    notes.insert(slot, b"key9", 10);
    let all: Vec<&[u8]> = notes.each().collect();
    assert_eq!(shown(&all).unwrap().last().unwrap(), "Insert(0) key9");
}

#[test]
fn a_transaction_is_split_into_entries() {
    let mut notes = Notes::new(true);
    let slot = notes.slot(7, [1; 16], "db.c");
    for number in 0..4_u8 {
        notes.insert(slot, &[number], 5 << 20);
    }
    assert_eq!(notes.span(), 2);
    let all: Vec<&[u8]> = notes.each().collect();
    assert_eq!(shown(&all).unwrap().iter().filter(|item| item.starts_with("Break")).count(), 1);
}

proptest! {
    #[test]
    fn damaged_notes_never_panic(
        at in any::<prop::sample::Index>(), to: u8, cut in any::<prop::sample::Index>()
    ) {
        let notes = sample();
        let mut bytes: Vec<u8> = notes.each().flatten().copied().collect();
        let at = at.index(bytes.len());
        bytes[at] = to;
        bytes.truncate(cut.index(bytes.len() + 1));
        let _read = shown(&[&bytes]);
    }
}
