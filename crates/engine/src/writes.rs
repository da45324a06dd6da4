//! What a transaction wrote in one dictionary, by key: a few writes stand side by side, more in a tree.
//!
//! Always true: keys ascend and each is there once, in either form. A copy stays as it is, whatever is written
//! afterwards: a few writes are copied for it, many are shared until then.

use ftree::Message;
use os::SharedBytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

pub(crate) type Key = SharedBytes;
/// What was written to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    Put(SharedBytes),
    Delete,
    /// The argument of an update.
    Update(SharedBytes),
}

impl Write {
    #[inline]
    pub(crate) fn of(message: Message<'_>) -> Self {
        match message {
            Message::Update(argument) => Self::Update(argument.into()),
            message => message.value().map_or(Self::Delete, |value| Self::Put(value.into())),
        }
    }

    #[inline]
    pub(crate) fn message(&self) -> Message<'_> {
        match self {
            Self::Put(value) => Message::Put(value),
            Self::Delete => Message::Delete,
            Self::Update(argument) => Message::Update(argument),
        }
    }

    /// Bytes of the value or the argument.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Put(bytes) | Self::Update(bytes) => bytes.len() as u64,
            Self::Delete => 0,
        }
    }
}

/// Writes that are put into a memtable together.
pub(crate) const WRITES_TOGETHER: usize = 32;

/// So many writes stand side by side.
const FEW: usize = 8;

/// The writes of one dictionary.
#[derive(Clone)]
pub(crate) enum Writes {
    /// At most [`FEW`]. Most transactions have one.
    Few(SmallVec<[(Key, Write); 1]>),
    Many(Arc<BTreeMap<Key, Write>>),
}

impl Default for Writes {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Few(few) => few.is_empty(),
            Self::Many(many) => many.is_empty(),
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Write> {
        match self {
            Self::Few(few) => few.iter().find(|(own, _)| **own == *key).map(|(_, write)| write),
            Self::Many(many) => many.get(key),
        }
    }

    /// Writes `key`; gives the write that it replaces.
    #[inline]
    pub(crate) fn insert(&mut self, key: Key, write: Write) -> Option<Write> {
        if let Self::Few(few) = self {
            match few.binary_search_by(|(own, _)| own.cmp(&key)) {
                Ok(at) => return Some(std::mem::replace(&mut few[at].1, write)),
                Err(at) if few.len() < FEW => {
                    // Mostly behind all others, for which nothing has to be moved.
                    if at == few.len() {
                        few.push((key, write));
                    } else {
                        few.insert(at, (key, write));
                    }
                    return None;
                }
                Err(_) => *self = Self::Many(Arc::new(few.drain(..).collect())),
            }
        }
        match self {
            Self::Many(many) => Arc::make_mut(many).insert(key, write),
            Self::Few(_) => None,
        }
    }

    /// Forgets a write, and gives it.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Write> {
        match self {
            Self::Few(few) => {
                let at = few.iter().position(|(own, _)| own == key)?;
                Some(few.remove(at).1)
            }
            Self::Many(many) => Arc::make_mut(many).remove(key),
        }
    }

    /// Has all of them seen, ascending, up to the first error.
    #[inline]
    pub(crate) fn try_each<E>(
        &self,
        mut see: impl FnMut(&Key, &Write) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Few(few) => few.iter().try_for_each(|(key, write)| see(key, write)),
            Self::Many(many) => many.iter().try_for_each(|(key, write)| see(key, write)),
        }
    }

    /// Has all of them seen, ascending, some of them at a time.
    #[inline]
    pub(crate) fn each_together(&self, mut see: impl FnMut(&[(&[u8], Message<'_>)])) {
        if let Self::Few(few) = self
            && let [(key, write)] = &few[..]
        {
            return see(&[(key, write.message())]);
        }
        let mut some = SmallVec::<[(&[u8], Message<'_>); WRITES_TOGETHER]>::new();
        for (key, write) in self.iter() {
            if some.len() == WRITES_TOGETHER {
                see(&some);
                some.clear();
            }
            some.push((key, write.message()));
        }
        if !some.is_empty() {
            see(&some);
        }
    }

    /// All of them, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Write)> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(&**many)),
        };
        let few = few.into_iter().flatten().map(|(key, write)| (key, write));
        few.chain(many.into_iter().flatten())
    }

    /// The first write inside of bounds that do not end before they start; the last going backward.
    pub(crate) fn end_of(
        &self,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        forward: bool,
    ) -> Option<(&Key, &Write)> {
        match self {
            Self::Few(few) => {
                let inside = |key: &[u8]| {
                    let above = match lower {
                        Bound::Unbounded => true,
                        Bound::Included(low) => key >= low,
                        Bound::Excluded(low) => key > low,
                    };
                    above
                        && match upper {
                            Bound::Unbounded => true,
                            Bound::Included(high) => key <= high,
                            Bound::Excluded(high) => key < high,
                        }
                };
                let mut found = few.iter().filter(|(key, _)| inside(key));
                let end = if forward { found.next() } else { found.next_back() };
                end.map(|(key, write)| (key, write))
            }
            Self::Many(many) => {
                let mut range = many.range::<[u8], _>((lower, upper));
                if forward { range.next() } else { range.next_back() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound(kind: u8, key: &[u8]) -> Bound<&[u8]> {
        match kind {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    proptest! {
        #[test]
        fn both_forms_do_what_a_tree_does(
            steps in prop::collection::vec((any::<bool>(), 0..14_u8, any::<Option<u8>>()), 0..40),
            ends in prop::collection::vec((0..3_u8, 0..14_u8, 0..3_u8, 0..14_u8), 1..12),
        ) {
            let (mut writes, mut model) = (Writes::default(), BTreeMap::<Key, Write>::new());
            for (inserts, key, value) in steps {
                let key: Key = [key].into();
                let value = value.map_or(Write::Delete, |byte| Write::Put([byte].into()));
                let both = if inserts {
                    (writes.insert(key.clone(), value.clone()), model.insert(key.clone(), value))
                } else {
                    (writes.remove(&key), model.remove(&key))
                };
                prop_assert_eq!(both.0, both.1);
                prop_assert!(writes.iter().eq(model.iter()));
                let mut seen = Vec::new();
                let all = writes.try_each(|key, write| {
                    seen.push((key.clone(), write.clone()));
                    if seen.len() < 10 { Ok(()) } else { Err(()) }
                });
                prop_assert_eq!(all.is_err(), model.len() >= 10);
                prop_assert!(seen.iter().map(|(key, write)| (key, write)).eq(model.iter().take(10)));
                prop_assert_eq!(writes.get(&key), model.get(&*key));
                prop_assert_eq!((writes.is_empty(), writes.len()), (model.is_empty(), model.len()));
                for (low_kind, low, high_kind, high) in &ends {
                    let (low, high) = ([*low], [*high]);
                    if low >= high {
                        continue;
                    }
                    let bounds = (bound(*low_kind, &low), bound(*high_kind, &high));
                    let mut range = model.range::<[u8], _>(bounds);
                    prop_assert_eq!(writes.end_of(bounds, false), range.clone().next_back());
                    prop_assert_eq!(writes.end_of(bounds, true), range.next());
                }
            }
        }
    }
}
