//! What a stage counts and what `explain` shows of it.

use bson::raw::RawBson;
use bson::{Bson, Document};
use catalog::Collection;
use matcher::Filter;

/// What every stage counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Units of work, results or not.
    pub(crate) works: u64,
    /// Rows handed up.
    pub(crate) advanced: u64,
    /// Index entries looked at.
    pub(crate) keys: u64,
    /// Documents looked at.
    pub(crate) documents: u64,
    /// Ran to its end.
    pub(crate) finished: bool,
}

/// A stage in words: its fields in the plan, its fields in the statistics, what stands below.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) stage: &'static str,
    /// Shown in the plan and in the statistics.
    pub(crate) plan: Document,
    /// Shown in the statistics only.
    pub(crate) extra: Document,
    pub(crate) counters: Counters,
    pub(crate) inputs: Vec<Report>,
}

impl Report {
    pub(crate) fn new(stage: &'static str, counters: Counters) -> Self {
        Self { stage, plan: Document::new(), extra: Document::new(), counters, inputs: Vec::new() }
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Bson>) -> Self {
        self.plan.insert(name, value);
        self
    }

    #[must_use]
    pub(crate) fn counting(mut self, name: &str, value: u64) -> Self {
        self.extra.insert(name, number(value));
        self
    }

    #[must_use]
    pub(crate) fn over(mut self, input: Report) -> Self {
        self.inputs.push(input);
        self
    }

    /// The partitions that are read, by their places.
    #[must_use]
    pub(crate) fn in_partitions(
        self,
        collection: &Collection,
        places: impl IntoIterator<Item = usize>,
    ) -> Self {
        if !collection.is_partitioned() {
            return self;
        }
        let partitions = collection.partitions();
        let ids = places.into_iter().filter_map(|place| partitions.get(place));
        let ids: Vec<Bson> = ids.map(|partition| Bson::Int64(partition.id as i64)).collect();
        self.with("numPartitions", number(partitions.len() as u64)).with("partitionsScanned", ids)
    }

    /// What every scan of the documents tells, in whichever order it takes them.
    pub(crate) fn collection_scan(
        counters: Counters,
        filter: Option<&Filter>,
        backward: bool,
    ) -> Self {
        Self::new("COLLSCAN", counters)
            .filtering(filter)
            .with("direction", if backward { "backward" } else { "forward" })
            .counting("docsExamined", counters.documents)
    }

    /// A scan of a part of a clustered collection, from and to these values of `_id`.
    pub(crate) fn clustered_scan(
        counters: Counters,
        filter: Option<&Filter>,
        backward: bool,
        (low, high): (&RawBson, &RawBson),
    ) -> Self {
        let shown = |value: &RawBson| Bson::try_from(value.clone()).unwrap_or(Bson::Null);
        Self::new("CLUSTERED_IXSCAN", counters)
            .filtering(filter)
            .with("direction", if backward { "backward" } else { "forward" })
            .with("minRecord", shown(low))
            .with("maxRecord", shown(high))
            .counting("docsExamined", counters.documents)
    }

    /// The filter it holds its rows against, where it has one.
    #[must_use]
    pub(crate) fn filtering(self, filter: Option<&Filter>) -> Self {
        match filter {
            Some(filter) => self.with("filter", filter.to_document()),
            None => self,
        }
    }

    /// Index entries looked at by it and everything below.
    pub(crate) fn total_keys(&self) -> u64 {
        self.counters.keys + self.inputs.iter().map(Self::total_keys).sum::<u64>()
    }

    /// Documents looked at by it and everything below.
    pub(crate) fn total_documents(&self) -> u64 {
        self.counters.documents + self.inputs.iter().map(Self::total_documents).sum::<u64>()
    }

    /// The plan, as `winningPlan` shows it.
    pub(crate) fn plan_document(&self) -> Document {
        self.document(false)
    }

    /// The plan with its figures, as `executionStages` shows it.
    pub(crate) fn statistics_document(&self) -> Document {
        self.document(true)
    }

    fn document(&self, statistics: bool) -> Document {
        let mut out = bson::doc! { "stage": self.stage };
        if statistics {
            if let Some(filter) = self.plan.get("filter") {
                out.insert("filter", filter.clone());
            }
            let Counters { works, advanced, finished, .. } = self.counters;
            out.insert("nReturned", number(advanced));
            out.insert("executionTimeMillisEstimate", 0);
            out.insert("works", number(works + u64::from(finished)));
            out.insert("advanced", number(advanced));
            out.insert("needTime", number(works.saturating_sub(advanced)));
            out.insert("needYield", 0);
            out.insert("saveState", 0);
            out.insert("restoreState", 0);
            out.insert("isEOF", i32::from(finished));
        }
        for (name, value) in &self.plan {
            if !out.contains_key(name) {
                out.insert(name.clone(), value.clone());
            }
        }
        if statistics {
            out.extend(self.extra.clone());
        }
        match &self.inputs[..] {
            [] => {}
            [only] => {
                out.insert("inputStage", only.document(statistics));
            }
            many => {
                let stages: Vec<Bson> =
                    many.iter().map(|input| Bson::Document(input.document(statistics))).collect();
                out.insert("inputStages", stages);
            }
        }
        out
    }
}

/// A count as MongoDB shows it: int32 where it fits.
pub(crate) fn number(value: u64) -> Bson {
    i32::try_from(value).map_or(Bson::Int64(value as i64), Bson::Int32)
}
