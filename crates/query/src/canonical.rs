//! A query as it was understood: parsed, checked, with its collection and snapshot.
//!
//! Always true: the collection was looked up before the snapshot was taken, and the plan is made
//! after it, so every index seen is in the snapshot and every multikey mark covers it.

use crate::context::OpContext;
use crate::examined::{note_sort, note_way};
use crate::exec::{
    EmptyStage, LimitStage, MEMORY_LIMIT_BYTES, PlanStage, SkipStage, SortStage, TempFiles,
    build_access,
};
use crate::index_filter::IndexFilter;
use crate::permit::Opening;
use crate::plan::hint::{self, Hint};
use crate::plan::{
    AccessPath, Decision, IndexScan, KeyLimits, NearOutput, PlannerInput, choose, may_hint,
    near_scan,
};
use crate::plan_cache::PlanCache;
use crate::projection::{ProjectStage, RecordIdStage, ReturnKeyStage, Shape};
use crate::request::FindRequest;
use crate::text;
use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::SortPattern;
use catalog::{Catalog, Collection, Namespace};
use engine::Snapshot;
use errors::{Code, Error, Result};
use expr::agg::{self, Variables};
use keystring::Collation;
use matcher::{Filter, Node, ParseContext};
use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the documents are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
    /// Only how they would be found is told.
    Plan,
}

impl Purpose {
    /// What the collection is opened for.
    fn opening(self) -> Opening {
        match self {
            Self::Read => Opening::Read,
            Self::Write => Opening::Write,
            Self::Plan => Opening::Metadata,
        }
    }

    /// The state in which they are looked for, which has the collection that was looked up. Fails
    /// with `SnapshotUnavailable` where it was dropped in between: look it up again.
    fn state(self, ctx: &OpContext<'_>, collection: Option<&Collection>) -> Result<Snapshot> {
        let state = match self {
            Self::Read | Self::Plan => ctx.read_state(),
            Self::Write => ctx.write_state(),
        };
        let fits = collection.is_none_or(|collection| ctx.fits(collection, &state));
        if fits { Ok(state) } else { Err(catalog::snapshot_unavailable()) }
    }
}

/// A find, understood.
#[expect(clippy::struct_excessive_bools, reason = "independent options, not states")]
pub(crate) struct Canonical {
    pub(crate) collection: Option<Arc<Collection>>,
    pub(crate) snapshot: Snapshot,
    pub(crate) filter: Filter,
    pub(crate) sort: Option<SortPattern>,
    pub(crate) shape: Option<Shape>,
    pub(crate) hint: Option<Hint>,
    pub(crate) skip: u64,
    pub(crate) limit: u64,
    pub(crate) key_limits: KeyLimits,
    pub(crate) return_key: bool,
    pub(crate) show_record_id: bool,
    pub(crate) allow_disk_use: bool,
    /// Whoever takes the rows wants them to carry their text score.
    pub(crate) carries_score: bool,
    /// What is written into documents that come by their distance.
    pub(crate) near_output: Option<Arc<NearOutput>>,
}

/// Parses a filter with the client's variables in scope, under the operation's collation.
pub(crate) fn parse_filter(
    filter: Option<&RawDocument>,
    let_variables: Option<&RawDocument>,
    collation: Option<Collation>,
    ctx: &OpContext<'_>,
) -> Result<Filter> {
    match filter.filter(|filter| !filter.is_empty()) {
        None if collation.is_none() => Ok(Filter::all()),
        filter => {
            let parse = parse_context(&[let_variables], collation, ctx)?;
            match filter {
                None => Ok(Filter::new(Node::AlwaysTrue, parse.variables)),
                Some(filter) => Filter::parse_query(filter, &parse),
            }
        }
    }
}

