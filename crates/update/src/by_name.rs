//! What is to be done below a document, by field name.
//!
//! Always true: the nodes stand in the order in which new fields are added.

use bsonval::path::array_index;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, btree_map};

/// So many nodes stand side by side.
const FEW: usize = 8;

/// A field name in the order in which new fields are added: numbers by value, others by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldKey(pub(super) Box<str>);

impl Ord for FieldKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (array_index(&self.0), array_index(&other.0)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.0.as_bytes().cmp(other.0.as_bytes()),
        }
    }
}

impl PartialOrd for FieldKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Nodes by field name.
#[derive(Clone, Debug)]
pub(super) enum ByName<N> {
    /// At most [`FEW`]. Most updates have one.
    Few(Vec<(FieldKey, N)>),
    /// A map makes room for several at once: they stand apart, for they are large.
    Many(BTreeMap<FieldKey, Box<N>>),
}

impl<N> Default for ByName<N> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<N> ByName<N> {
    pub(super) fn get(&self, key: &FieldKey) -> Option<&N> {
        match self {
            Self::Few(few) => few.iter().find(|(own, _)| own == key).map(|(_, node)| node),
            Self::Many(many) => many.get(key).map(|node| &**node),
        }
    }

    /// Puts a node where none stands.
    pub(super) fn add(&mut self, key: FieldKey, node: N) -> Result<(), ()> {
        match self.with_room_for(&key) {
            Self::Few(few) => match place(few, &key) {
                Ok(_) => return Err(()),
                Err(at) => put(few, at, key, node),
            },
            Self::Many(many) => match many.entry(key) {
                btree_map::Entry::Occupied(_) => return Err(()),
                btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(Box::new(node));
                }
            },
        }
        Ok(())
    }

    /// Puts a node in the place of one that may stand there.
    pub(super) fn set(&mut self, key: FieldKey, node: N) {
        match self.with_room_for(&key) {
            Self::Few(few) => match place(few, &key) {
                Ok(at) => few[at].1 = node,
                Err(at) => put(few, at, key, node),
            },
            Self::Many(many) => drop(many.insert(key, Box::new(node))),
        }
    }

    /// What stands under a name: `empty`, where nothing did.
    pub(super) fn get_or_insert(&mut self, key: FieldKey, empty: N) -> &mut N {
        match self.with_room_for(&key) {
            Self::Few(few) => {
                let at = place(few, &key).unwrap_or_else(|at| {
                    put(few, at, key, empty);
                    at
                });
                &mut few[at].1
            }
            Self::Many(many) => many.entry(key).or_insert_with(|| Box::new(empty)),
        }
    }

    /// Moves to a map where there would be one too many to stand side by side.
    fn with_room_for(&mut self, key: &FieldKey) -> &mut Self {
        if let Self::Few(few) = self
            && few.len() == FEW
            && place(few, key).is_err()
        {
            *self = Self::Many(few.drain(..).map(|(key, node)| (key, Box::new(node))).collect());
        }
        self
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&FieldKey, &N)> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(key, node)| (key, node));
        few.chain(many.into_iter().flatten().map(|(key, node)| (key, &**node)))
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &N> {
        self.iter().map(|(_, node)| node)
    }
}

fn place<N>(few: &[(FieldKey, N)], key: &FieldKey) -> Result<usize, usize> {
    few.binary_search_by(|(own, _)| own.cmp(key))
}

fn put<N>(few: &mut Vec<(FieldKey, N)>, at: usize, key: FieldKey, node: N) {
    if few.is_empty() {
        few.reserve_exact(1);
    }
    few.insert(at, (key, node));
}

/// The nodes below a document, each to be taken once: a repeated name is a field of its own, which no
/// path reaches.
pub(super) enum Children<'n, N> {
    /// And a bit for each that was taken.
    Few(&'n [(FieldKey, N)], u8),
    /// And the names that were taken.
    Many(&'n BTreeMap<FieldKey, Box<N>>, BTreeSet<&'n FieldKey>),
}

