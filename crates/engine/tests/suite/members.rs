//! A member of a set: tails that are overwritten leave nothing, entries are the same on every member, and a
//! start knows what of the log counts.

use crate::held_back::{all, entries, latest, member, put};
use crate::open;
use engine::{
    CommitState, CompressedPart, Compression, DictionaryId, DictionaryOptions, Engine, EntryBytes,
    EntryKind, EntryRecords, Error, Options, Showing, Timestamp, TxnOptions,
};
use os::Os;
use os::sim::{SimOs, Survival};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use testkit::Gen;

const ROOT: DictionaryId = DictionaryId::ROOT;

fn newest(engine: &Engine) -> BTreeMap<String, String> {
    all(&engine.begin_newest(latest()).snapshot())
}

fn seen(engine: &Engine) -> BTreeMap<String, String> {
    all(&engine.snapshot())
}

fn fresh() -> (SimOs, Os, Engine) {
    let sim = SimOs::new(9);
    let os = sim.os();
    let engine = open(&os, member()).unwrap();
    (sim, os, engine)
}

/// Closes what is open as the next entry; says up to which commit it goes.
pub(crate) fn close(engine: &Engine, term: u64, committed: u64) -> u64 {
    let index = engine.entries().last.index + 1;
    let head = engine.close_entry((term, index), EntryKind::Records, b"", committed).unwrap();
    head.unwrap().last_timestamp
}

/// Sends all entries that one member has and the other lacks.
pub(crate) fn send(from: &Engine, to: &Engine) {
    for index in to.entries().last.index + 1..=from.entries().last.index {
        let (head, configuration, records) = from.read_entry(index).unwrap();
        to.append_entry(&head, &configuration, &records).unwrap();
    }
}

/// The power goes, and nothing comes back that was not synced.
pub(crate) fn restart(sim: &SimOs, engine: Engine, options: Options) -> (Os, Engine) {
    let os = sim.reboot_with(Survival::Nothing);
    drop(engine);
    let engine = open(&os, options).unwrap();
    (os, engine)
}

#[test]
fn overwritten_tail_leaves_nothing() {
    let (sim, _os, engine) = fresh();
    put(&engine, "a", "1");
    let base = close(&engine, 1, 0);
    engine.advance_commit_point(Timestamp(base)).unwrap();
    let mut txn = engine.begin_newest(latest());
    txn.put(ROOT, b"a", b"void").unwrap();
    txn.put(ROOT, b"b", b"void").unwrap();
    let made = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    let submitted = txn.submit().unwrap();
    put(&engine, "c", "void");
    let history = engine.history().unwrap();
    let mut tail = history.read_after(0).unwrap();
    engine.discard_open().unwrap();
    assert_eq!(submitted.state(), CommitState::Overwritten);
    assert!(matches!(submitted.wait(), Err(Error::Overwritten)));
    assert_eq!(newest(&engine), entries([("a", "1")]));
    assert!(engine.dictionaries().iter().all(|(id, _)| *id != made));
    // The number is given again, and carries the new value; nobody is in its way.
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"b", b"2").unwrap();
    let again = txn.submit().unwrap();
    assert_eq!(again.timestamp(), submitted.timestamp());
    assert_eq!(newest(&engine), entries([("a", "1"), ("b", "2")]));
    engine.advance_commit_point(again.timestamp()).unwrap();
    assert_eq!(again.state(), CommitState::Visible);
    assert_eq!(seen(&engine), entries([("a", "1"), ("b", "2")]));
    engine.sync().unwrap();
    let mut told = Vec::new();
    while let Some(commit) = tail.next().unwrap() {
        told.push(commit.timestamp.0);
    }
    assert_eq!(told, [base, base + 1], "the history has no void commits");
    let (_os, engine) = restart(&sim, engine, member());
    assert_eq!(newest(&engine), entries([("a", "1")]), "no entry closes it: it is void");
    engine.verify_all().unwrap();
}

#[test]
fn it_is_known_whether_somebody_waits_for_what_is_open() {
    let (_sim, _os, engine) = fresh();
    let mut txn = engine.begin_newest(latest());
    txn.put(ROOT, b"a", b"1").unwrap();
    assert!(!engine.is_open_awaited());
    let submitted = txn.submit().unwrap();
    assert!(!engine.is_open_awaited(), "who has submitted it goes on");
    assert_eq!((submitted.state(), engine.waiting()), (CommitState::Pending, 0));
    assert!(!submitted.wait_until(Some(Duration::ZERO)).unwrap());
    assert!(engine.is_open_awaited() && engine.waiting() == 1);
    let first = submitted.timestamp();
    let gathered = engine.gather().unwrap();
    assert_eq!(gathered.last_timestamp, first.0);
    assert!(!engine.is_open_awaited(), "it will be in the next entry");
    let mut txn = engine.begin_newest(latest());
    txn.put(ROOT, b"b", b"2").unwrap();
    assert!(!txn.submit().unwrap().wait_until(Some(Duration::ZERO)).unwrap());
    assert!(engine.is_open_awaited(), "that will not");
    assert_eq!(close(&engine, 1, 0), first.0);
    assert!(engine.is_open_awaited());
    engine.advance_commit_point(first).unwrap();
    submitted.wait().unwrap();
    assert_eq!((engine.take_released(), engine.waiting()), (1, 1));
}