/// The collation that an operation asks for: the client's, else the collection's. A view has
/// no other than its own.
pub(crate) fn collation_of(
    given: Option<&RawDocument>,
    collection: Option<&Collection>,
) -> Result<Option<Collation>> {
    let default = collection.and_then(Collection::collation);
    let Some(given) = bsonval::collation::parse_given(given)? else { return Ok(default.cloned()) };
    if let Some(view) = collection.filter(|collection| collection.is_view()) {
        check_view_collation(view, given.as_ref())?;
    }
    Ok(given)
}

/// Refuses to read a view under another collation than its own.
pub(crate) fn check_view_collation(view: &Collection, wanted: Option<&Collation>) -> Result<()> {
    if view.collation() == wanted {
        return Ok(());
    }
    Err(Error::new(
        Code::OPTION_NOT_SUPPORTED_ON_VIEW,
        format!("Cannot override a view's default collation: {}", view.namespace()),
    ))
}

/// The clock, the collation and the client's `let` variables, for everything that is parsed.
pub(crate) fn parse_context(
    variable_documents: &[Option<&RawDocument>],
    collation: Option<Collation>,
    ctx: &OpContext<'_>,
) -> Result<ParseContext> {
    parse_context_at(now(ctx), variable_documents, collation, ctx)
}

/// What `$$NOW` is from now on.
fn now(ctx: &OpContext<'_>) -> DateTime {
    DateTime::from_millis(ctx.catalog.os().clock.wall_ms())
}

/// In what a statement's filter and update are parsed, made once something is: what most writes by an `_id` are
/// made of needs no variables.
pub(crate) struct StatementContext {
    now: DateTime,
    collation: Option<Collation>,
    made: OnceCell<ParseContext>,
}

impl StatementContext {
    /// Variables that are wrong are refused here, whether or not anything uses them.
    pub(crate) fn new(
        variable_documents: &[Option<&RawDocument>],
        collation: Option<Collation>,
        ctx: &OpContext<'_>,
    ) -> Result<Self> {
        let now = now(ctx);
        let made = OnceCell::new();
        if variable_documents.iter().any(Option::is_some) {
            let context = parse_context_at(now, variable_documents, collation.clone(), ctx)?;
            made.get_or_init(|| context);
        }
        Ok(Self { now, collation, made })
    }

    /// What `$$NOW` is.
    pub(crate) fn now(&self) -> DateTime {
        self.now
    }

    /// The collation that holds.
    pub(crate) fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    pub(crate) fn get(&self, ctx: &OpContext<'_>) -> Result<&ParseContext> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = parse_context_at(self.now, &[], self.collation.clone(), ctx)?;
        Ok(self.made.get_or_init(|| made))
    }
}

fn parse_context_at(
    now: DateTime,
    variable_documents: &[Option<&RawDocument>],
    collation: Option<Collation>,
    ctx: &OpContext<'_>,
) -> Result<ParseContext> {
    let os = ctx.catalog.os();
    let mut variables = Variables::new(now, seed(os)).with_collation(collation);
    if let Some(time) = ctx.cluster_time {
        variables = variables.with_cluster_time(time);
    }
    if let Some(roles) = &ctx.user_roles {
        variables = variables.with_user_roles(Arc::clone(roles));
    }
    let mut names = agg::ParseContext::new();
    for given in variable_documents.iter().flatten() {
        variables.define_let(given, &mut names)?;
    }
    Ok(ParseContext { names, variables: Arc::new(variables), text: true })
}

/// Seeds for `$rand`: the entropy is asked once, the rest is counting.
fn seed(os: &os::Os) -> u64 {
    static NEXT: OnceLock<AtomicU64> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU64::new(os.entropy.next_u64()));
    next.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
}

