//! `fern inspect`: what is in a data directory, with sizes and ratios. Reads superblocks, table,
//! root, nodes and log, and of runs and leaves only the catalog's, for the names.

use anyhow::{Result, bail};
use blockfile::UNIT;
use blockfile::format::Superblock;
use engine::Compression;
use engine::format::DictionaryFacts;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use crate::check::CLOSED;
use crate::datafile::{DICTIONARY_KIND, DataFile};
use crate::directory::DataDirectory;
use crate::findings::{Damage, Findings};
use crate::log::Log;
use crate::names::Names;
use crate::segment::{LEAF_KIND, LIGHT_LEAF_KIND, RUN_KIND, VALUE_KIND};
use crate::table::{ratio, ratio_text, size, table};
use crate::tree::{NODE_KIND, Tree};

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Superblock, trees and log.
    Overview,
    /// Superblocks and checkpoint.
    Superblock,
    /// Every segment.
    Segments,
    /// A line for each tree.
    Trees,
    /// One tree.
    Tree(u64),
    /// The log.
    Log,
}

/// What is to be shown, as text and as JSON.
#[derive(Debug, Default)]
pub struct View {
    text: String,
    json: Map<String, Value>,
    /// Damage come across on the way.
    pub findings: Findings,
}

impl View {
    fn add(&mut self, name: &str, title: &str, text: &str, value: Value) {
        self.text.extend([title, "\n", text, "\n"]);
        self.json.insert(name.to_owned(), value);
    }

    /// For people.
    pub fn text(&self) -> String {
        self.text.clone() + &self.findings.text()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let mut all = self.json.clone();
        let damages = self.findings.damages.iter().map(Damage::json);
        all.insert("damages".to_owned(), damages.collect());
        all.insert("notes".to_owned(), json!(self.findings.notes));
        Value::Object(all)
    }
}

/// Looks at a data directory. An error is only a section that is not there; damage is in the view.
pub fn inspect(directory: &DataDirectory, section: Section) -> Result<View> {
    let mut view = View::default();
    directory.check_version(&mut view.findings);
    let data = DataFile::read(directory, &mut view.findings);
    if data.is_closed() {
        view.findings.note(CLOSED);
    }
    let overview = section == Section::Overview;
    if overview || section == Section::Superblock {
        superblock(&data, &mut view);
    }
    let dictionaries = || data.root.iter().flat_map(|root| &root.dictionaries);
    match section {
        Section::Superblock | Section::Log => {}
        Section::Tree(id) => match dictionaries().find(|dictionary| dictionary.id.0 == id) {
            Some(dictionary) => {
                let names = Names::read(directory, &data);
                one_tree(&data, dictionary, &names, &mut view);
            }
            None if data.root.is_some() => bail!("the checkpoint has no tree {id}"),
            None => {}
        },
        Section::Overview | Section::Trees | Section::Segments => {
            let walk = |dictionary| Tree::walk(&data, dictionary, &mut view.findings);
            let walked: Vec<Tree> = dictionaries().map(walk).collect();
            if section == Section::Segments {
                segments(&data, &walked, &mut view);
            } else {
                let names = Names::read(directory, &data);
                trees(dictionaries().zip(&walked), &names, &mut view);
            }
        }
    }
    if overview || section == Section::Log {
        let from = data.superblock.filter(|_| data.has_checkpoint()).map(|s| s.lsn);
        let log = Log::read(directory, from, data.root.as_ref(), &mut view.findings);
        show_log(&log, &mut view);
    }
    Ok(view)
}

fn slot_json(slot: &Superblock) -> Value {
    json!({
        "generation": slot.generation,
        "fileId": format!("{:032x}", slot.file_id),
        "logPosition": slot.lsn,
        "writtenMs": slot.written_ms,
        "nextSegment": slot.next_segment,
        "table": { "offset": slot.table.unit.saturating_mul(UNIT), "bytes": slot.table.bytes },
        "encrypted": slot.encrypted,
        "root": { "offset": slot.root.unit.saturating_mul(UNIT), "bytes": slot.root.bytes },
    })
}