#[test]
fn what_is_visible_is_never_overwritten() {
    let (_sim, _os, engine) = fresh();
    put(&engine, "a", "1");
    let first = close(&engine, 1, 0);
    let second = put(&engine, "a", "2");
    assert!(first < second);
    engine.advance_commit_point(Timestamp(second)).unwrap();
    let forgotten = engine.discard_open();
    assert!(matches!(forgotten, Err(Error::Stopped(_))), "{forgotten:?}");
    assert_eq!(seen(&engine), entries([("a", "2")]));
    assert!(matches!(engine.check_running(), Err(Error::Stopped(_))));
    let shows_all = open(&SimOs::new(3).os(), crate::tiny()).unwrap();
    assert!(matches!(shows_all.cut(1), Err(Error::InvalidOption(_))));
    let closed = shows_all.close_entry((1, 1), EntryKind::Fence, b"", 0);
    assert!(matches!(closed, Err(Error::InvalidOption(_))));
}

#[test]
fn dictionaries_are_as_they_were_before_the_tail() {
    let (sim, _os, engine) = fresh();
    let mut txn = engine.begin_newest(latest());
    let kept = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.put(kept, b"k", b"v").unwrap();
    let base = txn.submit().unwrap().timestamp();
    close(&engine, 1, 1);
    engine.advance_commit_point(base).unwrap();
    let mut txn = engine.begin_newest(latest());
    let shape = DictionaryOptions { compression: Compression::Lz4, ..Default::default() };
    txn.reshape_dictionary(kept, shape).unwrap();
    txn.submit().unwrap().state();
    engine.checkpoint().unwrap();
    let mut txn = engine.begin_newest(latest());
    txn.drop_dictionary(kept).unwrap();
    txn.submit().unwrap().state();
    assert!(!engine.dictionaries().iter().any(|(id, _)| *id == kept));
    engine.cut(2).unwrap();
    let there = engine.dictionaries().into_iter().find(|(id, _)| *id == kept);
    assert_eq!(there.unwrap().1, DictionaryOptions::default());
    assert_eq!(engine.snapshot().get(kept, b"k").unwrap().unwrap()[..], b"v"[..]);
    let (_os, engine) = restart(&sim, engine, member());
    let there = engine.dictionaries().into_iter().find(|(id, _)| *id == kept);
    assert_eq!(there.unwrap().1, DictionaryOptions::default(), "the checkpoint does not know it");
    assert_eq!(engine.snapshot().get(kept, b"k").unwrap().unwrap()[..], b"v"[..]);
}

#[test]
fn followers_have_the_leaders_commits_and_entries() {
    let (_sim, _os, leader) = fresh();
    let (follower_sim, _follower_os, follower) = fresh();
    let mut random = Gen::new(5);
    leader.close_entry((1, 1), EntryKind::Fence, b"", 0).unwrap().unwrap();
    let mut txn = leader.begin_newest(latest());
    let made = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.put(made, b"k", b"v").unwrap();
    txn.note(b"told").unwrap();
    txn.submit().unwrap().state();
    let head =
        leader.close_entry((1, 2), EntryKind::Configuration, b"members", 1).unwrap().unwrap();
    assert_eq!((head.first_timestamp, head.last_timestamp, head.bytes), (1, 0, 0));
    assert_eq!(close(&leader, 1, 1), 1);
    assert!(leader.close_entry((1, 4), EntryKind::Records, b"", 1).unwrap().is_none());
    for _ in 0..40 {
        let mut txn = leader.begin_newest(latest());
        // Some are long enough for chunks, some for a spill.
        for _ in 0..random.below(30) {
            let key = format!("key {}", random.below(100));
            txn.put(ROOT, key.as_bytes(), &random.value(60)).unwrap();
        }
        txn.put(ROOT, b"z", b"last").unwrap();
        txn.submit().unwrap().state();
        if random.one_in(3) {
            close(&leader, 1, 2);
        }
        leader.step().unwrap();
    }
    put(&leader, "end", "v");
    close(&leader, 2, 2);
    send(&leader, &follower);
    assert_eq!(follower.entries(), leader.entries());
    let bytes = |engine: &Engine| {
        let mut cursor = engine
            .begin_newest(latest())
            .cursor(ROOT, engine::KeyRange::all(), engine::Direction::Forward)
            .unwrap();
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            found.push((key.to_vec(), value.to_vec()));
        }
        found
    };
    assert_eq!(bytes(&leader), bytes(&follower));
    assert_eq!(seen(&follower), entries([]), "nothing was said to be committed");
    let last = follower.complete().timestamp();
    follower.advance_commit_point(last).unwrap();
    leader.advance_commit_point(last).unwrap();
    for n in 1..=leader.entries().last.index {
        assert_eq!(leader.read_entry(n).unwrap(), follower.read_entry(n).unwrap());
    }
    follower.sync().unwrap();
    leader.sync().unwrap();
    let times = |engine: &Engine| {
        let mut tail = engine.history().unwrap().read_after(0).unwrap();
        let mut found = Vec::new();
        while let Some(commit) = tail.next().unwrap() {
            let mut operations = commit.operations();
            let mut count = 0;
            while operations.next().unwrap().is_some() {
                count += 1;
            }
            found.push((commit.timestamp, commit.time, commit.span, count));
        }
        found
    };
    assert_eq!(times(&leader), times(&follower));
    assert_eq!(follower.snapshot().get(made, b"k").unwrap().unwrap()[..], b"v"[..]);
    // Over a restart too; what is known to be committed is what the entries say.
    let known = follower.entry(2).unwrap().timestamp;
    let (_os, follower) = restart(&follower_sim, follower, member());
    assert_eq!(follower.visible().timestamp().0, known);
    assert_eq!(follower.entries(), leader.entries());
    assert_eq!(bytes(&leader), bytes(&follower));
    for n in 1..=leader.entries().last.index {
        assert_eq!(leader.read_entry(n).unwrap(), follower.read_entry(n).unwrap());
    }
    follower.verify_all().unwrap();
}

