//! Keys and their versions: which transaction wrote which value, in which order a key's values
//! came, and what is wrong without looking at two keys.

use crate::check::Finding;
use crate::history::{Anomaly, Key, Op, RecordedTxn, TxnOutcome, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A list or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Object {
    List(Key),
    Register(Key),
}

/// What a transaction did to one key, as others could see it.
#[derive(Default)]
#[expect(clippy::option_option, reason = "not read, read before the first write, read a version")]
pub(crate) struct Touch {
    /// The version it met, without its own writes: a list's last value, a register's value;
    /// `Some(None)` where there was nothing yet.
    pub(crate) read: Option<Option<Value>>,
    /// Its writes in order.
    pub(crate) wrote: Vec<Value>,
}

/// Everything known about all keys.
pub(crate) struct Versions {
    /// By transaction: the keys it touched.
    pub(crate) touches: Vec<BTreeMap<Object, Touch>>,
    pub(crate) writer: HashMap<(Object, Value), usize>,
    /// By key: each version and the ones known to come right behind it; `None` is the first state.
    pub(crate) next: HashMap<Object, BTreeMap<Option<Value>, BTreeSet<Value>>>,
    /// It committed, or somebody who committed saw what it wrote.
    pub(crate) happened: Vec<bool>,
    pub(crate) findings: Vec<Finding>,
}

impl Versions {
    pub(crate) fn of(history: &[RecordedTxn]) -> Self {
        let mut all = Self {
            touches: Vec::with_capacity(history.len()),
            writer: HashMap::new(),
            next: HashMap::new(),
            happened: history.iter().map(|txn| txn.outcome == TxnOutcome::Committed).collect(),
            findings: Vec::new(),
        };
        for (at, txn) in history.iter().enumerate() {
            for op in &txn.ops {
                let (object, value) = match op {
                    Op::Append { key, value } => (Object::List(*key), *value),
                    Op::Write { key, value } => (Object::Register(*key), *value),
                    _ => continue,
                };
                let before = all.writer.insert((object, value), at);
                assert!(before.is_none(), "a history writes {value} to {object:?} twice");
            }
        }
        let mut lists: HashMap<Key, Vec<(usize, Vec<Value>)>> = HashMap::new();
        for (at, txn) in history.iter().enumerate() {
            let touches = all.touches_of(at, txn, &mut lists);
            all.touches.push(touches);
        }
        all.mark_seen(history, &lists);
        all.order_lists(&lists);
        all.order_registers();
        all.find_bad_reads(history, &lists);
        all
    }

    fn find(&mut self, anomaly: Anomaly, txns: &[usize], text: String) {
        self.findings.push(Finding { anomaly, txns: txns.to_vec(), text });
    }

    /// One transaction by itself: what it met from outside, whether it saw its own writes.
    fn touches_of(
        &mut self,
        at: usize,
        txn: &RecordedTxn,
        lists: &mut HashMap<Key, Vec<(usize, Vec<Value>)>>,
    ) -> BTreeMap<Object, Touch> {
        let mut touches: BTreeMap<Object, Touch> = BTreeMap::new();
        let mut met: HashMap<Key, Vec<Value>> = HashMap::new();
        for op in &txn.ops {
            match op {
                Op::Append { key, value } => {
                    touches.entry(Object::List(*key)).or_default().wrote.push(*value);
                }
                Op::Write { key, value } => {
                    touches.entry(Object::Register(*key)).or_default().wrote.push(*value);
                }
                Op::ReadList { key, seen } => {
                    let touch = touches.entry(Object::List(*key)).or_default();
                    let Some(outside) = seen.strip_suffix(&touch.wrote[..]) else {
                        let text = format!(
                            "list {key} was read as {seen:?} after its reader appended {:?}",
                            touch.wrote
                        );
                        self.find(Anomaly::Internal, &[at], text);
                        continue;
                    };
                    match met.get(key) {
                        Some(before) if before != outside => {
                            let text = format!("list {key} was {before:?}, then {outside:?}");
                            self.find(Anomaly::Internal, &[at], text);
                        }
                        Some(_) => {}
                        None => {
                            touch.read = Some(outside.last().copied());
                            met.insert(*key, outside.to_vec());
                        }
                    }
                }
                Op::ReadRegister { key, seen } => {
                    let touch = touches.entry(Object::Register(*key)).or_default();
                    let expected = match (touch.wrote.last(), touch.read) {
                        (Some(own), _) => Some(Some(*own)),
                        (None, read) => read,
                    };
                    match expected {
                        None => touch.read = Some(*seen),
                        Some(expected) if expected != *seen => {
                            let text = format!("register {key} was {expected:?}, then {seen:?}");
                            self.find(Anomaly::Internal, &[at], text);
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        for (key, outside) in met {
            lists.entry(key).or_default().push((at, outside));
        }
        touches
    }

    /// Whose outcome is unknown has happened if somebody who committed saw it.
    fn mark_seen(
        &mut self,
        history: &[RecordedTxn],
        lists: &HashMap<Key, Vec<(usize, Vec<Value>)>>,
    ) {
        let mut seen = Vec::new();
        for (key, reads) in lists {
            for (reader, values) in reads {
                seen.extend(values.iter().map(|value| (*reader, Object::List(*key), *value)));
            }
        }
        for (reader, touches) in self.touches.iter().enumerate() {
            for (object, touch) in touches {
                if let (Object::Register(_), Some(Some(value))) = (object, touch.read) {
                    seen.push((reader, *object, value));
                }
            }
        }
        loop {
            let before = seen.len();
            seen.retain(|(reader, object, value)| {
                let Some(writer) = self.writer.get(&(*object, *value)) else { return false };
                if history[*writer].outcome != TxnOutcome::Unknown {
                    return false;
                }
                self.happened[*writer] |= self.happened[*reader];
                !self.happened[*writer]
            });
            if seen.len() == before {
                return;
            }
        }
    }

    /// A list's longest read is its order; what was appended and is not in it came later.
    fn order_lists(&mut self, lists: &HashMap<Key, Vec<(usize, Vec<Value>)>>) {
        let mut orders: HashMap<Key, Vec<Value>> = HashMap::new();
        for (key, reads) in lists {
            let happened = |(reader, _): &&(usize, Vec<Value>)| self.happened[*reader];
            let longest = reads.iter().filter(happened).max_by_key(|(_, values)| values.len());
            let Some((longest_reader, order)) = longest else { continue };
            let mut findings = Vec::new();
            for (reader, values) in reads.iter().filter(happened) {
                if !order.starts_with(values) {
                    let text = format!("list {key} was read as {values:?} and as {order:?}");
                    findings.push((*reader, text));
                }
            }
            for (reader, text) in findings {
                self.find(Anomaly::IncompatibleOrder, &[*longest_reader, reader], text);
            }
            let mut once = BTreeSet::new();
            if let Some(twice) = order.iter().find(|value| !once.insert(**value)) {
                let text = format!("list {key} holds {twice} twice: {order:?}");
                self.find(Anomaly::Garbage, &[*longest_reader], text);
                continue;
            }
            orders.insert(*key, order.clone());
        }
        for (key, order) in &orders {
            let next = self.next.entry(Object::List(*key)).or_default();
            let mut before = None;
            for value in order {
                next.entry(before).or_default().insert(*value);
                before = Some(*value);
            }
        }
        for (at, touches) in self.touches.iter().enumerate() {
            if !self.happened[at] {
                continue;
            }
            for (object, touch) in touches {
                let Object::List(key) = object else { continue };
                let order = orders.get(key).map_or(&[][..], Vec::as_slice);
                let mut before = order.last().copied();
                for value in touch.wrote.iter().filter(|value| !order.contains(value)) {
                    let next = self.next.entry(*object).or_default();
                    next.entry(before).or_default().insert(*value);
                    before = Some(*value);
                }
            }
        }
    }

    /// Of a register only this is known: what a transaction read comes before what it wrote.
    fn order_registers(&mut self) {
        let mut behind_first: BTreeMap<Object, BTreeSet<Value>> = BTreeMap::new();
        let mut replaced: HashMap<(Object, Option<Value>), usize> = HashMap::new();
        let mut lost = Vec::new();
        for (at, touches) in self.touches.iter().enumerate().filter(|(at, _)| self.happened[*at]) {
            for (object, touch) in touches {
                let (Object::Register(key), Some(first)) = (object, touch.wrote.first()) else {
                    continue;
                };
                let next = self.next.entry(*object).or_default();
                match touch.read {
                    Some(read) => {
                        next.entry(read).or_default().insert(*first);
                        if let Some(other) = replaced.insert((*object, read), at) {
                            let text =
                                format!("two transactions replaced {read:?} of register {key}");
                            lost.push((other, at, text));
                        }
                    }
                    None => {
                        behind_first.entry(*object).or_default().insert(*first);
                    }
                }
                for pair in touch.wrote.windows(2) {
                    next.entry(Some(pair[0])).or_default().insert(pair[1]);
                }
            }
        }
        for (object, values) in behind_first {
            let next = self.next.entry(object).or_default();
            next.entry(None).or_default().extend(values);
        }
        for (one, other, text) in lost {
            self.find(Anomaly::LostUpdate, &[one, other], text);
        }
    }

    /// Reads of values that nobody wrote, that were taken back, or that were written over.
    fn find_bad_reads(
        &mut self,
        history: &[RecordedTxn],
        lists: &HashMap<Key, Vec<(usize, Vec<Value>)>>,
    ) {
        let mut reads: Vec<(usize, Object, Value, bool)> = Vec::new();
        for (key, all) in lists {
            for (reader, values) in all {
                for (place, value) in values.iter().enumerate() {
                    let last = place + 1 == values.len();
                    reads.push((*reader, Object::List(*key), *value, last));
                }
            }
        }
        for (reader, touches) in self.touches.iter().enumerate() {
            for (object, touch) in touches {
                if let (Object::Register(_), Some(Some(value))) = (object, touch.read) {
                    reads.push((reader, *object, value, true));
                }
            }
        }
        let mut told = BTreeSet::new();
        for (reader, object, value, last) in reads {
            if !self.happened[reader] {
                continue;
            }
            let (anomaly, txns) = match self.writer.get(&(object, value)) {
                None => (Anomaly::Garbage, vec![reader]),
                Some(writer) if history[*writer].outcome == TxnOutcome::Aborted => {
                    (Anomaly::AbortedRead, vec![*writer, reader])
                }
                Some(writer) if *writer != reader && last => {
                    let wrote = self.touches[*writer].get(&object).map(|touch| &touch.wrote);
                    if wrote.is_some_and(|wrote| wrote.last() != Some(&value)) {
                        (Anomaly::IntermediateRead, vec![*writer, reader])
                    } else {
                        continue;
                    }
                }
                Some(_) => continue,
            };
            if told.insert((anomaly, object, value)) {
                self.find(anomaly, &txns, format!("{value} was read of {object:?}"));
            }
        }
    }
}