fn superblock(data: &DataFile, view: &mut View) {
    let live = data
        .table
        .values()
        .fold(0_u64, |sum, entry| sum.saturating_add(entry.extent().units.saturating_mul(UNIT)));
    let blobs = data.blobs.iter().fold(0, |sum: u64, e| sum.saturating_add(e.units * UNIT));
    let free = data.bytes.saturating_sub(live).saturating_sub(blobs).saturating_sub(2 * UNIT);
    let mut rows = Vec::new();
    for (at, slot) in data.slots.iter().enumerate() {
        rows.push(match slot {
            None => vec![at.to_string(), "not valid".to_owned()],
            Some(slot) => vec![
                at.to_string(),
                slot.generation.to_string(),
                slot.lsn.to_string(),
                slot.written_ms.to_string(),
                slot.next_segment.to_string(),
                size(slot.table.bytes),
                size(slot.root.bytes),
            ],
        });
    }
    let head = ["slot", "generation", "log from", "written ms", "next segment", "table", "root"];
    let mut text = table(&head, &rows);
    text.extend([format!(
        "  file {}, segments {} in {}, free {}\n",
        size(data.bytes),
        data.table.len(),
        size(live),
        size(free)
    )]);
    let mut value = json!({
        "slots": data.slots.iter().map(|s| s.as_ref().map(slot_json)).collect::<Vec<_>>(),
        "fileBytes": data.bytes,
        "segments": data.table.len(),
        "liveBytes": live,
        "freeBytes": free,
    });
    if let Some(root) = &data.root {
        text.extend([format!(
            "  checkpoint at commit {}, {} trees, log synced to {}, next dictionary {}\n",
            root.timestamp.0,
            root.dictionaries.len(),
            root.log_end,
            root.next_dictionary
        )]);
        value["checkpoint"] = json!({
            "timestamp": root.timestamp.0,
            "logEnd": root.log_end,
            "dictionaries": root.dictionaries.len(),
            "nextDictionary": root.next_dictionary,
            "nextTransaction": root.next_txn,
        });
    }
    view.add("superblock", "Superblock", &text, value);
}

fn kind_name(kind: u8) -> String {
    match kind {
        RUN_KIND => "run".to_owned(),
        LEAF_KIND => "leaf".to_owned(),
        LIGHT_LEAF_KIND => "lightly compressed leaf".to_owned(),
        NODE_KIND => "node".to_owned(),
        VALUE_KIND => "large value".to_owned(),
        DICTIONARY_KIND => "compression dictionary".to_owned(),
        other => format!("kind {other}"),
    }
}

fn segments(data: &DataFile, trees: &[Tree], view: &mut View) {
    let mut owners = BTreeMap::new();
    for tree in trees {
        for id in tree.segment_ids() {
            owners.insert(id, (tree.id, None));
        }
        for facts in tree.segments() {
            owners.insert(facts.segment, (tree.id, Some(facts)));
        }
    }
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for (id, entry) in &data.table {
        let owner = owners.get(id);
        let facts = owner.and_then(|(_, facts)| *facts);
        let dash = || "-".to_owned();
        rows.push(vec![
            id.to_string(),
            kind_name(entry.kind),
            owner.map_or_else(dash, |(tree, _)| tree.to_string()),
            entry.unit.saturating_mul(UNIT).to_string(),
            size(entry.bytes),
            facts.map_or_else(dash, |facts| facts.entries.to_string()),
            facts.map_or_else(dash, |facts| ratio_text(facts.raw_bytes, entry.bytes)),
        ]);
        values.push(json!({
            "segment": id,
            "kind": kind_name(entry.kind),
            "tree": owner.map(|(tree, _)| tree),
            "offset": entry.unit.saturating_mul(UNIT),
            "storedBytes": entry.bytes,
            "rawBytes": facts.map(|facts| facts.raw_bytes),
            "entries": facts.map(|facts| facts.entries),
            "ratio": facts.and_then(|facts| ratio(facts.raw_bytes, entry.bytes)),
        }));
    }
    let head = ["segment", "kind", "tree", "offset", "stored", "entries", "ratio"];
    view.add("segments", "Segments", &table(&head, &rows), Value::Array(values));
}