#[test]
fn a_follower_writes_what_its_leader_has_compressed_as_it_came() {
    let (_sim, _os, leader) = fresh();
    let words: Vec<_> = (0..200).map(|n| format!("word {n} of {}", n * n % 83)).collect();
    let text = words.join(" ");
    put(&leader, "a", &text);
    put(&leader, "b", "short");
    put(&leader, "c", &text);
    close(&leader, 1, 0);
    let sent = leader.entry_records(1).unwrap();
    let [first, last] = sent.compressed() else { panic!("two of them are long: {sent:?}") };
    let compressed = |part: &CompressedPart| zstd::bulk::decompress(&part.block, 1 << 20).unwrap();
    assert_eq!(compressed(first), sent[first.range.clone()]);
    // Compressed otherwise than this program does: so the log shows whether it was compressed again.
    let part = |range: Range<usize>| {
        let block = Arc::new(zstd::bulk::compress(&sent[range.clone()], 19).unwrap());
        CompressedPart { range, block }
    };
    // The last one is not all of a record's operations.
    let parts = [part(first.range.clone()), part(last.range.start + 1..last.range.end)];
    assert_ne!(parts[0].block, first.block);
    let as_it_came = EntryBytes::new(sent.to_vec(), parts.to_vec());
    let (sim, _os, follower) = fresh();
    let records = EntryRecords::read(as_it_came.clone()).unwrap();
    follower.append_read_entry(&leader.entry_heads(0)[0], b"", &records).unwrap();
    assert_eq!(follower.entry_records(1).unwrap(), as_it_came, "it goes on so");
    follower.sync().unwrap();
    let mut files = sim.files();
    files.retain(|path, _| path.extension().is_some_and(|extension| extension == "fernlog"));
    let is_in_log = |part: &CompressedPart| {
        let has =
            |log: &Vec<u8>| log.windows(part.block.len()).any(|bytes| bytes == &part.block[..]);
        files.values().any(has)
    };
    assert_eq!(parts.each_ref().map(is_in_log), [true, false]);
    let (_os, follower) = restart(&sim, follower, member());
    assert_eq!(follower.read_entry(1).unwrap(), leader.read_entry(1).unwrap());
    assert_eq!(newest(&follower), newest(&leader));
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// What readers see in each of some dictionaries; `None` of one that is not there.
fn seen_in(engine: &Engine, dictionaries: &[DictionaryId]) -> Vec<Option<Rows>> {
    let state = engine.snapshot();
    let (all, forward) = (engine::KeyRange::all, engine::Direction::Forward);
    let rows_of = |dictionary: &DictionaryId| {
        let mut cursor = state.cursor(*dictionary, all(), forward).ok()?;
        let mut rows = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            rows.push((key.to_vec(), value.to_vec()));
        }
        Some(rows)
    };
    dictionaries.iter().map(rows_of).collect()
}

#[test]
fn each_commit_of_an_entry_is_to_be_seen_by_itself() {
    for seed in 0..6 {
        let mut random = Gen::new(seed);
        let (_sim, _os, leader) = fresh();
        let (_follower_sim, _follower_os, follower) = fresh();
        let mut dictionaries = vec![ROOT];
        let mut dropped = Vec::new();
        for n in 0..200 {
            let mut txn = leader.begin_newest(latest());
            if random.one_in(40) {
                dictionaries.push(txn.create_dictionary(DictionaryOptions::default()).unwrap());
            }
            if dictionaries.len() > 2 && random.one_in(60) {
                dropped.push(dictionaries.pop().unwrap());
                txn.drop_dictionary(*dropped.last().unwrap()).unwrap();
            }
            // Mostly one key, of few; now and then so much that it is in chunks.
            let is_long = random.one_in(30);
            let count = if is_long { 20 } else { 1 + random.below(3) / 2 };
            let text = "x".repeat(if is_long { 200 } else { 40 });
            for _ in 0..count {
                let into = dictionaries[random.below(dictionaries.len() as u64) as usize];
                let key = [random.below(5) as u8];
                if random.one_in(5) {
                    txn.delete(into, &key).unwrap();
                } else {
                    txn.put(into, &key, format!("{n} {text}").as_bytes()).unwrap();
                }
            }
            txn.submit().unwrap().state();
            if random.one_in(90) {
                close(&leader, 1, 0);
            }
            leader.step().unwrap();
        }
        put(&leader, "end", "v");
        let last = close(&leader, 1, 0);
        send(&leader, &follower);
        let all = [&dictionaries[..], &dropped].concat();
        for ts in 1..=last {
            for engine in [&leader, &follower] {
                engine.advance_commit_point(Timestamp(ts)).unwrap();
            }
            assert_eq!(seen_in(&leader, &all), seen_in(&follower, &all), "seed {seed}, at {ts}");
        }
        follower.verify_all().unwrap();
    }
}

