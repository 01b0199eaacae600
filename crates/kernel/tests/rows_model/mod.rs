//! [`Rows`] over any base, beside a plain map that must always agree. Used by this crate's tests
//! and by those of each base.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use kernel::rows::{RowsReader, Scan, prefix_end};
use kernel::{Base, Index, Layer, Rows};
use parking_lot::RwLock;
use proptest::prelude::*;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Something that happens to rows.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Put(Vec<u8>, u8),
    /// Under a key made of this prefix and a number never used before.
    PutNew(Vec<u8>, u8),
    /// Deletes one of the keys there are.
    DeleteSome(prop::sample::Index),
    Delete(Vec<u8>),
    DeletePrefix(Vec<u8>),
    /// Begins a checkpoint, unless one is under way.
    Freeze,
    /// Gives the base the frozen layer; given twice it must not matter.
    Ingest,
    Thaw,
    Scan(Query),
}

/// A [`Scan`], in a form that a map can answer too.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    prefix: Vec<u8>,
    to: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    before: Option<Vec<u8>>,
    reverse: bool,
    limit: Option<usize>,
}

/// Few keys, so that events meet: a machine's number, then up to three bytes of three values.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let rest = prop::collection::vec(prop::sample::select(vec![0u8, 7, 255]), 0..=3);
    (1u8..=2, rest).prop_map(|(machine, rest)| [vec![0, machine], rest].concat())
}

fn query() -> impl Strategy<Value = Query> {
    let tail = || prop::option::of(prop::collection::vec(any::<u8>(), 0..=2));
    let limit = prop::option::of(0usize..6);
    (key(), prop::option::of(key()), tail(), tail(), any::<bool>(), limit).prop_map(
        |(prefix, to, after, before, reverse, limit)| {
            let under = |tail: Option<Vec<u8>>| tail.map(|tail| [prefix.clone(), tail].concat());
            let (after, before) = (under(after), under(before));
            Query { prefix, to, after, before, reverse, limit }
        },
    )
}

/// Histories of rows.
pub(crate) fn events(count: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (key(), any::<u8>()).prop_map(|(key, value)| Event::Put(key, value)),
        4 => (key(), any::<u8>()).prop_map(|(key, value)| Event::PutNew(key, value)),
        3 => any::<prop::sample::Index>().prop_map(Event::DeleteSome),
        1 => key().prop_map(Event::Delete),
        1 => key().prop_map(Event::DeletePrefix),
        2 => Just(Event::Freeze),
        2 => Just(Event::Ingest),
        2 => Just(Event::Thaw),
        4 => query().prop_map(Event::Scan),
    ];
    prop::collection::vec(event, 0..count)
}

/// Rows and what they should be.
pub(crate) struct Checked {
    base: Arc<dyn Base>,
    rows: Arc<RwLock<Rows>>,
    reader: RowsReader,
    model: Map,
    /// The layer of the checkpoint under way, and what the base holds once it has it.
    frozen: Option<(Arc<Layer>, Map)>,
    ingested: bool,
    based: Map,
    number: u64,
}

impl Checked {
    pub(crate) fn new(base: Arc<dyn Base>) -> Checked {
        let rows = Arc::new(RwLock::new(Rows::new(Arc::clone(&base))));
        let reader = RowsReader::new(Arc::clone(&rows));
        let (model, based) = (Map::new(), Map::new());
        Checked { base, rows, reader, model, frozen: None, ingested: false, based, number: 0 }
    }

    /// Lets the events happen, and checks after each.
    pub(crate) fn run(&mut self, events: Vec<Event>) {
        for event in events {
            self.happen(event);
        }
        self.check_all();
        // Twice: a checkpoint may be under way, and its layer is not all there is.
        for _ in 0..2 {
            self.freeze();
            self.ingest();
            self.thaw();
        }
        self.check_all();
    }

