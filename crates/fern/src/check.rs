//! `fern check`: reads everything a start would need and says what is damaged.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::datafile::DataFile;
use crate::directory::DataDirectory;
use crate::findings::{Damage, Findings};
use crate::log::Log;
use crate::segment::{self, Amount, LEAF_KIND, LIGHT_LEAF_KIND, RUN_KIND};
use crate::tree::{Range, Tree};

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Trees.
    pub trees: u64,
    /// Nodes.
    pub nodes: u64,
    /// Runs and leaves.
    pub segments: u64,
    /// Pages with the right checksum.
    pub pages: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of the data file in them.
    pub bytes: u64,
    /// Records of the log.
    pub records: u64,
    /// Segments no tree names: dropped, or written and not yet used. The next start frees them. Without the key
    /// of an encrypted directory all of them: their trees are not known.
    pub unnamed: u64,
}

/// What is said first where there is no key.
pub(crate) const CLOSED: &str = "the data directory is encrypted, and no key was given: checksums are looked at, \
                                 and nothing of what they cover (--encryptionKeyFile FILE)";

/// What a check says.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    /// What is wrong.
    pub findings: Findings,
    /// How much was looked at.
    pub checked: Checked,
}

/// Checks a data directory. Reads every page and every record, changes nothing.
pub fn check(directory: &DataDirectory) -> Checkup {
    let mut checkup = Checkup::default();
    let Checkup { findings, checked } = &mut checkup;
    directory.check_version(findings);
    let data = DataFile::read(directory, findings);
    if data.superblock.is_some() && !data.has_checkpoint() {
        findings.note("there is no checkpoint yet: everything is in the log");
    }
    let from = data.superblock.filter(|_| data.has_checkpoint()).map(|s| s.lsn);
    let log = Log::read(directory, from, data.root.as_ref(), findings);
    checked.records = log.records;
    if data.is_closed() {
        checksums(&data, checked, findings);
        return checkup;
    }
    let newest = data.root.as_ref().map_or(0, |root| root.timestamp.0);
    // what a tree holds must have been committed; a damaged log cannot tell
    let newest = log.whole.then_some(newest.max(log.last_commit.unwrap_or(0)));
    let mut named = BTreeSet::new();
    let mut partial = data.root.is_none() && data.has_checkpoint();
    let dictionaries = data.root.iter().flat_map(|root| &root.dictionaries);
    for dictionary in dictionaries {
        let tree = Tree::walk(&data, dictionary, findings);
        let is_later = |newest| dictionary.created.0 > newest && !dictionary.is_staged();
        if newest.is_some_and(is_later) {
            let what = "it was created by a commit that is not there";
            findings.damage(Damage::of(&data.path, what).tree(tree.id));
        }
        partial |= tree.partial;
        named_once(&data, &tree, &mut named, findings);
        if data.table_known {
            segments(&data, &tree, newest, checked, findings);
        }
        checked.trees += 1;
        checked.nodes += tree.nodes.len() as u64;
    }
    unnamed(&data, &named, partial, checked, findings);
    checkup
}

/// What can be said of encrypted segments without a key.
fn checksums(data: &DataFile, checked: &mut Checked, findings: &mut Findings) {
    findings.note(CLOSED);
    for (id, entry) in &data.table {
        let (pages, bytes) = data.check_stored_pages(*id, entry, findings);
        checked.pages += pages;
        checked.bytes += bytes;
        checked.unnamed += 1;
    }
}

/// No segment belongs to two trees, or is two things in one.
fn named_once(data: &DataFile, tree: &Tree, named: &mut BTreeSet<u64>, findings: &mut Findings) {
    for id in tree.segment_ids() {
        if !named.insert(id) {
            let what = "it is named twice, by two trees or as two things";
            findings.damage(data.damage_in(tree.id, id, 0, what));
        }
    }
}

fn segments(
    data: &DataFile,
    tree: &Tree,
    newest: Option<u64>,
    checked: &mut Checked,
    findings: &mut Findings,
) {
    for node in tree.nodes.iter().filter(|node| node.segment.is_some()) {
        checked.pages += 1;
        checked.bytes += node.stored_bytes;
    }
    let all = Range::default();
    let (of_leaves, of_runs) = (&[LEAF_KIND, LIGHT_LEAF_KIND][..], &[RUN_KIND][..]);
    let leaves = tree.leaves.values().map(|(leaf, range)| (of_leaves, leaf, range));
    let runs = tree.runs.values().map(|run| (of_runs, run, &all));
    for (kinds, facts, range) in leaves.chain(runs) {
        let Amount { pages, entries, bytes } =
            segment::check(data, tree.id, kinds, facts, range, findings);
        checked.segments += 1;
        checked.pages += pages;
        checked.entries += entries;
        checked.bytes += bytes;
        if let Some(newest) = newest.filter(|newest| facts.max_ts > *newest) {
            let what = format!("it holds commit {}, and the newest is {newest}", facts.max_ts);
            findings.damage(data.damage_in(tree.id, facts.segment, 0, what));
        }
    }
}

/// Segments of the table that no node names: leftovers, unless a node above them is damaged.
fn unnamed(
    data: &DataFile,
    named: &BTreeSet<u64>,
    partial: bool,
    checked: &mut Checked,
    findings: &mut Findings,
) {
    let dictionaries = data.root.iter().flat_map(|root| &root.dictionaries);
    let trees: Vec<u64> = dictionaries.map(|dictionary| dictionary.id.0).collect();
    let mut unknown = 0_u64;
    for id in data.table.keys().filter(|id| !named.contains(id)) {
        checked.unnamed += 1;
        unknown += u64::from(!segment::check_unnamed(data, *id, &trees, findings));
    }
    if checked.unnamed > 0 && partial {
        findings.note(format!(
            "{} segments are not reached because of damage above; {unknown} of them could not be \
             checked",
            checked.unnamed
        ));
    } else if checked.unnamed > 0 {
        findings.note(format!(
            "{} segments are in no tree; the next start frees them",
            checked.unnamed
        ));
    }
}

impl Checkup {
    /// One line at the end.
    pub fn summary(&self) -> String {
        let Checked { trees, nodes, segments, pages, entries, bytes, records, .. } = self.checked;
        let verdict = match self.findings.damages.len() {
            0 => "clean".to_owned(),
            1 => "DAMAGED, 1 place".to_owned(),
            places => format!("DAMAGED, {places} places"),
        };
        format!(
            "{verdict}: {trees} trees, {nodes} nodes, {segments} runs and leaves, {pages} pages \
             ({}), {entries} entries, {records} log records",
            crate::table::size(bytes)
        )
    }

    /// The whole as text.
    pub fn text(&self) -> String {
        self.findings.text() + &self.summary() + "\n"
    }

    /// The whole for programs.
    pub fn json(&self) -> Value {
        let Checked { trees, nodes, segments, pages, entries, bytes, records, unnamed } =
            self.checked;
        json!({
            "clean": self.findings.is_clean(),
            "damages": self.findings.damages.iter().map(Damage::json).collect::<Vec<_>>(),
            "notes": self.findings.notes,
            "checked": {
                "trees": trees, "nodes": nodes, "segments": segments, "pages": pages,
                "entries": entries, "bytes": bytes, "logRecords": records,
                "unnamedSegments": unnamed,
            },
        })
    }
}
