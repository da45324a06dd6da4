//! Variables: names when parsing, numbers when running.
//!
//! [`ParseContext`] maps the names in scope to [`VarId`]s. [`Variables`] holds what a command
//! supplies: the clock's NOW, the cluster time, the sender's roles, the collation, user `let` values. `$let` and its kin bind their
//! own in frames on the stack (see `eval`).

use crate::agg::{OwnedValue, Value};
use bson::DateTime;
use bson::Timestamp;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use bsonval::text_score;
use errors::{Code, Error, Result};
use keystring::Collation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A variable's number; unique among everything visible at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarId(u32);

/// The user variables in scope while parsing.
#[derive(Clone, Debug, Default)]
pub struct ParseContext {
    names: BTreeMap<String, VarId>,
    next: u32,
    /// What `{$meta: "score"}` has to tell.
    pub scored: Scored,
}

/// What score documents carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scored {
    /// None.
    #[default]
    No,
    /// The one of the text search that found them.
    Text,
    /// One that a stage gave them.
    Score,
    /// One that a stage gave them, and how it came about.
    Details,
}

impl Scored {
    /// The field that `{$meta: "score"}` reads; none where there is no score.
    pub fn field(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Text => Some(text_score::FIELD),
            Self::Score | Self::Details => Some(text_score::SCORE_FIELD),
        }
    }
}

impl ParseContext {
    /// No user variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Brings a user variable into scope, shadowing one of the same name.
    pub fn define(&mut self, name: &str) -> Result<VarId> {
        check_user_name(name)?;
        Ok(self.bind(name))
    }

    /// As [`Self::define`] for names the language itself chooses (`this`, `value`).
    pub(crate) fn bind(&mut self, name: &str) -> VarId {
        let id = VarId(self.next);
        self.next += 1;
        self.names.insert(name.to_owned(), id);
        id
    }

    /// The number of a variable in scope.
    pub fn lookup(&self, name: &str) -> Option<VarId> {
        self.names.get(name).copied()
    }
}

fn check_user_name(name: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        return Err(Error::failed_to_parse("empty variable names are not allowed"));
    };
    if name == "CURRENT" {
        return Ok(());
    }
    if first.is_ascii() && !first.is_ascii_lowercase() {
        return Err(Error::failed_to_parse(format!(
            "'{name}' starts with an invalid character for a user variable name"
        )));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '_' || !c.is_ascii())) {
        Some(bad) => Err(Error::failed_to_parse(format!(
            "'{name}' contains an invalid character for a variable name: '{bad}'"
        ))),
        None => Ok(()),
    }
}

/// The values variables have while a command runs.
#[derive(Debug)]
pub struct Variables {
    now: DateTime,
    cluster_time: Option<Timestamp>,
    user_roles: Option<Arc<RawArrayBuf>>,
    /// The collation that the command runs under; `None` compares bytes.
    collation: Option<Collation>,
    /// Few entries, one for each variable, looked up by a linear scan.
    values: Vec<(VarId, Option<Arc<OwnedValue>>)>,
    /// The generator behind `$rand`; one step per draw, so a simulated run repeats itself.
    random: AtomicU64,
}

impl Variables {
    /// The variables of a command that began at `now`; `seed` feeds `$rand`.
    pub fn new(now: DateTime, seed: u64) -> Self {
        Self {
            now,
            cluster_time: None,
            user_roles: None,
            collation: None,
            values: Vec::new(),
            random: AtomicU64::new(seed),
        }
    }

    /// Sets `$$CLUSTER_TIME`.
    #[must_use]
    pub fn with_cluster_time(mut self, time: Timestamp) -> Self {
        self.cluster_time = Some(time);
        self
    }

    /// Sets `$$USER_ROLES`.
    #[must_use]
    pub fn with_user_roles(mut self, roles: Arc<RawArrayBuf>) -> Self {
        self.user_roles = Some(roles);
        self
    }

    /// Sets the collation. Before anything is parsed: what is parsed may depend on it.
    #[must_use]
    pub fn with_collation(mut self, collation: Option<Collation>) -> Self {
        self.collation = collation;
        self
    }

    /// The collation; `None` compares bytes.
    pub fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// `$$NOW`.
    pub fn now(&self) -> DateTime {
        self.now
    }

    /// `$$CLUSTER_TIME`, where there is a cluster.
    pub fn cluster_time(&self) -> Option<Timestamp> {
        self.cluster_time
    }

    /// Gives a variable its value (`None`: missing).
    pub fn set(&mut self, id: VarId, value: Option<RawBson>) {
        let value = value.map(|value| Arc::new(value.into()));
        // Set again for each document of a stage: what it was is gone.
        match self.values.iter_mut().rev().find(|(known, _)| *known == id) {
            Some((_, before)) => *before = value,
            None => self.values.push((id, value)),
        }
    }

    /// Parses a command's `let` document: each value is an expression over earlier system
    /// variables (never over a document). Adds the names to `ctx`.
    pub fn define_let(&mut self, document: &RawDocument, ctx: &mut ParseContext) -> Result<()> {
        let outer = ctx.clone();
        for element in document.iter_elements() {
            let element = element?;
            let expression = crate::agg::Expression::parse(element.value()?, &outer)?;
            if !expression.dependencies().is_document_free() {
                return Err(Error::location(
                    4890500,
                    "Command let Expression tried to access a field, but this is not allowed \
                     because command let expressions run before the query examines any documents.",
                ));
            }
            let id = ctx.define(element.key().as_str())?;
            let value = expression.evaluate(empty_document(), self)?.into_owned();
            self.set(id, value);
        }
        Ok(())
    }

    /// The value of a user variable.
    pub(crate) fn value(&self, id: VarId) -> Value<'_> {
        match self.values.iter().rev().find(|(known, _)| *known == id) {
            Some((_, Some(value))) => Value::Shared(Arc::clone(value)),
            _ => Value::Missing,
        }
    }

    /// The next number in [0, 1) for `$rand` (splitmix64).
    pub fn random(&self) -> f64 {
        let state = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Clone for Variables {
    fn clone(&self) -> Self {
        Self {
            now: self.now,
            cluster_time: self.cluster_time,
            user_roles: self.user_roles.clone(),
            collation: self.collation.clone(),
            values: self.values.clone(),
            random: AtomicU64::new(self.random.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// The document a constant expression is evaluated over.
pub(crate) fn empty_document() -> &'static RawDocument {
    const BYTES: &[u8] = &[5, 0, 0, 0, 0];
    RawDocument::from_bytes(BYTES).expect("five bytes that are the empty document")
}

/// `$$CLUSTER_TIME` asked for where there is no cluster.
pub(crate) fn cluster_time_value(variables: &Variables) -> Result<Value<'_>> {
    let time = variables.cluster_time().ok_or_else(|| {
        Error::new(Code::location(51144), "Builtin variable '$$CLUSTER_TIME' is not available")
    })?;
    Ok(Value::Ref(RawBsonRef::Timestamp(time)))
}

/// `$$USER_ROLES` asked for where no client asks: in a validator or an index's filter.
pub(crate) fn user_roles_value(variables: &Variables) -> Result<Value<'_>> {
    let roles = variables.user_roles.as_deref().ok_or_else(|| {
        Error::new(Code::location(51144), "Builtin variable '$$USER_ROLES' is not available")
    })?;
    Ok(Value::Ref(RawBsonRef::Array(roles)))
}
