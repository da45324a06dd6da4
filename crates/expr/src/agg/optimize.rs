//! Constant folding, and which fields an expression reads.

use crate::agg::Value;
use crate::agg::eval::Scope;
use crate::agg::parse::Node;
use crate::agg::path::Base;
use crate::agg::script::Call;
use crate::agg::variables::{VarId, Variables, empty_document};
use bsonval::raw::size_of_ref;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A folded constant that is larger than its parts by so much is charged to the operation's memory:
/// a few bytes of `$range` make megabytes.
const INLINE_BYTES: usize = 64;

/// What an expression reads.
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dotted paths of the document.
    pub fields: BTreeSet<String>,
    /// The whole document is wanted (`$$ROOT`, `$$CURRENT`).
    pub whole: bool,
    /// User variables read, also those bound inside the expression.
    pub variables: BTreeSet<VarId>,
    /// The result differs from call to call (`$rand`).
    pub random: bool,
    /// Reads what the command was given beside its words: `$$NOW`, `$$CLUSTER_TIME` or `$$USER_ROLES`.
    pub context: bool,
    /// Runs a client's code.
    pub code: bool,
}

impl Dependencies {
    /// Whether no document is needed.
    pub fn is_document_free(&self) -> bool {
        self.fields.is_empty() && !self.whole
    }

    fn is_constant(&self) -> bool {
        self.is_document_free() && self.variables.is_empty() && !self.random && !self.context
    }
}

