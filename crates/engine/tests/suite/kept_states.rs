//! Kept history: every state of a window can be read again, written upon, and is let go.

use crate::{open, scale, tiny};
use engine::{
    DictionaryId, Direction, Durability, Engine, Error, KeyRange, OnConflict, Snapshot, Timestamp,
    TxnOptions,
};
use os::sim::SimOs;
use std::collections::BTreeMap;
use testkit::Gen;

const ROOT: DictionaryId = DictionaryId::ROOT;
const KEYS: u64 = 40;
/// States that are kept behind the newest.
const WINDOW: u64 = 150;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn state(snapshot: &Snapshot) -> State {
    let mut cursor = snapshot.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap();
    let mut found = State::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

fn commit(engine: &Engine, random: &mut Gen, state: &mut State) -> Timestamp {
    let mut txn = engine.begin(TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None });
    for _ in 0..=random.below(3) {
        let key = random.key(KEYS);
        if random.one_in(4) {
            txn.delete(ROOT, &key).unwrap();
            state.remove(&key);
        } else {
            let value = random.value(400);
            txn.put(ROOT, &key, &value).unwrap();
            state.insert(key, value);
        }
    }
    txn.commit(Durability::Buffered).unwrap().durable().unwrap()
}

#[test]
fn every_state_of_the_window_is_read_as_it_was() {
    for seed in 0..2 * scale() {
        let sim = SimOs::new(seed);
        let engine = open(&sim.os(), tiny()).unwrap();
        let mut random = Gen::new(seed);
        engine.retain_states_since(Some(engine.visible().timestamp()));
        let first = engine.visible().timestamp().0;
        let (mut newest, mut states) = (State::new(), BTreeMap::from([(first, State::new())]));
        for round in 0..800_u64 {
            let at = commit(&engine, &mut random, &mut newest).0;
            states.insert(at, newest.clone());
            while random.one_in(2) && engine.step().unwrap() {}
            let floor = at.saturating_sub(WINDOW).max(first);
            if round % 10 == 0 {
                engine.retain_states_since(Some(Timestamp(floor)));
                states = states.split_off(&floor);
                let gone = floor.checked_sub(1).map(Timestamp);
                assert!(gone.is_none_or(|gone| engine.snapshot_at(gone).is_none()));
            }
            let past = floor.max(*states.keys().next().unwrap());
            let past = past + random.below(at - past + 1);
            let snapshot = engine.snapshot_at(Timestamp(past)).unwrap();
            assert_eq!(state(&snapshot), states[&past], "seed {seed}, state {past} at {at}");
        }
        assert!(engine.stats().merges > 0, "nothing was merged");
        assert!(engine.snapshot_at(Timestamp(engine.visible().timestamp().0 + 1)).is_none());
        engine.retain_states_since(None);
        assert!(engine.snapshot_at(engine.visible().timestamp()).is_none());
        engine.verify_all().unwrap();
    }
}

#[test]
fn writer_upon_a_past_state_conflicts_with_what_came_since() {
    let engine = open(&SimOs::new(1).os(), tiny()).unwrap();
    engine.retain_states_since(Some(engine.visible().timestamp()));
    let put = |key: &[u8]| {
        let mut txn = engine.begin(TxnOptions::default());
        txn.put(ROOT, key, b"v").unwrap();
        txn.commit(Durability::Buffered).unwrap().durable().unwrap()
    };
    let before = put(b"a");
    put(b"b");
    let mut random = Gen::new(1);
    for _ in 0..300 {
        // Elsewhere, until the commit on `b` is in no memory table.
        put(&[b"x", &random.key(200)[..]].concat());
        while engine.step().unwrap() {}
    }
    let past = engine.snapshot_at(before).unwrap();
    let mut txn = engine.begin_at(TxnOptions::default(), &past);
    assert_eq!(txn.get(ROOT, b"b").unwrap(), None);
    assert!(matches!(txn.put(ROOT, b"b", b"w"), Err(Error::WriteConflict)));
    txn.put(ROOT, b"a", b"w").unwrap();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
}

#[test]
fn versions_outside_the_window_are_let_go() {
    let engine = open(&SimOs::new(1).os(), tiny()).unwrap();
    engine.retain_states_since(Some(engine.visible().timestamp()));
    let mut random = Gen::new(2);
    let rounds = 1500;
    for round in 0..rounds {
        let at = commit(&engine, &mut random, &mut State::new());
        if round % 10 == 0 {
            engine.retain_states_since(Some(Timestamp(at.0.saturating_sub(WINDOW))));
        }
        while engine.step().unwrap() {}
    }
    let entries = engine.dictionary_stats(ROOT).unwrap().entries;
    assert!(entries < rounds / 2, "{entries} versions of {KEYS} keys are kept");
}
