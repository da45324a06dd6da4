//! A text search at work: the entries of its terms, the documents, and what only documents tell.
//!
//! Without scores the terms' scans are united and fetched as other scans are. With scores
//! [`TextOrStage`] reads all of them first, because a document's score is the sum over its terms.
//! [`TextMatchStage`] stands above: phrases, negations, and cases or accents where they matter.
//!
//! Always true: a document comes once; with scores it carries its own in front of its fields.

use super::fetch::FetchStage;
use super::ixscan::IndexStage;
use super::stats::Report;
use super::union::UnionStage;
use super::{ExecContext, MEMORY_LIMIT_BYTES, PlanStage, Row, passes};
use crate::examined::{Tally, note_way};
use crate::plan::TextScan;
use bson::Document;
use bson::raw::RawDocument;
use bsonval::text_score;
use catalog::Collection;
use errors::{Code, Error, Result};
use limits::KeyMap;
use matcher::{Filter, TextNode};
use std::sync::Arc;

/// What a found document costs beside its key.
const FOUND_BYTES: usize = 96;

/// The stages of a search.
pub(super) fn build(
    collection: &Arc<Collection>,
    scan: &TextScan,
    residual: Option<Filter>,
) -> Result<Box<dyn PlanStage>> {
    note_way("IXSCAN", Some(&scan.index));
    let mut scans = Vec::with_capacity(scan.scans.len());
    for term in &scan.scans {
        scans.push(IndexStage::new(collection, term.clone(), None)?);
    }
    let input: Box<dyn PlanStage> = if scan.scores {
        Box::new(TextOrStage::new(collection, scan, scans, residual))
    } else {
        let united: Box<dyn PlanStage> = if scans.len() == 1 {
            Box::new(scans.remove(0))
        } else {
            let boxed = scans.into_iter().map(|scan| Box::new(scan) as Box<dyn PlanStage>);
            Box::new(UnionStage::new(boxed.collect()))
        };
        Box::new(FetchStage::new(collection, united, residual))
    };
    Ok(Box::new(TextMatchStage {
        input,
        scan: scan.clone(),
        rejected: 0,
        counters: Tally::default(),
    }))
}

/// The documents of all terms with their scores.
struct TextOrStage {
    collection: Arc<Collection>,
    scans: Vec<IndexStage>,
    /// Which part of an entry is its score.
    score_at: usize,
    filter: Option<Filter>,
    /// In the order in which they were met; filled by the first call.
    found: Option<std::vec::IntoIter<(Vec<u8>, f64)>>,
    row: Row,
    counters: Tally,
}

impl TextOrStage {
    fn new(
        collection: &Arc<Collection>,
        scan: &TextScan,
        scans: Vec<IndexStage>,
        filter: Option<Filter>,
    ) -> Self {
        let prefix = scan.index.spec().text.as_ref().map_or(0, indexkeys::TextIndex::prefix);
        Self {
            collection: Arc::clone(collection),
            scans,
            score_at: prefix + 1,
            filter,
            found: None,
            row: Row::default(),
            counters: Tally::default(),
        }
    }

    /// Reads the entries of all terms. May read the disk.
    fn load(&mut self, exec: &ExecContext<'_>) -> Result<Vec<(Vec<u8>, f64)>> {
        let mut places: KeyMap<Vec<u8>, usize> = KeyMap::default();
        let mut found: Vec<(Vec<u8>, f64)> = Vec::new();
        let mut bytes = 0;
        for scan in &mut self.scans {
            scan.read_score(self.score_at);
            while scan.advance(exec)? {
                self.counters.works += 1;
                let (record_key, score) = (&scan.row().record_key, scan.score());
                if let Some(place) = places.get(record_key) {
                    found[*place].1 += score;
                    continue;
                }
                bytes += 2 * record_key.len() + FOUND_BYTES;
                if bytes > MEMORY_LIMIT_BYTES {
                    return Err(Error::new(
                        Code::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                        format!(
                            "Executor error during find command :: caused by :: the scores of a text \
                             search exceeded the memory limit of {MEMORY_LIMIT_BYTES} bytes"
                        ),
                    ));
                }
                places.insert(record_key.clone(), found.len());
                found.push((record_key.clone(), score));
            }
            scan.park();
        }
        Ok(found)
    }
}

impl PlanStage for TextOrStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        let mut found = match self.found.take() {
            Some(found) => found,
            None => self.load(exec)?.into_iter(),
        };
        while let Some((record_key, score)) = found.next() {
            self.counters.works += 1;
            exec.tick(self.counters.works)?;
            let Some(document) = exec.get_record(&self.collection, &record_key)? else {
                continue;
            };
            self.counters.documents += 1;
            if !passes(self.filter.as_ref(), &document)? {
                continue;
            }
            let scored = text_score::with(RawDocument::from_bytes(&document[..])?, score);
            self.row.set(&record_key, scored.as_bytes());
            self.counters.advanced += 1;
            self.found = Some(found);
            return Ok(true);
        }
        self.found = Some(found);
        self.counters.finished = true;
        Ok(false)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn release_row(&mut self) {
        self.row.release();
    }

    fn park(&mut self) {
        self.counters.tell();
        for scan in &mut self.scans {
            scan.park();
        }
    }

    fn report(&self) -> Report {
        let mut report = Report::new("TEXT_OR", *self.counters)
            .filtering(self.filter.as_ref())
            .counting("docsExamined", self.counters.documents);
        report.inputs = self.scans.iter().map(PlanStage::report).collect();
        report
    }
}

/// Holds documents against what the index does not tell.
struct TextMatchStage {
    input: Box<dyn PlanStage>,
    scan: TextScan,
    rejected: u64,
    counters: Tally,
}

impl PlanStage for TextMatchStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        while self.input.advance(exec)? {
            self.counters.works += 1;
            if self.scan.search.verifies(self.input.row().document()?)? {
                self.counters.advanced += 1;
                return Ok(true);
            }
            self.rejected += 1;
        }
        self.counters.finished = true;
        Ok(false)
    }

    fn row(&self) -> &Row {
        self.input.row()
    }

    fn release_row(&mut self) {
        self.input.release_row();
    }

    fn park(&mut self) {
        self.input.park();
    }

    fn report(&self) -> Report {
        let spec = self.scan.index.spec();
        let version = spec.text.as_ref().map_or(3, |text| text.fields().version().number());
        Report::new("TEXT_MATCH", *self.counters)
            .with("indexPrefix", self.scan.prefix.clone())
            .with("indexName", spec.name.clone())
            .with("parsedTextQuery", parsed(&self.scan.search))
            .with("textIndexVersion", version)
            .counting("docsRejected", self.rejected)
            .over(self.input.report())
    }
}

/// The search as `explain` shows it.
fn parsed(search: &TextNode) -> Document {
    let Some(search) = search.search() else { return Document::new() };
    let query = search.query();
    let list = |terms: Vec<&String>| -> Vec<String> { terms.into_iter().cloned().collect() };
    bson::doc! {
        "terms": list(query.terms().iter().collect()),
        "negatedTerms": list(query.negated_terms().iter().collect()),
        "phrases": list(query.phrases().iter().collect()),
        "negatedPhrases": list(query.negated_phrases().iter().collect()),
    }
}