impl Node {
    /// The node's own children, in order.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Constant(_)
            | Self::Folded(_)
            | Self::Path(_)
            | Self::Random
            | Self::Script(_, Call::OnDocument) => Vec::new(),
            Self::Object(fields) => fields.iter().map(|(_, node)| node).collect(),
            Self::Array(nodes)
            | Self::Call(_, nodes)
            | Self::And(nodes)
            | Self::Or(nodes)
            | Self::IfNull(nodes) => nodes.iter().collect(),
            Self::Named(_, nodes) => nodes.iter().flatten().collect(),
            Self::Cond(parts) => parts.iter().collect(),
            Self::Switch(branches, default) => {
                branches.iter().flat_map(|(a, b)| [a, b]).chain(default.as_deref()).collect()
            }
            Self::Let(bound, body) => {
                bound.iter().map(|(_, node)| node).chain(Some(&**body)).collect()
            }
            Self::Map { input, body, .. } => vec![input, body],
            Self::Filter { input, cond, limit, .. } => {
                [&**input, &**cond].into_iter().chain(limit.as_deref()).collect()
            }
            Self::Reduce(reduce) => vec![&reduce.input, &reduce.initial, &reduce.body],
            Self::SortArray(input, _) => vec![input],
            Self::Regex(call) => call.children(),
            Self::Quantile(call) => vec![&call.input],
            Self::Script(_, Call::With(args)) => vec![args],
        }
    }

    fn children_mut(&mut self) -> Vec<&mut Self> {
        match self {
            Self::Constant(_)
            | Self::Folded(_)
            | Self::Path(_)
            | Self::Random
            | Self::Script(_, Call::OnDocument) => Vec::new(),
            Self::Object(fields) => fields.iter_mut().map(|(_, node)| node).collect(),
            Self::Array(nodes)
            | Self::Call(_, nodes)
            | Self::And(nodes)
            | Self::Or(nodes)
            | Self::IfNull(nodes) => nodes.iter_mut().collect(),
            Self::Named(_, nodes) => nodes.iter_mut().flatten().collect(),
            Self::Cond(parts) => parts.iter_mut().collect(),
            Self::Switch(branches, default) => branches
                .iter_mut()
                .flat_map(|(a, b)| [a, b])
                .chain(default.as_deref_mut())
                .collect(),
            Self::Let(bound, body) => {
                bound.iter_mut().map(|(_, node)| node).chain(Some(&mut **body)).collect()
            }
            Self::Map { input, body, .. } => vec![input, body],
            Self::Filter { input, cond, limit, .. } => {
                [&mut **input, &mut **cond].into_iter().chain(limit.as_deref_mut()).collect()
            }
            Self::Reduce(reduce) => {
                let reduce = &mut **reduce;
                vec![&mut reduce.input, &mut reduce.initial, &mut reduce.body]
            }
            Self::SortArray(input, _) => vec![input],
            Self::Regex(call) => call.children_mut(),
            Self::Quantile(call) => vec![&mut call.input],
            Self::Script(_, Call::With(args)) => vec![args],
        }
    }

    pub(crate) fn collect(&self, found: &mut Dependencies) {
        match self {
            Self::Path(path) => match path.base {
                Base::Root | Base::Current => match path.document_path() {
                    Some(path) => {
                        found.fields.insert(path);
                    }
                    None => found.whole = true,
                },
                Base::Now | Base::ClusterTime | Base::UserRoles => found.context = true,
                Base::User(id) => {
                    found.variables.insert(id);
                }
            },
            Self::Random => found.random = true,
            Self::Script(_, call) => {
                // Code may answer as it likes each time.
                (found.random, found.code) = (true, true);
                match call {
                    Call::OnDocument => found.whole = true,
                    Call::With(args) => args.collect(found),
                }
            }
            _ => {
                for child in self.children() {
                    child.collect(found);
                }
            }
        }
    }

    /// Folds bottom-up; each node whose parts are all constant is evaluated once.
    pub(crate) fn optimize(mut self) -> Self {
        for child in self.children_mut() {
            let node = std::mem::replace(child, Self::Constant(None));
            *child = node.optimize();
        }
        if matches!(self, Self::Constant(_) | Self::Folded(_) | Self::Path(_) | Self::Random) {
            return self;
        }
        let constant = match &self {
            // The first bind variables, so their parts mention them; ask for the whole instead. Code
            // may answer as it likes each time.
            Self::Let(..)
            | Self::Map { .. }
            | Self::Filter { .. }
            | Self::Reduce(_)
            | Self::Script(..) => false,
            _ => self.children().iter().all(|child| child.is_constant()),
        };
        if constant { self.folded() } else { self }
    }

    fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_) | Self::Folded(_))
    }

    /// What a constant takes; nothing for what is none.
    fn constant_bytes(&self) -> usize {
        match self {
            Self::Constant(Some(value)) => size_of_ref(value.as_raw_bson_ref()),
            Self::Folded(value) => size_of_ref(value.as_raw_bson_ref()),
            _ => 0,
        }
    }

    /// Whether the result depends on the collation, which is not known yet.
    fn is_ordered(&self) -> bool {
        let compares = match self {
            Self::Call(function, _) => function.is_ordered(),
            Self::Named(named, _) => matches!(named.name, "$maxN" | "$minN"),
            Self::SortArray(..) => true,
            _ => false,
        };
        let collatable = |child: &&Self| match child {
            Self::Constant(Some(value)) => keystring::is_collatable(value.as_raw_bson_ref()),
            Self::Folded(value) => keystring::is_collatable(value.as_raw_bson_ref()),
            _ => false,
        };
        compares && self.children().iter().any(collatable)
    }

    fn folded(self) -> Self {
        if self.is_ordered() {
            return self;
        }
        let mut found = Dependencies::default();
        self.collect(&mut found);
        if !found.is_constant() {
            return self;
        }
        let variables = Variables::new(bson::DateTime::from_millis(0), 0);
        let parts: usize = self.children().iter().map(|part| part.constant_bytes()).sum();
        let result = self.evaluate(&Scope::new(empty_document(), &variables)).map(Value::detach);
        match result {
            // No larger than what the client sent for it.
            Ok(value) if value.get().map_or(0, size_of_ref) <= parts + INLINE_BYTES => {
                Self::Constant(value.into_owned())
            }
            Ok(Value::Owned(made)) => Self::Folded(Arc::new(made)),
            _ => self,
        }
    }
}