fn compression_name(compression: Compression) -> String {
    match compression {
        Compression::None => "none".to_owned(),
        Compression::Lz4 => "lz4".to_owned(),
        Compression::Zlib(level) => format!("zlib {level}"),
        Compression::ZstdDefault => "zstd".to_owned(),
        Compression::Zstd(level) => format!("zstd {level}"),
    }
}

fn tree_json(dictionary: &DictionaryFacts, tree: &Tree, names: &Names) -> Value {
    let (raw, stored) = (tree.sum(|f| f.raw_bytes), tree.sum(|f| f.stored_bytes));
    json!({
        "tree": tree.id,
        "name": names.of(tree.id),
        "partial": tree.partial,
        "created": if dictionary.is_staged() { json!("staged") } else { json!(dictionary.created.0) },
        "flushed": dictionary.flushed.0,
        "options": {
            "compression": compression_name(dictionary.options.compression),
            "pageSize": dictionary.options.page_size,
            "readPageSize": dictionary.options.read_page_size,
            "fanout": dictionary.options.fanout,
            "leafFilter": dictionary.options.leaf_filter,
        },
        "height": tree.height,
        "nodes": tree.nodes.len(),
        "nodeBytes": tree.nodes.iter().fold(0, |sum: u64, n| sum.saturating_add(n.stored_bytes)),
        "runs": tree.runs.len(),
        "leaves": tree.leaves.len(),
        "entries": tree.sum(|f| f.entries),
        "deletes": tree.sum(|f| f.deletes),
        "keyBytes": tree.sum(|f| f.key_bytes),
        "valueBytes": tree.sum(|f| f.value_bytes),
        "rawBytes": raw,
        "storedBytes": stored,
        "ratio": ratio(raw, stored),
        "bufferedBytes": tree.buffered,
    })
}

const TREE_HEAD: [&str; 12] = [
    "tree",
    "name",
    "compression",
    "height",
    "nodes",
    "runs",
    "leaves",
    "entries",
    "raw",
    "stored",
    "ratio",
    "buffered",
];

fn tree_row(dictionary: &DictionaryFacts, tree: &Tree, names: &Names) -> Vec<String> {
    let (raw, stored) = (tree.sum(|f| f.raw_bytes), tree.sum(|f| f.stored_bytes));
    vec![
        format!("{}{}", tree.id, if tree.partial { " (part)" } else { "" }),
        names.of(tree.id).unwrap_or("-").to_owned(),
        compression_name(dictionary.options.compression),
        tree.height.to_string(),
        tree.nodes.len().to_string(),
        tree.runs.len().to_string(),
        tree.leaves.len().to_string(),
        tree.sum(|f| f.entries).to_string(),
        size(raw),
        size(stored),
        ratio_text(raw, stored),
        size(tree.buffered),
    ]
}

fn trees<'a>(
    all: impl Iterator<Item = (&'a DictionaryFacts, &'a Tree)>,
    names: &Names,
    view: &mut View,
) {
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for (dictionary, tree) in all {
        rows.push(tree_row(dictionary, tree, names));
        values.push(tree_json(dictionary, tree, names));
    }
    view.add("trees", "Trees", &table(&TREE_HEAD, &rows), Value::Array(values));
}

/// The start of a key, printable.
fn key_text(key: Option<&Vec<u8>>) -> String {
    let Some(key) = key else { return "-".to_owned() };
    let hex: String =
        key.iter().take(12).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    if key.len() > 12 { hex + "…" } else { hex }
}