#[test]
fn entries_that_are_not_what_they_say_are_not_appended() {
    let (_sim, _os, leader) = fresh();
    let (_follower_sim, _follower_os, follower) = fresh();
    put(&leader, "a", "1");
    close(&leader, 1, 0);
    put(&leader, "b", "2");
    close(&leader, 1, 0);
    let (head, configuration, records) = leader.read_entry(1).unwrap();
    let (second, _, behind) = leader.read_entry(2).unwrap();
    let refused = |head, configuration: &[u8], records: &[u8]| {
        let appended = follower.append_entry(&head, configuration, records);
        assert!(matches!(appended, Err(Error::Corruption(_))), "{appended:?}");
        assert_eq!(follower.complete().timestamp(), Timestamp(0));
    };
    refused(second, &configuration, &behind);
    refused(head, b"x", &records);
    refused(head, &configuration, &behind);
    for at in 0..records.len() {
        let mut bad = records.clone();
        bad[at] ^= 0x5A;
        refused(head, &configuration, &bad);
        // The same with a checksum that fits: some of it may be read, and never panics.
        let checksum = crc32c::crc32c(&bad);
        let (_other_sim, _other_os, other) = fresh();
        let forged = engine::EntryHead { checksum, ..head };
        let _either = other.append_entry(&forged, &configuration, &bad).is_ok();
    }
    follower.append_entry(&head, &configuration, &records).unwrap();
    assert_eq!(newest(&follower), entries([("a", "1")]));
    refused_again(&follower, head, &records);
}

fn refused_again(follower: &Engine, head: engine::EntryHead, records: &[u8]) {
    let appended = follower.append_entry(&head, b"", records);
    assert!(matches!(appended, Err(Error::Corruption(_))), "it is there already");
}