    /// Checks a base that was opened after [`Checked::run`] closed the one before.
    pub(crate) fn check_reopened(self, reopen: impl FnOnce() -> Arc<dyn Base>) {
        let Checked { base, rows, reader, model, number, .. } = self;
        drop((base, rows, reader));
        let reopened = reopen();
        assert_eq!(contents(&*reopened), model);
        assert_eq!(reopened.applied(), Index(number));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Put(key, value) => self.put(key, value),
            Event::PutNew(prefix, value) => self.put_new(&prefix, value),
            Event::DeleteSome(which) => {
                if !self.model.is_empty() {
                    let nth = which.index(self.model.len());
                    let key = self.model.keys().nth(nth).expect("there are more").clone();
                    self.delete(&key);
                }
            }
            Event::Delete(key) => self.delete(&key),
            Event::DeletePrefix(prefix) => {
                self.rows.write().delete_prefix(&prefix);
                self.model.retain(|key, _| !key.starts_with(&prefix));
            }
            Event::Freeze => self.freeze(),
            Event::Ingest => self.ingest(),
            Event::Thaw => self.thaw(),
            Event::Scan(query) => self.check_scan(&query),
        }
    }

    fn put(&mut self, key: Vec<u8>, value: u8) {
        self.rows.write().put(key.clone(), vec![value]);
        self.model.insert(key.clone(), vec![value]);
        self.check_get(&key);
    }

    fn put_new(&mut self, prefix: &[u8], value: u8) {
        self.number += 1;
        let key = [prefix, b"new", &self.number.to_be_bytes()].concat();
        self.rows.write().put_new(key.clone(), vec![value]);
        self.model.insert(key.clone(), vec![value]);
        self.check_get(&key);
    }

    fn delete(&mut self, key: &[u8]) {
        self.rows.write().delete(key);
        self.model.remove(key);
        self.check_get(key);
    }

    fn freeze(&mut self) {
        if self.frozen.is_none() {
            let layer = self.rows.write().freeze();
            self.frozen = Some((layer, self.model.clone()));
            self.ingested = false;
        }
    }

    fn ingest(&mut self) {
        let Some((layer, becomes)) = &self.frozen else { return };
        let before = self.base.snapshot();
        self.number += 1;
        self.base.ingest(layer, Index(self.number), &|| {}).expect("taken");
        assert_eq!(contents(&*before), self.based, "a snapshot moved");
        assert_eq!(contents(&*self.base), *becomes, "the base is not what was frozen");
        assert_eq!(self.base.applied(), Index(self.number));
        assert_eq!(self.base.snapshot().applied(), Index(self.number));
        assert!(before.applied() < Index(self.number));
        self.based = becomes.clone();
        self.ingested = true;
    }

    fn thaw(&mut self) {
        if self.ingested {
            self.rows.write().thaw();
            self.frozen = None;
            self.ingested = false;
        }
    }

    fn check_get(&self, key: &[u8]) {
        let expected = self.model.get(key).map(Vec::as_slice);
        assert_eq!(self.rows.read().get(key).as_deref(), expected);
        assert_eq!(self.reader.get(key).as_deref(), expected);
    }

    fn check_scan(&self, query: &Query) {
        let expected = query.ask_map(&self.model);
        let scan = query.scan();
        assert_eq!(plain(self.rows.read().scan(&scan)), expected, "{query:?}");
        assert_eq!(plain(self.reader.scan(&scan)), expected, "{query:?} of a reader");
    }

    fn check_all(&self) {
        let expected: Vec<_> = self.model.clone().into_iter().collect();
        assert_eq!(plain(self.rows.read().scan(&Scan::all())), expected);
        let mut reversed = plain(self.reader.scan(&Scan::all().reversed()));
        reversed.reverse();
        assert_eq!(reversed, expected);
        for key in self.model.keys() {
            self.check_get(key);
        }
    }
}

impl Query {
    fn scan(&self) -> Scan {
        let mut scan = match &self.to {
            Some(to) => Scan::between(&self.prefix, to),
            None => Scan::prefix(&self.prefix),
        };
        if let Some(key) = &self.after {
            scan = scan.after(key);
        }
        if let (Some(key), None) = (&self.before, &self.to) {
            scan = scan.before(key);
        }
        if self.reverse {
            scan = scan.reversed();
        }
        self.limit.map_or(scan.clone(), |limit| scan.limit(limit))
    }

    fn ask_map(&self, map: &Map) -> Vec<(Vec<u8>, Vec<u8>)> {
        let end = self.to.clone().or_else(|| prefix_end(&self.prefix));
        let mut found: Vec<_> = map
            .iter()
            .filter(|(key, _)| **key >= self.prefix && end.as_ref().is_none_or(|end| *key < end))
            .filter(|(key, _)| self.after.as_ref().is_none_or(|after| *key > after))
            .filter(|(key, _)| {
                self.to.is_some() || self.before.as_ref().is_none_or(|before| *key < before)
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if self.reverse {
            found.reverse();
        }
        found.truncate(self.limit.unwrap_or(usize::MAX));
        found
    }
}

/// Every row of a base, read in both directions.
pub(crate) fn contents(base: &dyn Base) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all = |reverse| -> Vec<_> {
        let rows = base.range(Bound::Unbounded, Bound::Unbounded, reverse);
        plain(rows.map(|row| row.expect("readable")).collect())
    };
    let mut backward = all(true);
    backward.reverse();
    let forward = all(false);
    assert_eq!(forward, backward);
    let map: Map = forward.into_iter().collect();
    for (key, value) in &map {
        assert_eq!(base.get(key).expect("readable").as_deref(), Some(value.as_slice()));
    }
    map
}

fn plain(rows: Vec<kernel::base::Row>) -> Vec<(Vec<u8>, Vec<u8>)> {
    rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}