impl<'n, N> Children<'n, N> {
    pub(super) fn of(nodes: &'n ByName<N>) -> Self {
        match nodes {
            ByName::Few(few) => Self::Few(few, 0),
            ByName::Many(many) => Self::Many(many, BTreeSet::new()),
        }
    }

    #[inline]
    pub(super) fn take(&mut self, name: &[u8]) -> Option<&'n N> {
        match self {
            Self::Few(few, taken) => {
                let at = few.iter().position(|(own, _)| own.0.as_bytes() == name)?;
                let was_taken = *taken & 1 << at != 0;
                *taken |= 1 << at;
                (!was_taken).then_some(&few[at].1)
            }
            Self::Many(many, taken) => {
                let name = std::str::from_utf8(name).ok()?;
                let (key, node) = many.get_key_value(&FieldKey(name.into()))?;
                taken.insert(key).then_some(&**node)
            }
        }
    }

    /// Whether all of them were taken.
    #[inline]
    pub(super) fn are_taken(&self) -> bool {
        match self {
            Self::Few(few, taken) => taken.count_ones() as usize == few.len(),
            Self::Many(many, taken) => taken.len() == many.len(),
        }
    }

    /// Those that were not taken, in their order.
    pub(super) fn left(self) -> impl Iterator<Item = (&'n str, &'n N)> {
        let (few, many) = match self {
            Self::Few(few, taken) => (Some((few, taken)), None),
            Self::Many(many, taken) => (None, Some((many, taken))),
        };
        let few = few.into_iter().flat_map(|(few, taken)| {
            let left = few.iter().enumerate().filter(move |(at, _)| taken & 1 << at == 0);
            left.map(|(_, (key, node))| (&*key.0, node))
        });
        let many = many.into_iter().flat_map(|(many, taken)| {
            let left = many.iter().filter(move |(key, _)| !taken.contains(key));
            left.map(|(key, node)| (&*key.0, &**node))
        });
        few.chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_nodes_are_told_in_the_same_order_and_taken_once() {
        for count in 0..2 * FEW {
            let mut nodes = ByName::default();
            let names: Vec<String> = (0..count)
                .map(|n| if n % 3 == 0 { n.to_string() } else { format!("f{n}") })
                .collect();
            for name in names.iter().rev() {
                assert!(nodes.add(FieldKey((**name).into()), false).is_ok());
                assert!(nodes.add(FieldKey((**name).into()), true).is_err(), "{name}");
            }
            assert_eq!(matches!(nodes, ByName::Few(_)), count <= FEW);
            let mut sorted: Vec<FieldKey> =
                names.iter().map(|name| FieldKey((**name).into())).collect();
            sorted.sort();
            assert!(nodes.iter().map(|(key, _)| key).eq(&sorted));
            assert!(!nodes.nodes().any(|node| *node), "what is refused changes nothing");
            let mut children = Children::of(&nodes);
            for name in names.iter().step_by(2) {
                assert!(children.take(name.as_bytes()).is_some());
                assert!(children.take(name.as_bytes()).is_none(), "taken once");
            }
            assert!(children.take(b"absent").is_none());
            assert_eq!(children.are_taken(), count < 2);
            let left = names.iter().skip(1).step_by(2);
            let left: BTreeSet<&str> = left.map(|name| &**name).collect();
            let told: Vec<&str> = children.left().map(|(name, _)| name).collect();
            assert!(
                told.iter().copied().collect::<BTreeSet<_>>() == left && told.len() == left.len()
            );
            assert!(told.is_sorted_by_key(|name| FieldKey((*name).into())));
            for key in sorted {
                assert!(!*nodes.get_or_insert(key.clone(), true));
                nodes.set(key.clone(), true);
                assert_eq!(nodes.get(&key), Some(&true));
            }
            let known = nodes.iter().count();
            assert!(*nodes.get_or_insert(FieldKey("new".into()), true));
            assert_eq!((known, nodes.iter().count()), (count, count + 1));
        }
    }
}
