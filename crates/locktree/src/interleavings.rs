//! Lock requests, releases and kills at once, in every order shuttle finds. A wake-up that is lost
//! leaves everybody asleep, which shuttle reports.
//!
//! Run by `cargo xtask test --only interleavings`.

use crate::{Error, LockTable, Mode, Options, Range};
use os::Os;
use os::sync::Mutex;
use shuttle::thread;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const SCHEDULES: usize = 500;
const LONG: Duration = Duration::from_hours(1);

fn table() -> Arc<LockTable> {
    LockTable::new(Os::real().clock, Options { shards: 2, ..Options::default() })
}

/// Who is inside each key, by the word of those inside.
type Inside = Arc<Mutex<BTreeMap<Vec<u8>, u64>>>;

fn enter(inside: &Inside, key: &[u8], who: u64) {
    let before = inside.lock().insert(key.to_vec(), who);
    assert_eq!(before, None, "{key:?} is held by one alone");
}

fn leave(inside: &Inside, key: &[u8]) {
    inside.lock().remove(key);
}

/// Locks two keys in the order given; starts again where it is the victim of a deadlock.
fn take_both(table: &Arc<LockTable>, inside: &Inside, who: u64, keys: [&[u8]; 2]) {
    for round in 0.. {
        let mut owner = table.owner(who * 100 + round);
        let took = keys.iter().try_for_each(|key| {
            table.acquire(&mut owner, 1, key, Mode::Exclusive, LONG).map(|_| ())
        });
        match took {
            Ok(()) => {
                keys.iter().for_each(|key| enter(inside, key, who));
                thread::yield_now();
                keys.iter().for_each(|key| leave(inside, key));
                owner.release(None);
                return;
            }
            Err(Error::Deadlock { .. }) => owner.release(None),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn exclusive_locks_exclude_and_every_waiter_is_woken() {
    shuttle::check_random(
        || {
            let (table, inside) = (table(), Inside::default());
            let orders: [[&[u8]; 2]; 3] = [[b"a", b"b"], [b"b", b"a"], [b"a", b"c"]];
            let threads: Vec<_> = orders
                .into_iter()
                .zip(1..)
                .map(|(keys, who)| {
                    let (table, inside) = (Arc::clone(&table), Arc::clone(&inside));
                    thread::spawn(move || take_both(&table, &inside, who, keys))
                })
                .collect();
            for thread in threads {
                thread.join().expect("no thread panics");
            }
            assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
        },
        SCHEDULES,
    );
}

#[test]
fn range_and_its_keys_exclude_each_other_and_wake_each_other() {
    shuttle::check_random(
        || {
            let (table, inside) = (table(), Inside::default());
            let mut threads = Vec::new();
            for who in 1..=2_u64 {
                let (table, inside) = (Arc::clone(&table), Arc::clone(&inside));
                threads.push(thread::spawn(move || {
                    let mut owner = table.owner(who);
                    let key = [b'k', who as u8];
                    table.acquire(&mut owner, 1, &key, Mode::Exclusive, LONG).expect("in turn");
                    enter(&inside, &key, who);
                    thread::yield_now();
                    leave(&inside, &key);
                    owner.release(None);
                }));
            }
            let (all, inside) = (Arc::clone(&table), Arc::clone(&inside));
            threads.push(thread::spawn(move || {
                let mut owner = all.owner(9);
                let range = Range::all();
                all.acquire_range(&mut owner, 1, range, Mode::Exclusive, LONG).expect("in turn");
                assert!(inside.lock().is_empty(), "nobody is inside the range");
                thread::yield_now();
                assert!(inside.lock().is_empty(), "nobody came inside the range");
                owner.release(None);
            }));
            for thread in threads {
                thread.join().expect("no thread panics");
            }
            assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
        },
        SCHEDULES,
    );
}

/// The order of a dictionary's keys is made while others lock and open keys there, forgotten by the
/// maintenance thread, and made again.
#[test]
fn ranges_see_every_key_whenever_their_order_is_made_and_forgotten() {
    shuttle::check_random(
        || {
            let (table, inside) = (table(), Inside::default());
            let mut threads = Vec::new();
            for who in 1..=2_u64 {
                let (table, inside) = (Arc::clone(&table), Arc::clone(&inside));
                threads.push(thread::spawn(move || {
                    for round in 0..2_u8 {
                        let mut owner = table.owner(who * 10 + u64::from(round));
                        let key = [b'k', who as u8, round];
                        table.acquire(&mut owner, 1, &key, Mode::Exclusive, LONG).expect("in turn");
                        enter(&inside, &key, who);
                        thread::yield_now();
                        leave(&inside, &key);
                        owner.release(None);
                    }
                }));
            }
            let (ranged, others) = (Arc::clone(&table), Arc::clone(&inside));
            threads.push(thread::spawn(move || {
                for round in 0..2_u64 {
                    let mut owner = ranged.owner(90 + round);
                    let keys = Range {
                        lower: Bound::Included(vec![b'k']),
                        upper: Bound::Excluded(vec![b'l']),
                    };
                    let got = ranged.acquire_range(&mut owner, 1, keys, Mode::Exclusive, LONG);
                    got.expect("in turn");
                    assert!(others.lock().is_empty(), "nobody is inside the range");
                    thread::yield_now();
                    assert!(others.lock().is_empty(), "nobody came inside the range");
                    owner.release(None);
                    ranged.prune(u64::MAX);
                }
            }));
            for thread in threads {
                thread.join().expect("no thread panics");
            }
            assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
        },
        SCHEDULES,
    );
}

#[test]
fn upgrade_of_two_holders_refuses_one_and_grants_the_other() {
    shuttle::check_random(
        || {
            let table = table();
            let threads: Vec<_> = (1..=2_u64)
                .map(|who| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || {
                        let mut owner = table.owner(who);
                        let got = table.acquire(&mut owner, 1, b"k", Mode::Shared, LONG);
                        got.expect("shared locks wait for writers only");
                        let up = table.acquire(&mut owner, 1, b"k", Mode::Exclusive, LONG);
                        owner.release(None);
                        match up {
                            Ok(_) => true,
                            Err(Error::Deadlock { .. }) => false,
                            Err(error) => panic!("{error}"),
                        }
                    })
                })
                .collect();
            let granted: Vec<bool> =
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            assert!(granted.contains(&true), "one goes on");
            assert_eq!(table.bytes(), 0);
        },
        SCHEDULES,
    );
}

#[test]
fn kill_reaches_a_waiter_however_late_it_comes() {
    shuttle::check_random(
        || {
            let table = table();
            let mut holder = table.owner(1);
            table.acquire(&mut holder, 1, b"k", Mode::Exclusive, LONG).expect("it is free");
            let mut waiter = table.owner(2);
            let interrupt = waiter.interrupt();
            let waiting = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    table.acquire(&mut waiter, 1, b"k", Mode::Exclusive, LONG).map(|_| ())
                })
            };
            table.interrupt(&interrupt);
            assert_eq!(waiting.join().expect("no panic"), Err(Error::Interrupted));
            holder.release(None);
            assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
        },
        SCHEDULES,
    );
}