#[test]
fn new_leaders_entries_take_the_place_of_a_tail() {
    let (sim, _os, old) = fresh();
    let (_new_sim, _new_os, new) = fresh();
    put(&old, "a", "1");
    close(&old, 1, 0);
    send(&old, &new);
    for n in 0..20 {
        put(&old, "a", &format!("void {n}"));
        put(&old, &format!("void {n}"), "void");
        if n % 4 == 0 {
            close(&old, 1, 1);
        }
        old.step().unwrap();
    }
    new.close_entry((2, 2), EntryKind::Fence, b"", 1).unwrap().unwrap();
    put(&new, "b", "2");
    close(&new, 2, 1);
    put(&new, "c", "3");
    close(&new, 2, 3);
    assert!(old.append_entry(&new.read_entry(2).unwrap().0, b"", b"").is_err());
    old.cut(2).unwrap();
    send(&new, &old);
    let expected = entries([("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(newest(&old), expected);
    assert_eq!(old.entries().last, new.entries().last);
    old.advance_commit_point(Timestamp(2)).unwrap();
    old.sync().unwrap();
    let (_os, old) = restart(&sim, old, member());
    assert_eq!((newest(&old), seen(&old).len()), (expected.clone(), 2));
    // What no entry closes goes with a start; what one does stays, though it may still be overwritten.
    put(&old, "d", "void");
    old.sync().unwrap();
    let (_os, old) = restart(&sim, old, member());
    assert_eq!(newest(&old), expected);
    assert_eq!(put(&old, "d", "4"), 4, "the number is given again");
    old.cut(5).unwrap();
    old.advance_commit_point(Timestamp(3)).unwrap();
    old.checkpoint().unwrap();
    let (os, old) = restart(&sim, old, member());
    assert_eq!((newest(&old), old.entries().last), (expected.clone(), new.entries().last));
    old.close().unwrap();
    drop(old);
    // Alone it shows all that is there, and the cuts count.
    let alone = Options { showing: Showing::Complete, ..member() };
    let old = open(&os, alone).unwrap();
    assert_eq!(seen(&old), expected);
    let history = old.history().unwrap();
    let mut tail = history.read_after(history.oldest_time().unwrap()).unwrap();
    let mut told = Vec::new();
    while let Some(commit) = tail.next().unwrap() {
        told.push(commit.timestamp.0);
    }
    assert_eq!(told, [1, 2, 3]);
}

#[test]
fn cut_is_obeyed_by_a_server_that_shows_all() {
    let (sim, _os, engine) = fresh();
    put(&engine, "a", "1");
    close(&engine, 1, 1);
    for n in 0..50 {
        put(&engine, "a", &format!("void {n}"));
    }
    close(&engine, 1, 1);
    engine.cut(2).unwrap();
    put(&engine, "a", "2");
    engine.sync().unwrap();
    let alone = Options { showing: Showing::Complete, ..member() };
    let (_os, engine) = restart(&sim, engine, alone);
    assert_eq!(seen(&engine), entries([("a", "2")]), "of a set of one all counts that is there");
}

#[test]
fn set_of_one_that_becomes_a_member_keeps_all() {
    let sim = SimOs::new(11);
    let alone = Options { showing: Showing::Complete, ..member() };
    let engine = open(&sim.os(), alone).unwrap();
    for n in 0..30 {
        put(&engine, &format!("key {n}"), "v");
    }
    engine.sync().unwrap();
    let (_os, engine) = restart(&sim, engine, member());
    assert_eq!(seen(&engine).len(), 30);
    put(&engine, "void", "v");
    engine.sync().unwrap();
    let (_os, engine) = restart(&sim, engine, member());
    assert_eq!(seen(&engine).len(), 30);
    let next = put(&engine, "b", "v");
    assert_eq!((next, close(&engine, 1, 1)), (31, 31));
    let (head, _, _) = engine.read_entry(1).unwrap();
    assert_eq!(head.first_timestamp, 31);
}

/// A transaction of several chunks.
fn large(engine: &Engine, value: &str) -> engine::EngineTxn {
    let mut txn = engine.begin_newest(latest());
    for n in 0..20 {
        txn.put(ROOT, format!("large {n:02}").as_bytes(), value.repeat(100).as_bytes()).unwrap();
    }
    txn
}

fn small_entries() -> Options {
    let options = member();
    Options { sizes: engine::Sizes { entry_bytes: 400, ..options.sizes }, ..options }
}

#[test]
fn clients_commit_while_an_entry_is_made() {
    let (sim, follower_sim) = (SimOs::new(9), SimOs::new(10));
    let leader = open(&sim.os(), small_entries()).unwrap();
    let follower = open(&follower_sim.os(), member()).unwrap();
    assert!((leader.gather(), leader.open_bytes()) == (None, 0));
    put(&leader, "a", "1");
    let first = leader.gather().unwrap();
    assert_eq!((first.last_timestamp, leader.open_bytes()), (1, 0));
    put(&leader, "b", "2");
    let second = leader.gather().unwrap();
    put(&leader, "c", "3");
    let head = leader.close_entry((1, 1), EntryKind::Records, b"", 0).unwrap().unwrap();
    assert_eq!((head.bytes, head.checksum), (first.bytes, first.checksum));
    put(&leader, "d", "4");
    leader.close_entry((1, 2), EntryKind::Configuration, b"members", 0).unwrap().unwrap();
    // It is proposed again.
    leader.ungather();
    assert_eq!(leader.gather(), Some(second));
    let head = leader.close_entry((1, 3), EntryKind::Records, b"", 0).unwrap().unwrap();
    assert_eq!((head.first_timestamp, head.last_timestamp), (2, 2));
    large(&leader, "x").submit().unwrap().state();
    while leader.open_bytes() > 0 {
        assert!(leader.gather().is_some());
    }
    for n in 0..20 {
        close(&leader, 1, 2);
        put(&leader, "e", &format!("{n}{}", "5".repeat(200)));
    }
    leader.sync().unwrap();
    assert!(leader.entries().last.index > 5, "a transaction in several entries");
    send(&leader, &follower);
    assert_eq!(newest(&follower).len(), newest(&leader).len());
    for index in 1..=leader.entries().last.index {
        let read = leader.read_entry(index).unwrap();
        assert_eq!(follower.read_entry(index).unwrap(), read);
        assert_eq!(leader.entry_records(index).unwrap()[..], read.2[..]);
    }
    let last = leader.entries().last;
    let (_os, leader) = restart(&sim, leader, small_entries());
    assert_eq!(leader.entries().last, last, "what no entry has is void");
    assert_eq!(newest(&leader), newest(&follower));
    for index in 1..=last.index {
        assert_eq!(leader.read_entry(index).unwrap(), follower.read_entry(index).unwrap());
    }
}

#[test]
fn entry_stays_whose_record_stands_behind_those_that_are_void() {
    let sim = SimOs::new(9);
    let engine = open(&sim.os(), small_entries()).unwrap();
    put(&engine, "a", "1");
    engine.gather().unwrap();
    put(&engine, "b", "void");
    engine.gather().unwrap();
    close(&engine, 1, 0);
    close(&engine, 1, 0);
    put(&engine, "c", "void");
    engine.cut(2).unwrap();
    let check = |engine: &Engine| {
        assert_eq!(newest(engine), entries([("a", "1")]));
        assert_eq!((engine.entries().last.index, engine.entries().last.timestamp), (1, 1));
        engine.read_entry(1).unwrap();
    };
    check(&engine);
    let (_os, engine) = restart(&sim, engine, small_entries());
    check(&engine);
    // And where a checkpoint knows of the cut.
    engine.checkpoint().unwrap();
    let (_os, engine) = restart(&sim, engine, small_entries());
    check(&engine);
    assert_eq!(put(&engine, "b", "2"), 2);
    close(&engine, 2, 1);
    engine.commit_entries_up_to(1).unwrap();
    engine.checkpoint().unwrap();
    let (_os, engine) = restart(&sim, engine, small_entries());
    assert_eq!(newest(&engine), entries([("a", "1"), ("b", "2")]));
    assert_eq!((engine.entries().before.index, engine.entries().last.index), (1, 2));
}

#[test]
fn transaction_of_a_leader_that_went_commits_where_its_entry_comes() {
    let sim = SimOs::new(9);
    let leader = open(&sim.os(), small_entries()).unwrap();
    let (follower_sim, _os, follower) = fresh();
    large(&leader, "x").submit().unwrap().state();
    while leader.open_bytes() > 0 {
        close(&leader, 1, 0);
    }
    let last = leader.entries().last.index;
    let append = |follower: &Engine, index: u64| {
        let (head, configuration, records) = leader.read_entry(index).unwrap();
        follower.append_entry(&head, &configuration, &records).unwrap();
    };
    (1..last).for_each(|index| append(&follower, index));
    follower.sync().unwrap();
    follower.commit_entries_up_to(1).unwrap();
    follower.checkpoint().unwrap();
    let (_os, follower) = restart(&follower_sim, follower, member());
    append(&follower, last);
    assert_eq!(newest(&follower), newest(&leader), "over a restart");
    // Another leader's first entry takes its place, and gives way to it again.
    follower.cut(last).unwrap();
    assert_eq!(newest(&follower), entries([]));
    follower.close_entry((2, last), EntryKind::Fence, b"", 1).unwrap().unwrap();
    follower.sync().unwrap();
    let (_os, follower) = restart(&follower_sim, follower, member());
    follower.cut(last).unwrap();
    append(&follower, last);
    assert_eq!(newest(&follower), newest(&leader), "after another entry");
    // And of chunks that stand in the log twice, the first time void.
    follower.cut(last - 1).unwrap();
    append(&follower, last - 1);
    append(&follower, last);
    assert_eq!(newest(&follower), newest(&leader), "with chunks that came again");
    let mut told = 0;
    follower
        .each_commit(last, &mut |step| {
            told += u64::from(matches!(step, engine::CommitStep::Write { .. }));
            Ok(())
        })
        .unwrap();
    assert_eq!(told, 20, "each write is told once");
    // Once that is decided there is nothing that it could come to.
    follower.cut(last).unwrap();
    follower.close_entry((3, last), EntryKind::Fence, b"", 1).unwrap().unwrap();
    follower.commit_entries_up_to(last).unwrap();
    let (head, _, records) = leader.read_entry(last).unwrap();
    let late = engine::EntryHead { index: last + 1, term: 3, ..head };
    let refused = follower.append_entry(&late, b"", &records);
    assert!(matches!(refused, Err(Error::Corruption(_))), "{refused:?}");
}

/// The id of the first transaction of [`leader_of_id`].
const ID: u64 = 3;

/// Its next transaction gets [`ID`].
fn leader_of_id(seed: u64) -> Engine {
    let leader = open(&SimOs::new(seed).os(), small_entries()).unwrap();
    (1..ID).for_each(|_| drop(leader.begin_newest(latest())));
    leader
}

/// A follower with chunks of a leader's transaction whose last entry, with its commit, never comes: a new term
/// has begun, and that is decided.
fn follower_with_chunks() -> (SimOs, Engine) {
    let (_leader, sim, follower) = follower_with_chunks_of_a_leader();
    follower.commit_entries_up_to(follower.entries().last.index).unwrap();
    (sim, follower)
}

/// The same before that is decided, and the leader, which has the entry with the commit.
fn follower_with_chunks_of_a_leader() -> (Engine, SimOs, Engine) {
    let leader = leader_of_id(9);
    large(&leader, "x").submit().unwrap().state();
    while leader.open_bytes() > 0 {
        close(&leader, 1, 0);
    }
    let (sim, _os, follower) = fresh();
    // It has ids at hand, that of the leader's transaction among them.
    drop(follower.begin_newest(latest()));
    let last = leader.entries().last.index;
    for index in 1..last {
        let (head, configuration, records) = leader.read_entry(index).unwrap();
        follower.append_entry(&head, &configuration, &records).unwrap();
    }
    follower.close_entry((2, last), EntryKind::Fence, b"", 0).unwrap().unwrap();
    (leader, sim, follower)
}

#[test]
fn new_leader_gives_no_id_that_chunks_in_its_log_have() {
    let (sim, engine) = follower_with_chunks();
    let mut used = Vec::new();
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        let mut txn = engine.begin_newest(latest());
        used.extend(engine.live_transactions().iter().map(|open| open.id));
        txn.put(ROOT, key.as_bytes(), value.as_bytes()).unwrap();
        txn.submit().unwrap().state();
    }
    assert!(used.len() == 3 && used.iter().all(|id| *id > ID), "{used:?}");
    close(&engine, 2, engine.entries().last.index);
    engine.sync().unwrap();
    let (_os, engine) = restart(&sim, engine, member());
    assert_eq!(newest(&engine), entries([("a", "1"), ("b", "2"), ("c", "3")]));
}

#[test]
fn id_that_a_leader_has_used_again_says_nothing_of_chunks_before() {
    for is_large in [false, true] {
        let (sim, follower) = follower_with_chunks();
        let fence = follower.entries().last.index;
        let other = leader_of_id(11);
        if is_large {
            large(&other, "y").submit().unwrap().state();
        } else {
            put(&other, "a", "1");
        }
        while other.open_bytes() > 0 {
            close(&other, 2, fence);
        }
        let last = other.entries().last.index;
        let append = |follower: &Engine, index: u64| {
            let (head, configuration, records) = other.read_entry(index).unwrap();
            let head = engine::EntryHead { index: fence + index, committed: fence, ..head };
            follower.append_entry(&head, &configuration, &records).unwrap();
        };
        (1..last).for_each(|index| append(&follower, index));
        follower.sync().unwrap();
        let (_os, follower) = restart(&sim, follower, member());
        append(&follower, last);
        assert_eq!(
            newest(&follower),
            newest(&other),
            "{is_large}: its commit finds its own chunks"
        );
        follower.sync().unwrap();
        let (_os, follower) = restart(&sim, follower, member());
        assert_eq!(newest(&follower), newest(&other), "{is_large}: so it does in a start");
        follower.verify_all().unwrap();
    }
}

/// A leader of the second term that gives [`ID`] to a transaction of several entries: it, and its entries behind that
/// fence.
fn leader_that_gives_the_id_again(fence: u64) -> Engine {
    let other = leader_of_id(11);
    large(&other, "y").submit().unwrap().state();
    while other.open_bytes() > 0 {
        close(&other, 2, fence);
    }
    other
}

fn append_behind(fence: u64, from: &Engine, to: &Engine, index: u64) {
    let (head, configuration, records) = from.read_entry(index).unwrap();
    let head = engine::EntryHead { index: fence + index, committed: 0, ..head };
    to.append_entry(&head, &configuration, &records).unwrap();
}

#[test]
fn first_chunks_of_an_id_count_again_where_those_that_came_later_are_void() {
    for restarts in [false, true] {
        let (leader, sim, mut follower) = follower_with_chunks_of_a_leader();
        let fence = follower.entries().last.index;
        let other = leader_that_gives_the_id_again(fence);
        append_behind(fence, &other, &follower, 1);
        if restarts {
            follower.sync().unwrap();
            (_, follower) = restart(&sim, follower, member());
        }
        follower.cut(fence).unwrap();
        send(&leader, &follower);
        assert_eq!(newest(&follower), newest(&leader), "{restarts}");
        follower.sync().unwrap();
        let (_os, follower) = restart(&sim, follower, member());
        assert_eq!(newest(&follower), newest(&leader), "{restarts}: a start says the same");
        follower.verify_all().unwrap();
    }
}

#[test]
fn chunks_whose_id_came_again_keep_no_log_once_a_later_term_is_decided() {
    let mut redone = Vec::new();
    // Whether that is decided before the id comes again, or behind it.
    for is_decided_first in [true, false] {
        let (_leader, sim, follower) = follower_with_chunks_of_a_leader();
        let fence = follower.entries().last.index;
        let decide = |wanted: bool| {
            if wanted {
                follower.commit_entries_up_to(fence).unwrap();
            }
        };
        decide(is_decided_first);
        let other = leader_that_gives_the_id_again(fence);
        for index in 1..=other.entries().last.index {
            append_behind(fence, &other, &follower, index);
        }
        decide(!is_decided_first);
        follower.commit_entries_up_to(follower.entries().last.index).unwrap();
        assert_eq!(seen(&follower), newest(&other));
        follower.close().unwrap();
        let (_os, follower) = restart(&sim, follower, member());
        assert_eq!(seen(&follower), newest(&other));
        redone.push(follower.stats().recovered.log_bytes);
    }
    assert_eq!(redone[0], redone[1], "nothing needs the chunks that came first");
}

#[test]
fn dictionary_that_a_member_leaves_out_does_not_come_back() {
    let (_leader_sim, _os, leader) = fresh();
    let sim = SimOs::new(10);
    let mut follower = open(&sim.os(), member()).unwrap();
    let mut txn = leader.begin_newest(latest());
    let [kept, left_out, later] =
        [0; 3].map(|_| txn.create_dictionary(DictionaryOptions::default()).unwrap());
    for dictionary in [kept, left_out, later] {
        txn.put(dictionary, b"k", b"1").unwrap();
    }
    txn.submit().unwrap().state();
    let decide = |leader: &Engine, follower: &Engine| {
        close(leader, 1, 0);
        send(leader, follower);
        follower.commit_entries_up_to(follower.entries().last.index).unwrap();
    };
    let has = |engine: &Engine, id| engine.dictionaries().iter().any(|(known, _)| *known == id);
    decide(&leader, &follower);
    follower.leave_out([left_out]);
    assert!(has(&follower, kept) && has(&follower, later) && !has(&follower, left_out));
    for round in 0..6_u8 {
        let mut txn = leader.begin_newest(latest());
        for dictionary in [kept, left_out, later] {
            txn.put(dictionary, &[round], b"2").unwrap();
        }
        if round == 1 {
            // As of the newest commit, which is void below.
            follower.leave_out([later]);
        }
        if round == 3 {
            let shape = DictionaryOptions { compression: Compression::Lz4, ..Default::default() };
            txn.reshape_dictionary(left_out, shape).unwrap();
        }
        txn.submit().unwrap().state();
        decide(&leader, &follower);
        if round == 1 {
            // Entries that are not decided are void, and take nothing of it back.
            put(&leader, "a", "1");
            close(&leader, 1, 0);
            send(&leader, &follower);
            follower.cut(follower.entries().last.index).unwrap();
            send(&leader, &follower);
        }
        if round % 2 == 0 {
            follower.checkpoint().unwrap();
        }
        assert!(has(&follower, kept) && !has(&follower, left_out), "{round}");
        assert_eq!(has(&follower, later), round == 0, "{round}");
        follower.sync().unwrap();
        if round >= 2 {
            (_, follower) = restart(&sim, follower, member());
            // Its checkpoint may be older than that.
            follower.leave_out([left_out, later]);
        }
    }
    let read = |engine: &Engine, dictionary| {
        let range = engine::KeyRange::all();
        let state = engine.begin_newest(latest()).snapshot();
        let mut cursor = state.cursor(dictionary, range, engine::Direction::Forward).unwrap();
        let mut all = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            all.push((key.to_vec(), value.to_vec()));
        }
        all
    };
    assert_eq!(read(&follower, kept), read(&leader, kept), "nothing else is passed over");
    assert_eq!(read(&follower, kept).len(), 7);
    // The same entries, byte for byte, and a dictionary that the leader drops by a commit.
    let mut txn = leader.begin_newest(latest());
    txn.drop_dictionary(left_out).unwrap();
    txn.submit().unwrap().state();
    decide(&leader, &follower);
    for index in follower.entries().first_readable..=leader.entries().last.index {
        assert_eq!(follower.read_entry(index).unwrap(), leader.read_entry(index).unwrap());
    }
    follower.verify_all().unwrap();
}

fn used(os: &Os) -> u64 {
    let space = os.vfs.space(std::path::Path::new("/data")).unwrap();
    space.total - space.available
}

/// So many bytes of the disk are free from now on.
fn leave_free(sim: &SimOs, bytes: u64) {
    let capacity_bytes = used(&sim.os()) + bytes;
    sim.set_faults(os::sim::Faults { capacity_bytes, ..os::sim::Faults::default() });
}

#[test]
fn entries_that_a_full_disk_has_no_room_for_are_not_taken_and_come_again() {
    let (_leader_sim, _os, leader) = fresh();
    for n in 0..100 {
        put(&leader, &format!("{n}"), &"x".repeat(200));
        close(&leader, 1, 0);
    }
    let sim = SimOs::new(11);
    let follower = open(&sim.os(), member()).unwrap();
    let mut refused = None;
    for index in 1..=100 {
        let (head, configuration, records) = leader.read_entry(index).unwrap();
        if index == 10 {
            leave_free(&sim, 4 << 10);
        }
        if !follower.has_room_for_entries(records.len() as u64 + 256) {
            refused.get_or_insert(index);
            leave_free(&sim, 1 << 20);
        }
        assert!(follower.has_room_for_entries(records.len() as u64 + 256), "{index}");
        follower.append_entry(&head, &configuration, &records).unwrap();
    }
    assert!(refused.is_some_and(|index| index > 10), "{refused:?}");
    assert_eq!(newest(&follower), newest(&leader));
    follower.check_running().unwrap();
}

#[test]
fn what_a_leader_took_before_the_disk_was_full_is_closed() {
    let (sim, _os, leader) = fresh();
    put(&leader, "a", "1");
    leave_free(&sim, 0);
    let mut taken = 1;
    loop {
        let mut txn = leader.begin_newest(latest());
        txn.put(ROOT, b"a", b"2").unwrap();
        match txn.submit() {
            Ok(submitted) => taken = submitted.timestamp().0,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace(_)), "{error}");
                break;
            }
        }
    }
    let mut closed = 0;
    while leader.open_bytes() > 0 {
        closed = close(&leader, 1, 0);
    }
    assert!(taken > 1 && closed == taken, "{closed} of {taken}");
    leader.close_entry((2, 100), EntryKind::Fence, b"", 0).unwrap_err();
    let fence = leader.entries().last.index + 1;
    leader.close_entry((2, fence), EntryKind::Fence, b"", 0).unwrap().unwrap();
    leader.sync().unwrap();
}

