//! Which collection or index a dictionary is, from the catalog's records in the root dictionary
//! (`docs/formats/catalog.md`).
//!
//! Always true: nothing is checked here and nothing is damage. A record that cannot be read names
//! nothing; of several records that name one dictionary the newest counts.

use std::collections::BTreeMap;

use bson::RawDocument;
use engine::DictionaryId;
use engine::format::{DictionaryFacts, root_puts};
use ftree::format::{PageValue, SegmentFacts, block_facts, large_facts, read_page};

use crate::datafile::DataFile;
use crate::directory::DataDirectory;
use crate::findings::Findings;
use crate::tree::Tree;

/// The first byte of the keys of collections.
const NAMESPACE_PREFIX: u8 = b'n';
/// The key that names the dictionary of the sessions' records.
const SESSIONS_KEY: &[u8] = b"s";

/// Dictionary → what it is.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<u64, (u64, String)>);

impl Names {
    /// Reads the root dictionary as the checkpoint has it, and the log behind it.
    pub(crate) fn read(directory: &DataDirectory, data: &DataFile) -> Self {
        let mut names = Self::default();
        let dictionaries = data.root.iter().flat_map(|root| &root.dictionaries);
        for root in dictionaries.filter(|dictionary| dictionary.id == DictionaryId::ROOT) {
            names.tree(data, root);
        }
        names.log(directory, data);
        names
    }

    /// What a dictionary is: `db.collection`, or `db.collection.$index`.
    pub(crate) fn of(&self, dictionary: u64) -> Option<&str> {
        match dictionary {
            id if id == DictionaryId::ROOT.0 => Some("(catalog)"),
            id => self.0.get(&id).map(|(_, name)| &name[..]),
        }
    }

    fn tree(&mut self, data: &DataFile, root: &DictionaryFacts) {
        // Damage is named by whoever looks for it.
        let tree = Tree::walk(data, root, &mut Findings::default());
        for facts in tree.segments() {
            for page in pages(data, tree.id, facts).unwrap_or_default() {
                for (key, timestamp, value) in page {
                    if let Some(value) = value_of(data, tree.id, value) {
                        self.record(&key, timestamp, &value);
                    }
                }
            }
        }
    }

    fn log(&mut self, directory: &DataDirectory, data: &DataFile) {
        let metrics = wal::Metrics::new(&telemetry::Registry::new());
        let options = wal::WalOptions::default();
        let opened = wal::Wal::open(&directory.os, &directory.log, options, metrics);
        let opened = opened.and_then(|replay| replay.with_keys(directory.keys.clone()));
        let Ok(mut replay) = opened else { return };
        if let Some(from) = data.superblock.filter(|_| data.has_checkpoint()).map(|s| s.lsn)
            && replay.seek(from).is_err()
        {
            return;
        }
        while let Ok(Some(record)) = replay.next_record() {
            for (timestamp, key, value) in root_puts(record.payload) {
                self.record(key, timestamp.0, value);
            }
        }
    }

    fn record(&mut self, key: &[u8], timestamp: u64, value: &[u8]) {
        if key == SESSIONS_KEY
            && let Ok(dictionary) = value.try_into().map(u64::from_le_bytes)
        {
            self.0.insert(dictionary, (timestamp, "(sessions)".to_owned()));
        }
        if key.first() != Some(&NAMESPACE_PREFIX) {
            return;
        }
        for (dictionary, name) in named_by(value).unwrap_or_default() {
            let known = self.0.entry(dictionary).or_default();
            if timestamp >= known.0 {
                *known = (timestamp, name);
            }
        }
    }
}

/// The dictionaries that a collection's record names.
fn named_by(value: &[u8]) -> Option<Vec<(u64, String)>> {
    let record = RawDocument::from_bytes(value).ok()?;
    let namespace = record.get_str("ns").ok()?;
    let number = |document: &RawDocument, field| {
        document.get_i64(field).ok().and_then(|number| u64::try_from(number).ok())
    };
    let mut names = Vec::new();
    // A view has none.
    names.extend(
        number(record, "primary").filter(|id| *id != 0).map(|id| (id, namespace.to_owned())),
    );
    names.extend(number(record, "order").map(|id| (id, format!("{namespace} (order)"))));
    for index in record.get_array("indexes").ok()?.into_iter().flatten() {
        let Some(index) = index.as_document() else { continue };
        let spec = index.get_document("spec").ok();
        let name = spec.and_then(|spec| spec.get_str("name").ok()).unwrap_or("?");
        names.extend(number(index, "dictionary").map(|id| (id, format!("{namespace}.${name}"))));
        let parts = index.get_array("parts").into_iter().flatten().flatten();
        for (part, partition) in parts.zip(partitions(record)) {
            let part = part.as_i64().and_then(|part| u64::try_from(part).ok());
            let name = |id| format!("{namespace}.${name} (partition {id})");
            names.extend(part.zip(number(partition, "id")).map(|(part, id)| (part, name(id))));
        }
    }
    for partition in partitions(record) {
        let name = |id| format!("{namespace} (partition {id})");
        let primary = number(partition, "primary").zip(number(partition, "id"));
        names.extend(primary.map(|(primary, id)| (primary, name(id))));
    }
    Some(names)
}

/// What a record says of partitions, in their order; nothing where it has none.
fn partitions(record: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let list = record.get_array("partitions").into_iter().flatten().flatten();
    list.filter_map(bson::RawBsonRef::as_document)
}

/// The value an entry has, wherever it lies.
fn value_of(data: &DataFile, tree: u64, value: PageValue) -> Option<Vec<u8>> {
    match value {
        PageValue::Put(value) => Some(value),
        // The catalog's own records are written whole.
        PageValue::Delete | PageValue::Update(_) => None,
        PageValue::Large(reference) => {
            let at = large_facts(&reference).ok()?;
            data.page(tree, at.segment, data.table.get(&at.segment)?, at.block.page).ok()
        }
    }
}

type Page = Vec<ftree::format::PageEntry>;

/// The pages of a run or leaf that can be read.
fn pages(data: &DataFile, tree: u64, facts: &SegmentFacts) -> Option<Vec<Page>> {
    let entry = data.table.get(&facts.segment)?;
    let dictionary = data.dictionary(tree, facts).ok()?;
    let dictionary = dictionary.as_ref();
    let read = |page| data.compressed_page(tree, facts.segment, entry, page, dictionary).ok();
    let index = read_page(&read(facts.index.page)?).ok()?;
    let pages = index.into_iter().enumerate().filter_map(|(at, (_, _, value))| {
        let PageValue::Put(value) = value else { return None };
        let block = block_facts(&value, u32::try_from(at).ok()?).ok()?;
        read_page(&read(block.page)?).ok()
    });
    Some(pages.collect())
}
