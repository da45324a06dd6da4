//! What a command needs of whoever sends it.
//!
//! Always true: every command says it, for it is an argument of its registration; what a function says is worked out
//! of the request alone, before anything of it is done.

use auth::{Action, ActionSet, Grants, Target, UserName};
use bson::spec::BinarySubtype;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw;
use dispatch::request::Sequence;
use std::collections::BTreeSet;

/// What a command needs.
pub(crate) enum Needs {
    /// No login: it is how one logs in, or tells nothing worth a login.
    NoLogin,
    /// Somebody who is logged in; what is another's is judged by the command itself.
    Login,
    /// These actions on the server.
    Cluster(&'static [Action]),
    /// These on the database.
    Database(&'static [Action]),
    /// These on the collection that the command's first field names.
    Collection(&'static [Action]),
    /// The same; where the field is a UUID, the right to say one, and the command asks for these on the collection that it
    /// stands for ([`Context::namespace_or_uuid`](crate::context::Context::namespace_or_uuid)).
    CollectionOrUuid(&'static [Action]),
    /// What this function works out.
    Computed(Ask),
}

/// Works out what a request needs.
pub(crate) type Ask = fn(&Asked<'_>, &mut Required<'_>);

/// A request, as far as what it needs depends on it.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The database it is sent to.
    pub(crate) database: &'a str,
    /// The command.
    pub(crate) body: &'a RawDocument,
    /// The value of its first field.
    first: Option<RawBsonRef<'a>>,
    /// The kind 1 sections.
    pub(crate) sequences: &'a [Sequence<'a>],
    /// The user who is logged in; `None` under the localhost exception.
    pub(crate) user: Option<&'a UserName>,
    /// What that user may do.
    pub(crate) grants: &'a Grants,
    /// What the command of a name needs, for those that hold another.
    pub(crate) needs_of: &'a dyn Fn(&str) -> Option<&'static Needs>,
    /// How many commands this one is within.
    pub(crate) depth: usize,
}

/// Commands within commands are looked into so deep.
pub(crate) const MOST_DEPTH: usize = 20;

/// What must all be allowed, handed on as it is worked out: a request is judged without a list being made.
pub(crate) struct Required<'r> {
    take: &'r mut dyn FnMut(Target<'_>, ActionSet),
    is_empty: bool,
}

impl<'r> Required<'r> {
    /// Hands on what is required.
    pub(crate) fn new(take: &'r mut dyn FnMut(Target<'_>, ActionSet)) -> Self {
        Self { take, is_empty: true }
    }

    /// Whether nothing was required so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// These actions on a target.
    pub(crate) fn on(&mut self, target: Target<'_>, actions: &[Action]) {
        self.is_empty = false;
        (self.take)(target, ActionSet::of(actions));
    }

    /// On the server.
    pub(crate) fn cluster(&mut self, actions: &[Action]) {
        self.on(Target::Cluster, actions);
    }

    /// On a database.
    pub(crate) fn database(&mut self, database: &str, actions: &[Action]) {
        self.on(Target::Database(database), actions);
    }

    /// On a collection.
    pub(crate) fn collection(&mut self, database: &str, name: &str, actions: &[Action]) {
        self.on(Target::Collection(database, name), actions);
    }

    /// On a collection given by its whole name.
    pub(crate) fn namespace(&mut self, full: &str, actions: &[Action]) {
        let (database, name) = full.split_once('.').unwrap_or((full, ""));
        self.collection(database, name, actions);
    }

    /// What only the members of a set may.
    pub(crate) fn internal(&mut self) {
        self.on(Target::Any, &[Action::Internal]);
    }
}

/// Whether no name stands in a document twice: whoever reads the other one would do what was not judged.
pub(crate) fn is_unique(document: &RawDocument) -> bool {
    let mut few: [&[u8]; FEW_NAMES] = [&[]; FEW_NAMES];
    let mut many = BTreeSet::new();
    for (at, name) in raw::names(document).enumerate() {
        let Ok(name) = name else { return false };
        let is_new = match few.get_mut(at) {
            Some(place) => {
                *place = name;
                !few[..at].contains(&name)
            }
            None => !few.contains(&name) && many.insert(name),
        };
        if !is_new {
            return false;
        }
    }
    true
}