#[test]
fn who_does_not_lead_commits_nothing() {
    let (_sim, _os, engine) = fresh();
    put(&engine, "a", "1");
    close(&engine, 1, 0);
    put(&engine, "a", "void");
    let mut stale = engine.begin_newest(latest());
    let read = stale.get(ROOT, b"a").unwrap().unwrap();
    stale.put(ROOT, b"b", &[&read[..], b"!"].concat()).unwrap();
    let seen = stale.seen();
    engine.forbid_writes();
    let mut refused = engine.begin_newest(latest());
    refused.put(ROOT, b"c", b"never").unwrap();
    assert!(matches!(refused.submit(), Err(Error::NotLeader)));
    assert!(matches!(large(&engine, "y").submit(), Err(Error::NotLeader)), "in chunks");
    engine.discard_open().unwrap();
    engine.allow_writes();
    assert!(matches!(stale.submit(), Err(Error::NotLeader)), "what it has read is void");
    assert_eq!(put(&engine, "a", "2"), 2);
    close(&engine, 2, 1);
    engine.commit_entries_up_to(2).unwrap();
    // The commit that it has read has the same number as one that is visible by now.
    assert_eq!(seen.timestamp(), engine.visible().timestamp());
    assert!(matches!(engine.wait_visible(seen), Err(Error::Overwritten)));
    engine.wait_visible(engine.begin_newest(latest()).seen()).unwrap();
    assert_eq!(self::seen(&engine), entries([("a", "2")]));
}

