//! Statements where commits are held back: they go ahead, and who answers for them waits.

use super::*;
use crate::data::txn::TxnKind;
use engine::{EntryKind, HistoryOptions, Showing, Timestamp};
use errors::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A member of a set; the majority is who calls [`Member::decide`].
pub(super) struct Member {
    pub(super) engine: Engine,
    pub(super) catalog: Arc<Catalog>,
}

impl Member {
    /// It has a collection `db.c` with one document, `_id: 0`.
    pub(super) fn new() -> Self {
        let engine = Engine::temporary_with(|options| {
            options.history = Some(HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO });
            options.showing = Showing::Committed;
        });
        let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
        let catalog = Catalog::following(engine.clone(), options).unwrap();
        let member = Self { engine, catalog };
        member.decided(|catalog| {
            catalog.take_over().unwrap();
            insert(catalog, "db.c", &doc! { "_id": 0 }).unwrap();
        });
        member
    }

    /// A majority has all that is in the log by now.
    pub(super) fn decide(&self) {
        loop {
            let last = self.engine.entries().last;
            let place = (last.term.max(1), last.index + 1);
            if self.engine.close_entry(place, EntryKind::Records, b"", 0).unwrap().is_none() {
                break;
            }
        }
        self.engine.commit_entries_up_to(self.engine.entries().last.index).unwrap();
    }

    /// Runs something on another thread, while a majority has whatever comes.
    pub(super) fn decided<T: Send>(&self, work: impl FnOnce(&Arc<Catalog>) -> T + Send) -> T {
        let result = std::thread::scope(|scope| {
            let running = scope.spawn(|| work(&self.catalog));
            while !running.is_finished() {
                self.decide();
                std::thread::yield_now();
            }
            running.join().unwrap()
        });
        self.decide();
        result
    }

    /// Another member leads, which has nothing of the tail; then this one leads again.
    pub(super) fn lose_tail(&self) {
        self.engine.forbid_writes();
        self.engine.discard_open().unwrap();
        drop(Follower::again(&self.catalog).unwrap());
        self.engine.allow_writes();
    }

    fn count(&self) -> u64 {
        self.catalog.collection(&ns("db.c")).unwrap().count()
    }

    /// How many documents a reader sees.
    pub(super) fn shown(&self) -> usize {
        self.catalog.system_documents(&ns("db.c")).unwrap().len()
    }

    pub(super) fn timed_out(&self) -> bool {
        self.catalog.settle_until(Some(Duration::ZERO)).unwrap() == SettleOutcome::TimedOut
    }

    /// Counts and indexes are those of what the log has.
    pub(super) fn check(&self) {
        self.decided(|catalog| {
            check_valid(catalog, "db.c");
        });
        let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
        let opened = Catalog::following(self.engine.clone(), options).unwrap();
        let of = |catalog: &Catalog| {
            let collection = catalog.collection(&ns("db.c")).unwrap();
            let masks: Vec<_> =
                collection.indexes().iter().map(|index| index.multikey_parts()).collect();
            (collection.count(), collection.data_size(), masks)
        };
        assert_eq!(of(&self.catalog), of(&opened));
        assert_eq!(self.count(), self.shown() as u64);
    }
}

fn id(id: i32) -> Document {
    doc! { "_id": id }
}

/// Deletes a document, where it is there; says whether it was.
fn delete(catalog: &Arc<Catalog>, id: i32) -> Result<bool> {
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&ns("db.c"))?.unwrap();
    let key = indexkeys::id_key(RawBsonRef::Int32(id), collection.collation())?;
    let found = txn.get_for_update(&collection, &key)?;
    if let Some(found) = &found {
        txn.delete_document(&collection, &key, RawDocument::from_bytes(&found[..])?)?;
    }
    txn.commit()?;
    Ok(found.is_some())
}

/// An operation that may not wait any more.
#[derive(Default)]
struct TimeIsOver(AtomicBool);

impl limits::Interrupt for TimeIsOver {
    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::new(Code::MAX_TIME_MS_EXPIRED, "operation exceeded time limit"));
        }
        Ok(())
    }
}

