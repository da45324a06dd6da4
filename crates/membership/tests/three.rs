//! Members with engines, catalogs and sockets: what one writes all have, and what was acknowledged stays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/set.rs"]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use support::{LONG, Set, create, ids, insert, ns};

#[test]
fn what_the_primary_writes_all_members_show() {
    let set = Set::of(3);
    let primary = set.primary();
    assert_eq!(primary, 0, "who founds the set leads it first");
    let node = set.nodes[primary].get();
    create(node, "db.a").unwrap();
    for id in 0..50 {
        insert(node, "db.a", id).unwrap();
    }
    node.catalog.rename_collection(&ns("db.a"), &ns("db.b"), false, &|| Ok(())).unwrap();
    create(node, "db.gone").unwrap();
    node.catalog.drop_collection(&ns("db.gone"), &|| Ok(())).unwrap();
    let has = |shown: &[String], start: &str| shown.iter().any(|line| line.starts_with(start));
    let shown = set.agree_on(|shown| has(shown, "db.b ") && !has(shown, "db.gone "));
    assert!(shown.iter().any(|line| line.contains(" 50 ")), "{shown:?}");
    assert!(!has(&shown, "db.a "), "{shown:?}");
    // A member that follows takes no writes.
    let other = set.nodes[(primary + 1) % 3].get();
    assert!(insert(other, "db.b", 1000).is_err());
    // All know who the members are.
    let voters = |view: &member::View| view.configuration.voters.len() == 3;
    assert!(set.nodes.iter().all(|node| node.get().membership.wait_for(LONG, voters)));
}

#[test]
fn what_was_acknowledged_survives_the_primary() {
    let mut set = Set::of(3);
    let mut primary = set.primary();
    create(set.nodes[primary].get(), "db.a").unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        // A client writes until its primary is gone.
        let stop = AtomicBool::new(false);
        let node = set.nodes[primary].get();
        let written = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut written = Vec::new();
                for n in 0.. {
                    let id = round * 1_000_000 + n;
                    match insert(node, "db.a", id) {
                        Ok(()) => written.push(id),
                        Err(_) => break,
                    }
                    if written.len() == 30 {
                        stop.store(true, Ordering::Release);
                    }
                }
                written
            });
            while !stop.load(Ordering::Acquire) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            node.stop();
            client.join().unwrap()
        });
        acknowledged.extend(written);
        set.nodes[primary].kill();
        let next = set.primary_but(Some(primary));
        let there = ids(set.nodes[next].get(), &ns("db.a"));
        assert!(acknowledged.iter().all(|id| there.contains(id)), "round {round}");
        set.nodes[primary].start();
        primary = next;
    }
    let shown = set.agree();
    assert!(acknowledged.len() >= 120 && shown.len() == 1, "{shown:?}");
    let there = ids(set.nodes[primary].get(), &ns("db.a"));
    assert!(acknowledged.iter().all(|id| there.contains(id)));
}

#[test]
fn a_member_whose_journal_fails_takes_no_writes_and_the_others_go_on() {
    let mut set = Set::of(3);
    let first = set.primary();
    create(set.nodes[first].get(), "db.a").unwrap();
    insert(set.nodes[first].get(), "db.a", 1).unwrap();
    set.nodes[first].get().catalog.engine().stop("its disk is broken");
    let second = set.primary_but(Some(first));
    assert!(insert(set.nodes[first].get(), "db.a", 2).is_err());
    let stopped = |view: &member::View| view.stopped.is_some() && !view.writable;
    assert!(set.nodes[first].get().membership.wait_for(LONG, stopped));
    insert(set.nodes[second].get(), "db.a", 3).unwrap();
    set.nodes[first].kill();
    set.nodes[first].start();
    assert!(set.agree()[0].contains("[1, 3]"));
}

#[test]
fn leadership_is_handed_over_and_all_start_again() {
    let mut set = Set::of(3);
    let first = set.primary();
    create(set.nodes[first].get(), "db.a").unwrap();
    insert(set.nodes[first].get(), "db.a", 1).unwrap();
    set.agree();
    let asked = set.nodes[first].get().membership.hand_over().unwrap();
    assert_eq!(asked.wait(LONG), Some(Ok(())));
    let second = set.primary_but(Some(first));
    insert(set.nodes[second].get(), "db.a", 2).unwrap();
    let before = set.agree();
    assert!(set.nodes[second].get().above.terms.lock().len() == 1, "it has taken over once");
    set.nodes.iter_mut().for_each(support::Node::kill);
    set.nodes.iter_mut().for_each(support::Node::start);
    let primary = set.primary();
    assert_eq!(set.agree(), before);
    insert(set.nodes[primary].get(), "db.a", 3).unwrap();
    assert!(set.agree()[0].contains("[1, 2, 3]"));
}

#[test]
fn a_member_that_was_away_gets_what_the_others_have_in_their_checkpoints() {
    let mut set = Set::of(3);
    let first = set.primary();
    create(set.nodes[first].get(), "db.a").unwrap();
    insert(set.nodes[first].get(), "db.a", 0).unwrap();
    set.agree();
    let away = (first + 1) % 3;
    set.nodes[away].kill();
    for round in 1..=2 {
        let primary = set.primary();
        for n in 0..40 {
            insert(set.nodes[primary].get(), "db.a", round * 100 + n).unwrap();
        }
        set.agree();
        for at in (0..3).filter(|at| *at != away) {
            let engine = set.nodes[at].get().catalog.engine().clone();
            engine.checkpoint().unwrap();
            let bounds = engine.entries();
            assert!(bounds.before.index > 40, "the checkpoint has what the member lacks");
            set.nodes[at].kill();
        }
        for at in (0..3).filter(|at| *at != away) {
            set.nodes[at].start();
            let engine = set.nodes[at].get().catalog.engine();
            assert_eq!(engine.entries().first_readable, 2, "as far as the log reaches");
        }
    }
    set.primary();
    set.nodes[away].start();
    let shown = set.agree();
    assert!(shown[0].contains(" 81 ") && shown[0].contains("[0, 100, "), "{shown:?}");
    assert!(shown[0].contains(", 239]"), "{shown:?}");
    let primary = set.primary();
    insert(set.nodes[primary].get(), "db.a", 1000).unwrap();
    assert!(set.agree()[0].contains(" 82 "));
}