#[test]
fn set_begins_with_what_is_there_and_its_configuration_is_kept() {
    let (sim, _os, engine) = fresh();
    put(&engine, "a", "1");
    let begun = engine.begin_entries((1, 1), b"one");
    assert!(matches!(begun, Err(Error::InvalidOption(_))), "what is not visible may be void");
    engine.advance_commit_point(Timestamp(1)).unwrap();
    engine.begin_entries((1, 1), b"one").unwrap();
    let configured = |engine: &Engine, index| {
        engine.configuration_at(index).map(|told| String::from_utf8_lossy(&told).into_owned())
    };
    let (_os, engine) = restart(&sim, engine, member());
    assert_eq!((engine.entries().last.index, newest(&engine).len()), (1, 1));
    assert_eq!(configured(&engine, 1).as_deref(), Some("one"));
    engine.close_entry((1, 2), EntryKind::Configuration, b"change", 1).unwrap().unwrap();
    put(&engine, "b", "2");
    close(&engine, 1, 1);
    engine.commit_entries_up_to(3).unwrap();
    engine.checkpoint().unwrap();
    let (_os, engine) = restart(&sim, engine, member());
    assert_eq!(engine.entries().before.index, 1, "what it changed was not told");
    assert_eq!((configured(&engine, 3).as_deref(), engine.entry_heads(1).len()), (Some("one"), 2));
    assert_eq!(engine.read_entry(2).unwrap().1, b"change");
    engine.apply_configuration(3, b"two").unwrap();
    engine.checkpoint().unwrap();
    let (_os, engine) = restart(&sim, engine, member());
    assert_eq!((engine.entries().before.index, engine.committed_index()), (3, 3));
    assert_eq!(configured(&engine, 3).as_deref(), Some("two"));
    assert!(engine.begin_entries((1, 1), b"one").is_err(), "there is one");
}