/// Runs something in an operation whose time is over.
fn late<T>(work: impl FnOnce() -> T) -> T {
    let interrupt = Arc::new(TimeIsOver(AtomicBool::new(true)));
    let _scope = limits::enter(interrupt, limits::Account::new(1 << 30));
    work()
}

#[test]
fn statements_go_ahead_of_readers_and_the_answer_waits_once() {
    let member = Member::new();
    let catalog = &member.catalog;
    let before = member.engine.visible().timestamp();
    for n in 1..=20 {
        insert(catalog, "db.c", &id(n)).unwrap();
        // Each sees those before it.
        assert!(delete(catalog, n - 1).unwrap());
        assert!(!delete(catalog, n - 1).unwrap());
    }
    assert_eq!(member.engine.visible().timestamp(), before, "nobody was waited for");
    assert_eq!(member.shown(), 1);
    assert_eq!(catalog.system_document(&ns("db.c")).unwrap().unwrap(), raw(&id(0)));
    let planned = catalog.statement_snapshot();
    let collection = catalog.collection(&ns("db.c")).unwrap();
    let key = indexkeys::id_key(RawBsonRef::Int32(20), collection.collation()).unwrap();
    assert!(planned.get(collection.primary(), &key).unwrap().is_some());
    assert!(catalog.snapshot().get(collection.primary(), &key).unwrap().is_none());
    assert!(member.timed_out());
    assert!(member.timed_out(), "it is still remembered");
    catalog.sync().unwrap();
    assert!(member.timed_out(), "its own disk is no majority");
    let interrupted = late(|| catalog.settle_until(None));
    let Err(NotSettled::Undecided(error)) = interrupted else { panic!("{interrupted:?}") };
    assert_eq!(error.code(), Code::MAX_TIME_MS_EXPIRED);
    assert_eq!(late(|| catalog.settle()).unwrap_err().code(), Code::MAX_TIME_MS_EXPIRED);
    member.decide();
    catalog.settle().unwrap();
    assert_eq!(catalog.system_document(&ns("db.c")).unwrap().unwrap(), raw(&id(20)));
    member.check();
}

#[test]
fn settle_returns_when_a_majority_has_it() {
    let member = Member::new();
    let waits = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let request = scope.spawn(|| {
            insert(&member.catalog, "db.c", &id(1)).unwrap();
            let soon = member.catalog.os().clock.monotonic() + Duration::from_millis(1);
            let outcome = member.catalog.settle_until(Some(soon)).unwrap();
            assert_eq!(outcome, SettleOutcome::TimedOut);
            waits.store(true, Ordering::Release);
            member.catalog.settle().unwrap();
            member.shown()
        });
        while !waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert!(!request.is_finished());
        while !request.is_finished() {
            member.decide();
        }
        assert_eq!(request.join().unwrap(), 2);
    });
}

#[test]
fn what_is_taken_along_is_settled_when_a_majority_has_it_and_its_watch_is_called_then() {
    let member = Member::new();
    let catalog = &member.catalog;
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&calls);
    let call: os::Call = Arc::new(move || {
        counting.fetch_add(1, Ordering::SeqCst);
    });
    let called = || calls.load(Ordering::SeqCst);
    let write = |n: i32| {
        insert(catalog, "db.c", &id(n)).unwrap();
        catalog.take_unsettled()
    };
    let (first, second) = (write(1), write(2));
    catalog.settle().unwrap();
    assert!(!catalog.is_settled(&first).unwrap(), "the thread has nothing to wait for, it has");
    catalog.sync().unwrap();
    assert!(!catalog.is_settled(&first).unwrap(), "its own disk is no majority");
    let watches = [&first, &second, &second].map(|taken| catalog.when_settled(taken, &call));
    assert!(watches.iter().all(Option::is_some));
    let [first_watch, second_watch, left] = watches;
    drop(left);
    assert_eq!(called(), 0);
    member.decide();
    assert_eq!(called(), 2);
    assert!(catalog.is_settled(&first).unwrap() && catalog.is_settled(&second).unwrap());
    assert!(catalog.when_settled(&first, &call).is_none());
    drop((first_watch, second_watch));
    let lost = write(3);
    let watch = catalog.when_settled(&lost, &call);
    member.lose_tail();
    assert_eq!(called(), 3, "that it is overwritten is told, too");
    let Err(NotSettled::Overwritten(error)) = catalog.is_settled(&lost) else { panic!() };
    assert_eq!(error.code(), Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    drop(watch);
    // Another commit has its number.
    let again = write(3);
    member.decide();
    assert!(catalog.is_settled(&again).unwrap());
    assert!(matches!(catalog.is_settled(&lost), Err(NotSettled::Overwritten(_))));
    assert!(catalog.is_settled(&catalog.take_unsettled()).unwrap(), "nothing is settled");
}

