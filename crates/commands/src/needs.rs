//! What a command needs of whoever sends it.
//!
//! Always true: every command says it, for it is an argument of its registration; what a function says is worked out
//! of the request alone, before anything of it is done.

use auth::{Action, ActionSet, Grants, Privilege, Resource, UserName};
use bson::{RawBsonRef, RawDocument};
use dispatch::request::Sequence;
use std::collections::BTreeSet;

/// What a command needs.
pub(crate) enum Needs {
    /// Nothing: it is how one logs in, or says nothing worth a login.
    Nobody,
    /// Somebody who is logged in; what is another's is judged by the command itself.
    Login,
    /// These actions on the server.
    Cluster(&'static [Action]),
    /// These on the database.
    Database(&'static [Action]),
    /// These on the collection that the command's first field names.
    Collection(&'static [Action]),
    /// What this function works out.
    Computed(Ask),
}

/// Works out what a request needs.
pub(crate) type Ask = fn(&Asked<'_>, &mut Required);

/// A request, as far as what it needs depends on it.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The database it is sent to.
    pub(crate) database: &'a str,
    /// The command.
    pub(crate) body: &'a RawDocument,
    /// The kind 1 sections.
    pub(crate) sequences: &'a [Sequence<'a>],
    /// Who asks; nobody under the localhost exception.
    pub(crate) user: Option<&'a UserName>,
    /// What whoever asks may do.
    pub(crate) grants: &'a Grants,
    /// What the command of a name needs, for those that hold another.
    pub(crate) needs_of: &'a dyn Fn(&str) -> Option<&'static Needs>,
    /// How many commands this one is within.
    pub(crate) depth: usize,
}

/// Commands within commands are looked into so deep.
pub(crate) const MOST_DEPTH: usize = 20;

/// What must all be allowed.
#[derive(Default, Debug)]
pub(crate) struct Required(Vec<Privilege>);

impl Required {
    /// These actions on a resource.
    pub(crate) fn on(&mut self, resource: Resource, actions: &[Action]) {
        self.0.push(Privilege { resource, actions: ActionSet::of(actions) });
    }

    /// On the server.
    pub(crate) fn cluster(&mut self, actions: &[Action]) {
        self.on(Resource::Cluster, actions);
    }

    /// On a database.
    pub(crate) fn database(&mut self, database: &str, actions: &[Action]) {
        self.on(Resource::Database(database.to_owned()), actions);
    }

    /// On a collection.
    pub(crate) fn collection(&mut self, database: &str, name: &str, actions: &[Action]) {
        self.on(Resource::Collection(database.to_owned(), name.to_owned()), actions);
    }

    /// On a collection given by its whole name.
    pub(crate) fn namespace(&mut self, full: &str, actions: &[Action]) {
        let (database, name) = full.split_once('.').unwrap_or((full, ""));
        self.collection(database, name, actions);
    }

    /// What only the members of a set may.
    pub(crate) fn internal(&mut self) {
        self.on(Resource::Any, &[Action::Internal]);
    }

    /// All of it.
    pub(crate) fn into_privileges(self) -> Vec<Privilege> {
        self.0
    }

    /// All of it.
    pub(crate) fn privileges(&self) -> &[Privilege] {
        &self.0
    }
}

/// Whether no name stands in a document twice: whoever reads the other one would do what was not judged.
pub(crate) fn is_unique(document: &RawDocument) -> bool {
    let mut names = BTreeSet::new();
    document.iter().all(|element| element.is_ok_and(|(name, _)| names.insert(name.as_str())))
}

impl<'a> Asked<'a> {
    /// A field of the command.
    pub(crate) fn field(&self, name: &str) -> Option<RawBsonRef<'a>> {
        self.body.get(name).ok().flatten()
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
        self.body.iter().next().and_then(Result::ok).map(|(_, value)| value)
    }

    /// The collection that the first field names.
    pub(crate) fn collection(&self) -> Option<&'a str> {
        match self.first() {
            Some(RawBsonRef::String(name)) => Some(name),
            _ => None,
        }
    }

    /// Requires actions on the collection that the first field names; on everything where it names none, which the
    /// command is going to refuse.
    pub(crate) fn on_collection(&self, required: &mut Required, actions: &[Action]) {
        match self.collection() {
            Some(name) => required.collection(self.database, name, actions),
            None => required.on(Resource::Any, actions),
        }
    }
}

impl Needs {
    /// What a request needs, where somebody must be logged in at all.
    pub(crate) fn of(&self, asked: &Asked<'_>, required: &mut Required) {
        match self {
            Self::Nobody | Self::Login => {}
            Self::Cluster(actions) => required.cluster(actions),
            Self::Database(actions) => required.database(asked.database, actions),
            Self::Collection(actions) => asked.on_collection(required, actions),
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
            Self::Nobody => "nothing, not even a login".to_owned(),
            Self::Login => "a login; what is another's is not touched".to_owned(),
            Self::Cluster(actions) => format!("{} on the server", list(actions)),
            Self::Database(actions) => format!("{} on the database", list(actions)),
            Self::Collection(actions) => format!("{} on the collection", list(actions)),
            Self::Computed(_) => "depends on what is asked".to_owned(),
        }
    }
}