impl Canonical {
    pub(crate) fn of_find(
        ctx: &OpContext<'_>,
        ns: &Namespace,
        request: &FindRequest<'_>,
        purpose: Purpose,
    ) -> Result<Self> {
        let collection = ctx.collection_for(ns, purpose.opening())?;
        let snapshot = purpose.state(ctx, collection.as_deref())?;
        let collation = collation_of(request.collation, collection.as_deref())?;
        let parse = parse_context(&[request.let_variables], collation, ctx)?;
        let filter = match request.filter {
            Some(filter) if !filter.is_empty() => Filter::parse_query(filter, &parse)?,
            _ => Filter::new(Node::AlwaysTrue, Arc::clone(&parse.variables)),
        };
        let filter = text::bind(filter, collection.as_deref(), snapshot.timestamp())?;
        let mut hint = hint::parse(collection.as_deref(), request.hint)?;
        text::check_beside(&filter, hint.as_ref(), false)?;
        let mut sort = None;
        if let Some(given) = request.sort.filter(|given| !given.is_empty()) {
            match natural(given)? {
                Some(backward) => {
                    text::check_beside(&filter, None, true)?;
                    hint.get_or_insert(Hint::Natural { backward });
                }
                None => sort = Some(SortPattern::parse(given)?),
            }
        }
        let shape = Shape::parse(request.projection, &parse)?;
        if let Some(shape) = &shape {
            shape.check(&filter)?;
        }
        let query = parse.variables.collation();
        let key_limits = key_limits(hint.as_ref(), request, collection.as_deref(), query)?;
        Self {
            collection,
            snapshot,
            filter,
            sort,
            shape,
            hint,
            skip: request.skip,
            limit: request.limit,
            key_limits,
            return_key: request.return_key,
            show_record_id: request.show_record_id,
            allow_disk_use: request.allow_disk_use != Some(false),
            carries_score: false,
            near_output: None,
        }
        .checked()
    }

    /// A query of a filter alone.
    pub(crate) fn of_filter(
        ctx: &OpContext<'_>,
        collection: Option<Arc<Collection>>,
        filter: Filter,
        hint: Option<RawBsonRef<'_>>,
        purpose: Purpose,
    ) -> Result<Self> {
        let snapshot = purpose.state(ctx, collection.as_deref())?;
        let filter = text::bind(filter, collection.as_deref(), snapshot.timestamp())?;
        let hint = hint::parse(collection.as_deref(), hint)?;
        text::check_beside(&filter, hint.as_ref(), false)?;
        Self {
            collection,
            snapshot,
            filter,
            sort: None,
            shape: None,
            hint,
            skip: 0,
            limit: 0,
            key_limits: (None, None),
            return_key: false,
            show_record_id: false,
            allow_disk_use: true,
            carries_score: false,
            near_output: None,
        }
        .checked()
    }