#[test]
fn what_is_overwritten_is_told_and_goes_from_counts_and_marks() {
    let member = Member::new();
    let catalog = &member.catalog;
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    member.decided(|catalog| build(catalog, "db.c", &index).map(drop)).unwrap();
    let parts = || catalog.collection(&ns("db.c")).unwrap().index("a_1").unwrap().multikey_parts();
    for _ in 0..3 {
        insert(catalog, "db.c", &doc! { "_id": 1, "a": [1, 2] }).unwrap();
        insert(catalog, "db.c", &doc! { "_id": 2, "a": 1, "filler": "x".repeat(100) }).unwrap();
        assert_eq!((member.count(), parts()), (3, 1));
        member.lose_tail();
        assert_eq!((member.count(), parts(), member.shown()), (1, 0, 1));
        let Err(NotSettled::Overwritten(error)) = catalog.settle_until(None) else { panic!() };
        assert_eq!(error.code(), Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
        catalog.settle().unwrap();
        member.check();
    }
    // The numbers are given again; the mark is written again.
    insert(catalog, "db.c", &doc! { "_id": 1, "a": [1, 2] }).unwrap();
    member.decide();
    catalog.settle().unwrap();
    assert_eq!((member.count(), parts()), (2, 1));
    member.check();
}

#[test]
fn an_overwritten_statement_is_told_though_a_later_one_is_visible() {
    let member = Member::new();
    insert(&member.catalog, "db.c", &id(1)).unwrap();
    member.lose_tail();
    insert(&member.catalog, "db.c", &id(2)).unwrap();
    insert(&member.catalog, "db.c", &id(3)).unwrap();
    member.decide();
    let error = member.catalog.settle().unwrap_err();
    assert_eq!(error.code(), Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    assert_eq!(member.shown(), 3);
}

#[test]
fn who_loses_the_lead_without_losing_the_tail_has_written() {
    let member = Member::new();
    let catalog = &member.catalog;
    insert(catalog, "db.c", &id(1)).unwrap();
    let mut open = catalog.begin(TxnKind::Statement);
    let collection = open.open_for_write(&ns("db.c")).unwrap().unwrap();
    open.insert_document(&collection, &raw(&id(2))).unwrap();
    member.engine.forbid_writes();
    assert_eq!(open.commit().unwrap_err().code(), Code::NOT_WRITABLE_PRIMARY);
    // What that one has read by then may be anything, whatever comes after it.
    assert!(!delete(catalog, 7).unwrap());
    assert!(matches!(catalog.settle_until(None), Err(NotSettled::Overwritten(_))));
    member.decide();
    drop(Follower::again(catalog).unwrap());
    member.engine.allow_writes();
    assert_eq!((member.count(), member.shown()), (2, 2));
    insert(catalog, "db.c", &id(2)).unwrap();
    member.check();
}

#[test]
fn errors_wait_for_what_they_tell_of() {
    let member = Member::new();
    let unique = doc! { "key": { "a": 1 }, "name": "u", "unique": true };
    member.decided(|catalog| build(catalog, "db.c", &unique).map(drop)).unwrap();
    let first = |n: i32| insert(&member.catalog, "db.c", &doc! { "_id": n, "a": n }).unwrap();
    // Another client meets the key under the lock, though it began before.
    let second = |n: i32, meanwhile: &dyn Fn()| {
        let mut txn = member.catalog.begin(TxnKind::Statement);
        meanwhile();
        forget_statements();
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        let document = doc! { "_id": n + 100, "a": n };
        let error = txn.insert_document(&collection, &raw(&document)).unwrap_err();
        assert_eq!(error.code(), Code::DUPLICATE_KEY);
    };
    second(1, &|| first(1));
    assert!(member.timed_out(), "it is told of what nobody sees");
    member.decide();
    member.catalog.settle().unwrap();
    second(2, &|| first(2));
    member.lose_tail();
    let error = member.catalog.settle().unwrap_err();
    assert_eq!(error.code(), Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    // The key is free.
    first(2);
    member.check();
}

#[test]
fn statements_that_find_nothing_wait_for_what_was_deleted() {
    let member = Member::new();
    let catalog = &member.catalog;
    assert!(delete(catalog, 0).unwrap());
    forget_statements();
    assert!(!member.timed_out(), "what is forgotten is not waited for");
    assert!(!delete(catalog, 0).unwrap());
    assert!(member.timed_out());
    member.decide();
    catalog.settle().unwrap();
    assert!(!delete(catalog, 0).unwrap());
    assert!(!member.timed_out(), "all that it has read is visible");
}

#[test]
fn changes_of_metadata_find_all_that_statements_have_written() {
    let member = Member::new();
    let catalog = &member.catalog;
    for n in 1..20 {
        insert(catalog, "db.c", &doc! { "_id": n, "a": [n, n + 1] }).unwrap();
    }
    assert_eq!(member.shown(), 1);
    member.decided(|catalog| {
        check_valid(catalog, "db.c");
        let unique = doc! { "key": { "a": 1 }, "name": "u", "unique": true };
        assert_eq!(build(catalog, "db.c", &unique).unwrap_err().code(), Code::DUPLICATE_KEY);
        build(catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    });
    member.check();
    for n in 20..30 {
        insert(catalog, "db.c", &doc! { "_id": n, "a": n }).unwrap();
    }
    member.decided(|catalog| catalog.convert_to_capped(&ns("db.c"), 1 << 20, &never)).unwrap();
    assert_eq!((member.count(), member.shown()), (30, 30));
    insert(catalog, "db.c", &id(30)).unwrap();
    member.decided(|catalog| catalog.empty_capped(&ns("db.c"))).unwrap();
    assert_eq!((member.count(), member.shown()), (0, 0));
    insert(catalog, "db.c", &id(31)).unwrap();
    let to = ns("db.d");
    member.decided(|catalog| {
        catalog.clone_as_capped(&ns("db.c"), &to, 1 << 20, &never).unwrap();
        catalog.settle().unwrap();
        assert_eq!(catalog.system_documents(&to).unwrap().len(), 1);
        catalog.rename_collection(&to, &ns("db.e"), false, &never).unwrap();
        catalog.drop_collection(&ns("db.e"), &never).unwrap();
    });
    member.check();
}

#[test]
fn a_connections_transaction_indexes_what_statements_have_written() {
    for isolation in [Isolation::Mvcc, Isolation::ReadCommitted, Isolation::Serializable] {
        let member = Member::new();
        for n in 1..5 {
            insert(&member.catalog, "db.c", &doc! { "_id": n, "a": n }).unwrap();
        }
        let built = member.decided(|catalog| {
            let mut txn = catalog.begin_bound(isolation, Duration::from_secs(4)).unwrap();
            txn.begin_statement(Duration::from_secs(4));
            let spec = index(&doc! { "key": { "a": 1 }, "name": "a_1" });
            txn.create_indexes(&ns("db.c"), &[spec], &never)?;
            txn.commit()
        });
        // One on a fixed state may have begun before they were visible.
        match built {
            Err(error) if isolation == Isolation::Mvcc => {
                assert_eq!(error.code(), Code::WRITE_CONFLICT);
            }
            other => drop(other.unwrap()),
        }
        member.check();
    }
}

#[test]
fn transactions_of_several_statements_go_ahead_of_readers_with_their_commit() {
    let member = Member::new();
    let catalog = &member.catalog;
    let begin = || {
        let mut txn = catalog.begin_clients(None, Duration::from_millis(5));
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        (txn, collection)
    };
    let (mut txn, collection) = begin();
    txn.insert_document(&collection, &raw(&id(1))).unwrap();
    late(|| txn.commit()).unwrap();
    assert!(member.timed_out(), "its answer waits for it");
    insert(catalog, "db.c", &id(2)).unwrap();
    let (mut txn, collection) = begin();
    let met = txn.insert_document(&collection, &raw(&id(2))).unwrap_err();
    assert_eq!(met.code(), Code::WRITE_CONFLICT);
    drop(txn);
    forget_statements();
    catalog.remember_complete();
    assert!(member.timed_out(), "who asks again waits for it as well");
    member.decide();
    catalog.settle().unwrap();
    let (mut txn, collection) = begin();
    txn.insert_document(&collection, &raw(&id(3))).unwrap();
    txn.commit().unwrap();
    member.lose_tail();
    let error = catalog.settle().unwrap_err();
    assert_eq!(error.code(), Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    assert_eq!((member.count(), member.shown()), (3, 3));
    member.check();
}

#[test]
fn what_a_thread_does_besides_its_task_is_waited_for_by_itself() {
    let member = Member::new();
    let catalog = &member.catalog;
    engine::outside_request(|| insert(catalog, "db.c", &id(1))).unwrap();
    assert!(!member.timed_out());
    insert(catalog, "db.c", &id(2)).unwrap();
    engine::outside_request(forget_statements);
    assert!(member.timed_out());
    member.decided(|catalog| {
        catalog.put_system_document(&ns("db.c"), &raw(&doc! { "_id": 2, "a": 1 })).unwrap();
        catalog.settle().unwrap();
        let shown = catalog.system_documents(&ns("db.c")).unwrap();
        assert_eq!(shown.last(), Some(&raw(&doc! { "_id": 2, "a": 1 })));
        // Of another member nothing is waited for.
        assert!(!Member::new().timed_out());
    });
    assert!(!member.timed_out());
    let other = Member::new();
    insert(catalog, "db.c", &id(3)).unwrap();
    assert!(!other.timed_out());
    insert(&other.catalog, "db.c", &id(3)).unwrap();
    member.decide();
    catalog.settle().unwrap();
    assert!(other.timed_out());
}

#[test]
fn who_waits_at_the_end_is_told_when_arrivals_are_visible() {
    let member = Member::new();
    member.decided(|catalog| catalog.convert_to_capped(&ns("db.c"), 4096, &never)).unwrap();
    let tailed = member.catalog.collection(&ns("db.c")).unwrap();
    let seen = tailed.commits_seen();
    insert(&member.catalog, "db.c", &id(1)).unwrap();
    assert_eq!(tailed.commits_seen(), seen);
    forget_statements();
    member.decide();
    assert_eq!(tailed.commits_seen(), seen + 1, "also where nobody waits for the commit");
    insert(&member.catalog, "db.c", &id(2)).unwrap();
    member.lose_tail();
    insert(&member.catalog, "db.c", &id(3)).unwrap();
    member.decide();
    assert_eq!(tailed.commits_seen(), seen + 2, "of what was overwritten nobody is told");
}

#[test]
fn an_engine_that_shows_all_remembers_nothing() {
    let catalog = open(&Engine::temporary());
    insert(&catalog, "db.c", &id(1)).unwrap();
    late(|| catalog.settle()).unwrap();
    let outcome = catalog.settle_until(Some(Duration::ZERO)).unwrap();
    assert_eq!(outcome, SettleOutcome::Settled);
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
    txn.insert_document(&collection, &raw(&id(2))).unwrap();
    assert!(txn.commit_visible().unwrap() > Timestamp(0));
    assert_eq!(catalog.system_documents(&ns("db.c")).unwrap().len(), 2);
    assert_eq!(catalog.statement_snapshot().timestamp(), catalog.snapshot().timestamp());
}

#[test]
fn counts_are_right_after_clients_at_once_and_tails_that_go() {
    let member = Member::new();
    let catalog = &member.catalog;
    for round in 0..4 {
        std::thread::scope(|scope| {
            for client in 0..4 {
                scope.spawn(move || {
                    for n in 0..40 {
                        let id = 1 + 1000 * client + n;
                        // Those that were not overwritten are there already, and the lead may be lost.
                        let _may_fail = insert(catalog, "db.c", &self::id(id));
                        if n % 3 == 0 {
                            let _may_fail = delete(catalog, id);
                        }
                    }
                });
            }
            for _ in 0..10 {
                member.decide();
                std::thread::yield_now();
            }
            if round % 2 == 0 {
                member.lose_tail();
            }
        });
        member.decide();
        member.check();
    }
}