fn one_tree(data: &DataFile, dictionary: &DictionaryFacts, names: &Names, view: &mut View) {
    let tree = Tree::walk(data, dictionary, &mut view.findings);
    let mut value = tree_json(dictionary, &tree, names);
    let mut text = table(&TREE_HEAD, &[tree_row(dictionary, &tree, names)]);
    let nodes = tree.nodes.iter().map(|node| {
        vec![
            node.segment.map_or_else(|| "root".to_owned(), |segment| segment.to_string()),
            node.height.to_string(),
            node.children.to_string(),
            node.runs.to_string(),
            size(node.buffered),
            size(node.raw_bytes),
            size(node.stored_bytes),
            key_text(node.lower.as_ref()),
        ]
    });
    let head = ["node", "height", "children", "runs", "buffered", "raw", "stored", "above key"];
    text.extend(["\n", &table(&head, &nodes.collect::<Vec<_>>())]);
    value["nodeList"] = tree
        .nodes
        .iter()
        .map(|node| {
            json!({
                "segment": node.segment, "height": node.height, "children": node.children,
                "runs": node.runs, "bufferedBytes": node.buffered,
                "rawBytes": node.raw_bytes, "storedBytes": node.stored_bytes,
            })
        })
        .collect();
    for (name, list, facts) in [
        ("run", "runList", tree.runs.values().collect::<Vec<_>>()),
        ("leaf", "leafList", tree.leaves.values().map(|(leaf, _)| leaf).collect()),
    ] {
        let rows = facts.iter().map(|facts| {
            vec![
                facts.segment.to_string(),
                facts.pages.to_string(),
                facts.entries.to_string(),
                facts.deletes.to_string(),
                size(facts.raw_bytes),
                size(facts.stored_bytes),
                ratio_text(facts.raw_bytes, facts.stored_bytes),
                format!("{}..{}", facts.min_ts, facts.max_ts),
                key_text(Some(&facts.min_key)),
            ]
        });
        let head =
            [name, "pages", "entries", "deletes", "raw", "stored", "ratio", "commits", "from key"];
        text.extend(["\n", &table(&head, &rows.collect::<Vec<_>>())]);
        value[list] = facts
            .iter()
            .map(|facts| {
                json!({
                    "segment": facts.segment, "pages": facts.pages, "entries": facts.entries,
                    "deletes": facts.deletes, "rawBytes": facts.raw_bytes,
                    "storedBytes": facts.stored_bytes,
                    "ratio": ratio(facts.raw_bytes, facts.stored_bytes),
                    "minCommit": facts.min_ts, "maxCommit": facts.max_ts,
                })
            })
            .collect();
    }
    view.add("tree", &format!("Tree {}", tree.id), &text, value);
}

fn show_log(log: &Log, view: &mut View) {
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for file in &log.files {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let header = file.header.as_ref();
        let used = match header {
            Some(header) if header.first_lsn <= log.end && header.end_lsn() > log.from => "in use",
            Some(_) => "not needed",
            None => "spare",
        };
        let dash = || "-".to_owned();
        rows.push(vec![
            name.clone(),
            size(file.bytes),
            header.map_or_else(dash, |header| header.first_lsn.to_string()),
            header.map_or_else(dash, |header| header.end_lsn().to_string()),
            header.map_or_else(dash, |header| format!("{:016x}", header.salt)),
            used.to_owned(),
        ]);
        values.push(json!({
            "file": name, "bytes": file.bytes, "use": used,
            "firstPosition": header.map(|header| header.first_lsn),
            "endPosition": header.map(wal::format::SegmentHeader::end_lsn),
        }));
    }
    let mut text = table(&["file", "size", "from", "to", "epoch", ""], &rows);
    let commits = match (log.first_commit, log.last_commit) {
        (Some(first), Some(last)) => format!(" ({first}..{last})"),
        _ => String::new(),
    };
    text.extend([format!(
        "  behind the checkpoint {}..{}: {} records, {}; {} commits{commits}, {} chunks, {} \
         aborts, {} entries, {} cuts; {} puts, {} deletes, {} creates, {} drops, {} reshapes, {} ranges deleted\n",
        log.from,
        log.end,
        log.records,
        size(log.payload_bytes),
        log.commits,
        log.chunks,
        log.aborts,
        log.entries,
        log.cuts,
        log.puts,
        log.deletes,
        log.creates,
        log.drops,
        log.reshapes,
        log.tombstones
    )]);
    let value = json!({
        "files": values,
        "from": log.from, "end": log.end, "whole": log.whole,
        "records": log.records, "payloadBytes": log.payload_bytes,
        "commits": log.commits, "firstCommit": log.first_commit, "lastCommit": log.last_commit,
        "chunks": log.chunks, "aborts": log.aborts,
        "entries": log.entries, "cuts": log.cuts, "puts": log.puts, "deletes": log.deletes,
        "creates": log.creates, "drops": log.drops, "reshapes": log.reshapes,
        "tombstones": log.tombstones,
    });
    view.add("log", "Log", &text, value);
}