    fn planner_input<'a>(
        &'a self,
        collection: &'a Collection,
        fields: Option<&'a std::collections::BTreeSet<String>>,
    ) -> PlannerInput<'a> {
        PlannerInput {
            collection,
            filter: &self.filter,
            sort: self.sort.as_ref(),
            hint: self.hint.as_ref(),
            fields,
            snapshot: self.snapshot.timestamp(),
            limited: self.limit > 0,
            text_score: self.wants_text_score(),
            one_scan: self.key_limits != (None, None),
            allowed: None,
        }
    }

    /// Refuses what no plan can do: to order by distances that no index tells, and to find through
    /// a geospatial index what it does not hold.
    fn checked(self) -> Result<Self> {
        let Some(collection) = self.collection.as_ref().filter(|c| !c.is_view()) else {
            return Ok(self);
        };
        let refused = |what: &str| {
            Error::new(
                Code::NO_QUERY_EXECUTION_PLANS,
                format!("error processing query: planner returned error :: caused by :: {what}"),
            )
        };
        let input = self.planner_input(collection, None);
        if self.filter.near().is_some() {
            if near_scan(&input).is_none() {
                return Err(refused("unable to find index for $geoNear query"));
            }
        } else if matches!(&self.hint, Some(Hint::Index(index)) if !may_hint(&input, index)) {
            return Err(refused("No query solutions"));
        }
        Ok(self)
    }

    /// Whether the sort, the projection or whoever takes the rows reads the text score.
    pub(crate) fn wants_text_score(&self) -> bool {
        self.carries_score
            || self.sort.as_ref().is_some_and(SortPattern::uses_text_score)
            || self.shape.as_ref().is_some_and(Shape::needs_text_score)
    }

    /// Decides on a plan; `fields` are those needed beside filter and sort, `None` all of them.
    /// Fails where no plan can answer the query.
    pub(crate) fn decide(
        &self,
        fields: Option<&std::collections::BTreeSet<String>>,
    ) -> Result<Decision> {
        let Some(collection) = &self.collection else {
            let decision = Decision::only(crate::plan::Access {
                path: AccessPath::Nothing,
                residual: None,
                sorted: true,
            });
            return text::check_plan(self, &decision).map(|()| decision);
        };
        let filter = self.index_filter(collection, fields);
        let mut input = self.planner_input(collection, fields);
        if let Some(filter) = filter.as_ref().filter(|_| !input.one_scan) {
            // What an operator allows goes before a client's hint.
            (input.allowed, input.hint) = (Some(&**filter), None);
        }
        let mut decision = choose(&input)?;
        decision.filtered = input.allowed.is_some();
        text::check_plan(self, &decision)?;
        if let AccessPath::Near(target) = &mut decision.winner.path {
            target.output.clone_from(&self.near_output);
        }
        if self.key_limits != (None, None)
            && let AccessPath::Index(scan) = &mut decision.winner.path
        {
            scan.key_limits = self.key_limits.clone();
        }
        Ok(decision)
    }

    /// The indexes that an operator allows for this query.
    fn index_filter(
        &self,
        collection: &Collection,
        fields: Option<&std::collections::BTreeSet<String>>,
    ) -> Option<Arc<IndexFilter>> {
        PlanCache::of(collection).filter(|| self.query_shape(fields))
    }

    /// The fields a find needs beside filter and sort.
    pub(crate) fn fields(&self) -> Option<std::collections::BTreeSet<String>> {
        if self.return_key || self.show_record_id {
            return None;
        }
        self.shape.as_ref().and_then(Shape::fields)
    }

    /// The stages of one of the decided ways: access, sort, skip, limit, projection.
    pub(crate) fn stages(
        &self,
        catalog: &Arc<Catalog>,
        access: &crate::plan::Access,
    ) -> Result<Box<dyn PlanStage>> {
        let Some(collection) = &self.collection else {
            note_way("EOF", None);
            return Ok(Box::new(EmptyStage::default()));
        };
        let mut stage = build_access(collection, access)?;
        if let (Some(sort), false) = (&self.sort, access.sorted) {
            let limit = match self.limit {
                0 => None,
                limit => usize::try_from(limit.saturating_add(self.skip)).ok(),
            };
            let disk = self.allow_disk_use.then(|| TempFiles::of(catalog));
            note_sort();
            let order = (sort.clone(), self.filter.variables().collation().cloned());
            stage = Box::new(SortStage::new(stage, order, limit, MEMORY_LIMIT_BYTES, disk));
        }
        if self.skip > 0 {
            stage = Box::new(SkipStage::new(stage, self.skip));
        }
        if self.limit > 0 {
            stage = Box::new(LimitStage::new(stage, self.limit));
        }
        let scan = match &access.path {
            AccessPath::Index(scan) => Some(scan),
            AccessPath::Near(target) => Some(&target.scan),
            AccessPath::Merge(merge) => {
                merge.branches.first().and_then(|branch| match &branch.path {
                    AccessPath::Index(scan) => Some(scan),
                    _ => None,
                })
            }
            _ => None,
        };
        if self.return_key {
            return Ok(Box::new(ReturnKeyStage::new(stage, scan)));
        }
        if let Some(shape) = &self.shape {
            let covered = scan.is_some_and(|scan| scan.covered);
            let (filter, sort) = (self.filter.clone(), self.sort.clone());
            stage = Box::new(ProjectStage::new(stage, shape.clone(), filter, sort, covered));
        }
        let carries = self.wants_text_score() && self.shape.is_none() && !self.carries_score;
        if carries {
            stage = Box::new(text::StripStage::new(stage));
        }
        if self.show_record_id {
            stage = Box::new(RecordIdStage::new(stage));
        }
        Ok(stage)
    }
}

