//! Gathering stages with little memory: they spill, and the result is the same.

use super::memory::World;
use super::{run, sorted};
use crate::{ExecOptions, LookupHint};
use bson::{Document, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn documents(count: i32) -> Vec<Document> {
    (0..count)
        .map(|i| doc! {"_id": i, "k": (i * 7919) % 101, "v": f64::from(i) / 3.0, "s": format!("text {}", i % 13)})
        .collect()
}

fn tiny(documents: &[Document], allow_disk_use: bool) -> Arc<World> {
    let options = ExecOptions { memory_limit_bytes: 4096, allow_disk_use };
    World::with_options(&[("c", documents)], options, LookupHint::Hash)
}

/// The stages give the same with 4 KB as with plenty, and did spill.
fn same_when_spilled(stages: &[Document], in_order: bool) {
    let documents = documents(2000);
    let roomy = run(&World::with(&[("c", &documents)]), stages).unwrap();
    let world = tiny(&documents, true);
    let spilled = run(&world, stages).unwrap();
    assert!(world.spills.load(Ordering::Relaxed) > 0, "did not spill: {stages:?}");
    if in_order {
        assert_eq!(spilled, roomy, "{stages:?}");
    } else {
        assert_eq!(sorted(spilled), sorted(roomy), "{stages:?}");
    }
    let refused = run(&tiny(&documents, false), stages).unwrap_err();
    assert_eq!(refused.code().0, 292);
}

#[test]
fn spilled_sort_equals_sort_in_memory() {
    same_when_spilled(&[doc! {"$sort": {"k": 1, "v": -1}}], true);
}

#[test]
fn spilled_sort_keeps_the_order_of_equal_keys() {
    same_when_spilled(&[doc! {"$sort": {"k": -1}}], true);
}

#[test]
fn spilled_top_k_equals_sort_and_limit() {
    same_when_spilled(&[doc! {"$sort": {"k": 1}}, doc! {"$skip": 10}, doc! {"$limit": 300}], true);
}

#[test]
fn spilled_group_equals_group_in_memory() {
    let group = doc! {"$group": {
        "_id": "$k",
        "n": {"$sum": 1},
        "total": {"$sum": "$v"},
        "mean": {"$avg": "$_id"},
        "low": {"$min": "$v"},
        "high": {"$max": "$_id"},
        "first": {"$first": "$_id"},
        "last": {"$last": "$_id"},
        "all": {"$push": "$_id"},
        "set": {"$addToSet": "$s"},
        "top": {"$topN": {"n": 3, "sortBy": {"v": -1}, "output": "$_id"}},
        "few": {"$firstN": {"n": 2, "input": "$_id"}},
    }};
    same_when_spilled(&[group], false);
}

#[test]
fn large_groups_are_written_from_where_they_are_and_merged_again() {
    let documents: Vec<Document> = (0..240)
        .map(|i| doc! {"_id": i, "k": i % 2, "s": format!("{i} {}", "x".repeat(10_000))})
        .collect();
    let stages = [
        doc! {"$group": {"_id": "$k", "all": {"$push": "$s"}, "ids": {"$push": "$_id"}}},
        doc! {"$sort": {"_id": 1}},
    ];
    let roomy = run(&World::with(&[("c", &documents)]), &stages).unwrap();
    // A run holds two groups of 400 kB each, and more than one run holds both.
    let options = ExecOptions { memory_limit_bytes: 800_000, allow_disk_use: true };
    let world = World::with_options(&[("c", &documents)], options, LookupHint::Hash);
    assert_eq!(run(&world, &stages).unwrap(), roomy);
    assert!(world.spills.load(Ordering::Relaxed) > 0);
}

#[test]
fn spilled_facet_input_is_read_by_every_pipeline() {
    let facet = doc! {"$facet": {
        "count": [{"$count": "n"}],
        "some": [{"$match": {"k": 5}}, {"$project": {"v": 1}}],
    }};
    same_when_spilled(&[facet], true);
}

#[test]
fn scores_that_are_spilled_are_those_in_memory() {
    let score = doc! {"$score": {"score": "$v", "normalization": "minMaxScaler", "weight": 0.5}};
    let shown = doc! {"$project": {"s": {"$meta": "score"}}};
    same_when_spilled(&[score, shown], true);
}

#[test]
fn many_runs_are_merged_in_rounds() {
    let documents = documents(6000);
    let options = ExecOptions { memory_limit_bytes: 1024, allow_disk_use: true };
    let world = World::with_options(&[("c", &documents)], options, LookupHint::Hash);
    let stages = [doc! {"$sort": {"v": -1}}, doc! {"$project": {"_id": 1}}];
    let found = run(&world, &stages).unwrap();
    assert!(found.iter().map(|d| d.get_i32("_id").unwrap()).eq((0..6000).rev()));
}

#[test]
fn file_spill_reads_back_what_was_appended() {
    use crate::spill::{FileSpill, SpillStorage};
    let sim = os::sim::SimOs::new(1);
    let vfs = sim.os().vfs;
    let directory = std::path::Path::new("/tmp-spill");
    vfs.create_dir_all(directory).unwrap();
    let path = directory.join("1");
    let mut spill = FileSpill::create(Arc::clone(&vfs), path.clone()).unwrap();
    assert_eq!(spill.append(b"hello").unwrap(), 0);
    assert_eq!(spill.append(b" world").unwrap(), 5);
    let mut buffer = [0; 20];
    assert_eq!(spill.read_at(3, &mut buffer).unwrap(), 8);
    assert_eq!(&buffer[..8], b"lo world");
    drop(spill);
    assert!(!vfs.exists(&path).unwrap(), "a dropped spill leaves no file");
}