/// Whether all names are unique but the first one, which says the same text twice, as `mongorestore` does with the options
/// of a dump of MongoDB 2.4: whoever reads either reads what was judged.
pub(crate) fn repeats_its_name(document: &RawDocument) -> bool {
    let mut once = RawDocumentBuf::new();
    let mut first = None;
    for element in document {
        let Ok((name, value)) = element else { return false };
        match first {
            None => first = Some((name, value)),
            Some((known, RawBsonRef::String(text)))
                if name == known && value == RawBsonRef::String(text) =>
            {
                continue;
            }
            Some(_) => {}
        }
        once.append(name, value);
    }
    is_unique(&once)
}

/// So many names are compared one with another; more are looked up.
const FEW_NAMES: usize = 16;

impl<'a> Asked<'a> {
    /// A request that somebody with these grants sends, and its first field ([`first_of`]).
    pub(crate) fn new(
        database: &'a str,
        (body, first, sequences): (&'a RawDocument, Option<RawBsonRef<'a>>, &'a [Sequence<'a>]),
        user: Option<&'a UserName>,
        grants: &'a Grants,
        needs_of: &'a dyn Fn(&str) -> Option<&'static Needs>,
    ) -> Self {
        Self { database, body, first, sequences, user, grants, needs_of, depth: 0 }
    }

    /// A command within this one.
    pub(crate) fn within(&self, database: &'a str, body: &'a RawDocument) -> Self {
        let (first, depth) = (first_of(body), self.depth + 1);
        Self { database, body, first, sequences: &[], depth, ..*self }
    }

    /// A field of the command.
    pub(crate) fn field(&self, name: &str) -> Option<RawBsonRef<'a>> {
        // What is judged depends on the bytes alone, not on whether the operation goes on.
        raw::field_by_bytes(self.body, name).ok().flatten()
    }

    /// Whether whoever asks may do this.
    pub(crate) fn may(&self, target: Target<'_>, action: Action) -> bool {
        self.grants.allow(target, ActionSet::of(&[action]))
    }

    /// The text of a field.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        match self.field(name) {
            Some(RawBsonRef::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether a field is there, and says yes or is of another type than a flag: where a yes needs more than a no.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        match self.field(name) {
            None | Some(RawBsonRef::Null | RawBsonRef::Boolean(false)) => false,
            Some(RawBsonRef::Int32(number)) => number != 0,
            Some(RawBsonRef::Int64(number)) => number != 0,
            Some(RawBsonRef::Double(number)) => number != 0.0,
            Some(_) => true,
        }
    }

    /// Whether a field says yes whoever reads it: where a yes needs less than a no. What one reader takes for a yes and
    /// another for nothing said is none.
    pub(crate) fn surely_says(&self, name: &str) -> bool {
        match self.field(name) {
            Some(RawBsonRef::Boolean(yes)) => yes,
            Some(RawBsonRef::Int32(number)) => number != 0,
            Some(RawBsonRef::Int64(number)) => number != 0,
            _ => false,
        }
    }

    /// The documents of a list, in the command or in a section of that name. What is no document is left out: the
    /// command refuses it.
    pub(crate) fn documents(&self, name: &str) -> Vec<&'a RawDocument> {
        let mut documents = Vec::new();
        if let Some(RawBsonRef::Array(array)) = self.field(name) {
            documents.extend(array.into_iter().filter_map(|element| match element {
                Ok(RawBsonRef::Document(document)) => Some(document),
                _ => None,
            }));
        }
        for (_, section) in self.sequences.iter().filter(|(of, _)| *of == name) {
            documents.extend(section.iter().copied());
        }
        documents
    }

    /// The value of the first field.
    pub(crate) fn first(&self) -> Option<RawBsonRef<'a>> {
        self.first
    }

    /// The collection that the first field names.
    pub(crate) fn collection(&self) -> Option<&'a str> {
        text_of(self.first)
    }

    /// Requires actions on the collection that the first field names; on everything where it names none, which the
    /// command is going to refuse.
    pub(crate) fn on_collection(&self, required: &mut Required<'_>, actions: &[Action]) {
        match self.collection() {
            Some(name) => required.collection(self.database, name, actions),
            None => required.on(Target::Any, actions),
        }
    }
}