/// A sort that is given and not empty.
pub(crate) fn sort_of(sort: Option<&RawDocument>) -> Result<Option<SortPattern>> {
    sort.filter(|given| !given.is_empty()).map(SortPattern::parse).transpose()
}

/// `{$natural: ±1}` as a sort.
fn natural(sort: &RawDocument) -> Result<Option<bool>> {
    let Some(direction) = sort.get("$natural")? else { return Ok(None) };
    if sort.iter().count() > 1 {
        return Err(Error::bad_value("$natural sort cannot be combined with other sort keys"));
    }
    match direction {
        RawBsonRef::Int32(1) | RawBsonRef::Int64(1) => Ok(Some(false)),
        RawBsonRef::Int32(-1) | RawBsonRef::Int64(-1) => Ok(Some(true)),
        RawBsonRef::Double(n) if (n.abs() - 1.0).abs() < f64::EPSILON => Ok(Some(n < 0.0)),
        _ => Err(Error::bad_value("$natural sort value must be 1 or -1")),
    }
}

/// `min` and `max` as bytes of the hinted index.
fn key_limits(
    hint: Option<&Hint>,
    request: &FindRequest<'_>,
    collection: Option<&Collection>,
    query: Option<&Collation>,
) -> Result<KeyLimits> {
    if request.min.is_none() && request.max.is_none() {
        return Ok((None, None));
    }
    let index = match hint {
        Some(Hint::Index(index)) => Some(index),
        Some(Hint::Id) => None,
        _ => {
            return Err(Error::location(
                51173,
                "When using min()/max() a hint of which index to use must be provided",
            ));
        }
    };
    let collation = index.map_or_else(
        || collection.and_then(Collection::collation),
        |i| i.spec().collation.as_ref(),
    );
    let scan = IndexScan {
        index: index.cloned(),
        expanded: None,
        bounds: Vec::new(),
        backward: false,
        key_limits: (None, None),
        covered: false,
        planned_multikey: 0,
        record_bounds: Vec::new(),
    };
    let key = |given: Option<&RawDocument>, name: &str| -> Result<Option<Vec<u8>>> {
        let Some(given) = given else { return Ok(None) };
        let mut builder = keystring::KeyBuilder::new();
        let mut fields = given.iter();
        for part in scan.parts() {
            let field = fields.next().transpose()?;
            // The index tells of strings only where it orders them as the query does.
            let fits =
                |value: RawBsonRef<'_>| collation == query || !keystring::is_collatable(value);
            let Some((_, value)) =
                field.filter(|(path, value)| path.as_str() == part.path && fits(*value))
            else {
                return Err(Error::location(
                    51174,
                    format!("The index chosen is not compatible with {name}"),
                ));
            };
            let direction = if part.descending {
                keystring::Direction::Descending
            } else {
                keystring::Direction::Ascending
            };
            builder
                .append_under(value, direction, collation)
                .map_err(|error| Error::bad_value(error.to_string()))?;
        }
        if fields.next().is_some() {
            return Err(Error::location(
                51174,
                format!("The index chosen is not compatible with {name}"),
            ));
        }
        Ok(Some(builder.into_bytes()))
    };
    let limits = (key(request.min, "min")?, key(request.max, "max")?);
    if let (Some(min), Some(max)) = &limits
        && min >= max
    {
        return Err(Error::location(
            51175,
            "The value provided for min() does not come before the value provided for max() in \
             the hinted index",
        ));
    }
    Ok(limits)
}