/// Owners that queue, and are called, beside one that holds the key and ends: nobody is forgotten, whichever comes first.
#[test]
fn queued_requests_are_called_whenever_they_are_granted() {
    shuttle::check_random(
        || {
            let (table, inside) = (table(), Inside::default());
            let threads: Vec<_> = (1..=3_u64)
                .map(|who| {
                    let (table, inside) = (Arc::clone(&table), Arc::clone(&inside));
                    thread::spawn(move || {
                        let mut owner = table.owner(who);
                        let called = Arc::new((Mutex::new(0_u32), os::sync::Condvar::new()));
                        let mut seen = 0;
                        while table
                            .acquire_or_queue(&mut owner, 1, b"k", Mode::Exclusive, LONG)
                            .expect("in turn")
                            .is_none()
                        {
                            let told = Arc::clone(&called);
                            table.call_when_settled(
                                &owner,
                                Arc::new(move || {
                                    *told.0.lock() += 1;
                                    told.1.notify_one();
                                }),
                            );
                            let mut calls = called.0.lock();
                            while *calls == seen {
                                called.1.wait(&mut calls);
                            }
                            seen = *calls;
                        }
                        enter(&inside, b"k", who);
                        thread::yield_now();
                        leave(&inside, b"k");
                        owner.release(None);
                    })
                })
                .collect();
            // One that gives its place up, whether it was granted or not.
            let mut other = table.owner(9);
            let asked = table.acquire_or_queue(&mut other, 1, b"k", Mode::Exclusive, LONG);
            asked.expect("nobody refuses it");
            thread::yield_now();
            drop(other);
            for thread in threads {
                thread.join().expect("no thread panics");
            }
            assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
        },
        SCHEDULES,
    );
}