/// The value of a command's first field.
pub(crate) fn first_of(body: &RawDocument) -> Option<RawBsonRef<'_>> {
    raw::first(body)?.ok()?.value().ok()
}

/// The collection that such a field names.
pub(crate) fn text_of(first: Option<RawBsonRef<'_>>) -> Option<&str> {
    match first {
        Some(RawBsonRef::String(name)) => Some(name),
        _ => None,
    }
}

impl Needs {
    /// What a request needs, where somebody must be logged in at all.
    pub(crate) fn of(&self, asked: &Asked<'_>, required: &mut Required<'_>) {
        match self {
            Self::NoLogin | Self::Login => {}
            Self::Cluster(actions) => required.cluster(actions),
            Self::Database(actions) => required.database(asked.database, actions),
            Self::Collection(actions) => asked.on_collection(required, actions),
            Self::CollectionOrUuid(actions) => match asked.first {
                Some(RawBsonRef::Binary(given)) if given.subtype == BinarySubtype::Uuid => {
                    required.cluster(&[Action::UseUUID]);
                }
                _ => asked.on_collection(required, actions),
            },
            Self::Computed(ask) => ask(asked, required),
        }
    }

    /// As a sentence for the page that lists them.
    pub(crate) fn sentence(&self) -> String {
        let list = |actions: &[Action]| {
            actions
                .iter()
                .map(|action| format!("`{}`", action.name()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::NoLogin => "nothing, not even a login".to_owned(),
            Self::Login => "a login; what is another's is not touched".to_owned(),
            Self::Cluster(actions) => format!("{} on the server", list(actions)),
            Self::Database(actions) => format!("{} on the database", list(actions)),
            Self::Collection(actions) => format!("{} on the collection", list(actions)),
            Self::CollectionOrUuid(actions) => format!(
                "{} on the collection; where a UUID stands for it, `useUUID` on the server, too",
                list(actions)
            ),
            Self::Computed(_) => "depends on what is asked".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW_NAMES, is_unique, repeats_its_name};
    use bson::raw::{CString, cstr};
    use bson::{RawBsonRef, RawDocumentBuf};

    #[test]
    fn the_first_name_may_say_the_same_text_twice() {
        let repeated = |again: RawBsonRef<'_>, more: &[i32]| {
            let mut body = RawDocumentBuf::new();
            body.append(cstr!("create"), "c");
            body.append(cstr!("create"), again);
            for number in more {
                body.append(cstr!("size"), *number);
            }
            repeats_its_name(&body)
        };
        assert!(repeated(RawBsonRef::String("c"), &[]));
        assert!(repeated(RawBsonRef::String("c"), &[1]));
        assert!(!repeated(RawBsonRef::String("d"), &[1]), "another collection");
        assert!(!repeated(RawBsonRef::Int32(1), &[1]));
        assert!(!repeated(RawBsonRef::String("c"), &[1, 2]), "another name twice");
    }

    #[test]
    fn a_name_that_stands_twice_is_found_wherever_it_stands() {
        let named = |names: &[usize]| {
            let mut document = RawDocumentBuf::new();
            for name in names {
                document.append(CString::try_from(name.to_string()).expect("no NUL"), 1);
            }
            document
        };
        let count = 2 * FEW_NAMES + 3;
        let all: Vec<usize> = (0..count).collect();
        assert!(is_unique(&named(&all)));
        for first in 0..count {
            for second in first + 1..count {
                let mut twice = all.clone();
                twice[second] = first;
                assert!(!is_unique(&named(&twice)), "{first} {second}");
            }
        }
    }
}
