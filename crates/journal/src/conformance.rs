//! What every provider must do: one suite, run against each of them.
//!
//! A provider implements [`Provider`] and calls [`check_all`]. Faults that it cannot have (a full
//! disk in memory, two owners on a locked folder) it declines, and those checks are left out.
//! The checks panic, as tests do.

use std::sync::Arc;

use bytes::Bytes;
use kernel::{Epoch, Index};
use parking_lot::{Condvar, Mutex};

use crate::log::{AppendError, Event, EventSink, Kind, Log, LostCause, OpenError, Record};

/// A kind of log under test, with what it takes to make it suffer.
pub trait Provider {
    /// Opens the log; the same one each time.
    fn open(&mut self, sink: EventSink) -> Result<Box<dyn Log>, OpenError>;

    /// Does what a log that was told to commit has left to others.
    fn work(&mut self) {}

    /// Drops an owner without letting it finish, as a crash would.
    fn crash(&mut self, log: Box<dyn Log>) {
        drop(log);
    }

    /// Whether opening again fences the owner before; else it is refused.
    fn fences(&self) -> bool {
        false
    }

    /// Lands an entry of an older epoch. False if that cannot be.
    fn land_stale(&mut self, _epoch: Epoch, _payload: Bytes) -> bool {
        false
    }

    /// Makes the next write fail. False if that cannot be.
    fn fail_write(&mut self) -> bool {
        false
    }

    /// Makes the next sync fail. False if that cannot be.
    fn fail_sync(&mut self) -> bool {
        false
    }

    /// Fills the disk, or makes room on it. False if that cannot be.
    fn fill_disk(&mut self, _full: bool) -> bool {
        false
    }
}

/// Collects events, and can wait for them.
#[derive(Clone, Default)]
pub struct Heard {
    state: Arc<(Mutex<Vec<Event>>, Condvar)>,
}

impl Heard {
    /// Nothing heard yet.
    #[must_use]
    pub fn new() -> Heard {
        Heard::default()
    }

    /// Where events are to be sent.
    #[must_use]
    pub fn sink(&self) -> EventSink {
        let heard = self.clone();
        Arc::new(move |event| {
            heard.state.0.lock().push(event);
            heard.state.1.notify_all();
        })
    }

    /// Everything heard so far.
    #[must_use]
    pub fn all(&self) -> Vec<Event> {
        self.state.0.lock().clone()
    }

    /// The last index heard to be durable; 0 if none was.
    #[must_use]
    pub fn durable(&self) -> Index {
        let events = self.state.0.lock();
        let last = events.iter().rev().find_map(|event| match event {
            Event::Durable(index) => Some(*index),
            _ => None,
        });
        last.unwrap_or_default()
    }

    /// Returns once the events heard so far are as wanted.
    ///
    /// # Panics
    /// If they are not within a minute.
    pub fn wait(&self, mut are_they: impl FnMut(&[Event]) -> bool) {
        let patience = std::time::Duration::from_secs(60);
        let mut events = self.state.0.lock();
        while !are_they(&events) {
            let waited = self.state.1.wait_for(&mut events, patience);
            assert!(!waited.timed_out(), "waited in vain; heard {events:?}");
        }
    }

    /// Returns once `index` is durable.
    ///
    /// # Panics
    /// If it is not within a minute.
    pub fn wait_durable(&self, index: Index) {
        self.wait(|events| {
            events.iter().any(|event| matches!(event, Event::Durable(last) if *last >= index))
        });
    }
}

/// Runs every check, each against a fresh provider.
///
/// # Panics
/// If one does not hold.
pub fn check_all<P: Provider>(mut fresh: impl FnMut() -> P) {
    indexes_are_consecutive_and_the_barrier_comes_first(&mut fresh());
    epoch_grows_with_each_opening(&mut fresh());
    durable_events_grow_and_reach_the_last_append(&mut fresh());
    replay_after_reopening_is_what_was_acknowledged(&mut fresh());
    a_crash_leaves_a_contiguous_prefix(&mut fresh());
    replay_shows_only_what_is_durable_and_stops_when_told(&mut fresh());
    trim_keeps_what_was_not_given_up(&mut fresh());
    an_entry_over_the_limit_is_refused_and_takes_no_index(&mut fresh());
    a_second_opening_fences_the_first_or_is_refused(&mut fresh());
    a_stale_entry_behind_a_newer_barrier_is_skipped(&mut fresh());
    a_failed_write_poisons(&mut fresh());
    a_failed_sync_poisons(&mut fresh());
    a_full_disk_refuses_writes_and_goes_on_when_there_is_room(&mut fresh());
}

fn open(provider: &mut dyn Provider) -> (Box<dyn Log>, Heard) {
    let heard = Heard::new();
    let log = provider.open(heard.sink()).expect("the log opens");
    (log, heard)
}

/// Lets the log do what is queued.
fn work(provider: &mut dyn Provider, log: &mut dyn Log) {
    log.commit();
    provider.work();
}

/// Appends, and waits for room when there is none.
fn append(provider: &mut dyn Provider, log: &mut dyn Log, heard: &Heard, payload: &Bytes) -> Index {
    loop {
        let rooms = count_rooms(&heard.all());
        let next = log.next_index();
        match log.append(payload.clone()) {
            Ok(index) => {
                assert_eq!(index, next);
                return index;
            }
            Err(AppendError::NoRoom) => {
                assert_eq!(log.next_index(), next, "a refusal takes no index");
                work(provider, &mut *log);
                heard.wait(|events| count_rooms(events) > rooms);
            }
            Err(e) => panic!("append refused: {e}"),
        }
    }
}

fn count_rooms(events: &[Event]) -> usize {
    events.iter().filter(|event| **event == Event::Room).count()
}

/// Appends `count` payloads and waits until the last is durable.
fn append_durably(
    provider: &mut dyn Provider,
    log: &mut dyn Log,
    heard: &Heard,
    count: usize,
) -> Vec<(Index, Bytes)> {
    let mut appended = Vec::new();
    for n in 0..count {
        let payload = payload(n);
        let index = append(provider, log, heard, &payload);
        appended.push((index, payload));
    }
    work(provider, &mut *log);
    heard.wait_durable(appended.last().expect("some were appended").0);
    appended
}

/// Payloads of many lengths, none of them alike.
fn payload(n: usize) -> Bytes {
    let mut bytes = format!("{n}:").into_bytes();
    let length = bytes.len() + n * 37 % 700;
    bytes.resize(length, u8::try_from(n % 251).expect("less than 251"));
    bytes.into()
}

fn replay(log: &dyn Log, from: Index) -> Vec<Record> {
    let mut records = Vec::new();
    log.replay(from, &mut |record| {
        records.push(record);
        true
    })
    .expect("the log can be read");
    records
}

fn data(records: &[Record]) -> Vec<(Index, Bytes)> {
    let kept = records.iter().filter(|record| record.kind == Kind::Data);
    kept.map(|record| (record.index, record.payload.clone())).collect()
}

fn indexes_are_consecutive_and_the_barrier_comes_first(provider: &mut dyn Provider) {
    let (mut log, heard) = open(provider);
    assert_eq!((log.first_index(), log.next_index()), (Index(1), Index(2)));
    let appended = append_durably(provider, &mut *log, &heard, 50);
    let indexes: Vec<u64> = appended.iter().map(|(index, _)| index.0).collect();
    assert_eq!(indexes, (2..52).collect::<Vec<_>>());
    let records = replay(&*log, Index(1));
    assert_eq!(records[0].kind, Kind::Barrier);
    assert_eq!((records[0].index, records[0].payload.len()), (Index(1), 0));
    assert!(records.iter().all(|record| record.epoch == log.epoch()));
    assert_eq!(data(&records), appended);
}

fn epoch_grows_with_each_opening(provider: &mut dyn Provider) {
    let mut last = Epoch(0);
    for _ in 0..5 {
        let (log, _) = open(provider);
        assert!(log.epoch() > last);
        last = log.epoch();
        let barrier = replay(&*log, log.first_index()).pop().expect("a barrier");
        assert_eq!((barrier.kind, barrier.epoch), (Kind::Barrier, last));
        assert_eq!(barrier.index.next(), log.next_index());
    }
}

fn durable_events_grow_and_reach_the_last_append(provider: &mut dyn Provider) {
    let (mut log, heard) = open(provider);
    append_durably(provider, &mut *log, &heard, 200);
    let mut last = Index(1);
    for event in heard.all() {
        match event {
            Event::Durable(index) => {
                assert!(index > last && index < log.next_index());
                last = index;
            }
            Event::Room => {}
            Event::Lost(cause) => panic!("lost: {cause}"),
        }
    }
    assert_eq!(last.next(), log.next_index());
}

fn replay_after_reopening_is_what_was_acknowledged(provider: &mut dyn Provider) {
    let mut all = Vec::new();
    for _ in 0..4 {
        let (mut log, heard) = open(provider);
        assert_eq!(data(&replay(&*log, log.first_index())), all);
        all.extend(append_durably(provider, &mut *log, &heard, 60));
        assert_eq!(data(&replay(&*log, log.first_index())), all);
    }
    let (log, _) = open(provider);
    assert_eq!(data(&replay(&*log, log.first_index())), all);
}

fn a_crash_leaves_a_contiguous_prefix(provider: &mut dyn Provider) {
    let mut kept: Vec<(Index, Bytes)> = Vec::new();
    for round in 0..20 {
        let (mut log, heard) = open(provider);
        let mut expected = kept.clone();
        expected.extend(append_durably(provider, &mut *log, &heard, 1 + round));
        let acknowledged = expected.len();
        for n in 0..10 {
            let payload = payload(1000 + n);
            expected.push((append(provider, &mut *log, &heard, &payload), payload));
        }
        provider.crash(log);
        let (log, _) = open(provider);
        kept = data(&replay(&*log, log.first_index()));
        assert!(kept.len() >= acknowledged, "something acknowledged is lost");
        assert_eq!(kept, expected[..kept.len()]);
    }
}

fn replay_shows_only_what_is_durable_and_stops_when_told(provider: &mut dyn Provider) {
    let (mut log, heard) = open(provider);
    let appended = append_durably(provider, &mut *log, &heard, 20);
    append(provider, &mut *log, &heard, &payload(99));
    let durable = heard.durable();
    let mut last = Index(0);
    log.replay(Index(11), &mut |record| {
        assert!(record.index > last);
        last = record.index;
        record.index < Index(15)
    })
    .expect("the log can be read");
    assert_eq!(last, Index(15));
    let records = replay(&*log, Index(11));
    assert_eq!(records[0].index, Index(11));
    assert!(records.len() as u64 >= durable.0 - 10);
    assert_eq!(data(&records)[..11], appended[9..]);
    assert!(replay(&*log, log.next_index()).is_empty());
}

fn trim_keeps_what_was_not_given_up(provider: &mut dyn Provider) {
    let (mut log, heard) = open(provider);
    let mut all = append_durably(provider, &mut *log, &heard, 100);
    for round in 1..6 {
        let before = Index(round * 60);
        log.trim(before).expect("the log can be trimmed");
        work(provider, &mut *log);
        assert!(log.first_index() <= before);
        all.extend(append_durably(provider, &mut *log, &heard, 60));
        let kept = data(&replay(&*log, log.first_index()));
        assert!(all.ends_with(&kept));
        assert_eq!(data(&replay(&*log, before)), all[usize_of(before) - 2..]);
        if log.first_index() > Index(1) {
            let trimmed = log.replay(Index(log.first_index().0 - 1), &mut |_| true);
            assert!(trimmed.is_err(), "what was trimmed is not silently left out");
        }
    }
    let last = log.next_index();
    log.trim(last).expect("the log can be trimmed");
    work(provider, &mut *log);
    let epoch = log.epoch();
    drop(log);
    let (log, _) = open(provider);
    assert!(log.epoch() > epoch && log.next_index() == last.next());
    let kept = data(&replay(&*log, log.first_index()));
    assert!(all.ends_with(&kept));
}

fn usize_of(index: Index) -> usize {
    usize::try_from(index.0).expect("a small index")
}

fn an_entry_over_the_limit_is_refused_and_takes_no_index(provider: &mut dyn Provider) {
    let (mut log, heard) = open(provider);
    let next = log.next_index();
    match log.append(vec![7; 65 << 20].into()) {
        Err(AppendError::TooLarge { bytes, limit_bytes }) => {
            assert!(bytes == 65 << 20 && limit_bytes < bytes);
            assert_eq!(log.next_index(), next);
        }
        Err(e) => panic!("refused for another reason: {e}"),
        Ok(_) => {
            work(provider, &mut *log);
            heard.wait_durable(next);
        }
    }
    append_durably(provider, &mut *log, &heard, 1);
}

fn a_second_opening_fences_the_first_or_is_refused(provider: &mut dyn Provider) {
    let (mut older, older_heard) = open(provider);
    append_durably(provider, &mut *older, &older_heard, 3);
    let heard = Heard::new();
    if !provider.fences() {
        let refused = provider.open(heard.sink());
        assert!(matches!(refused, Err(OpenError::InUse { .. })));
        append_durably(provider, &mut *older, &older_heard, 1);
        return;
    }
    let mut newer = provider.open(heard.sink()).expect("the log opens");
    assert!(newer.epoch() > older.epoch());
    let fenced = Event::Lost(LostCause::Fenced);
    older_heard.wait(|events| events.last() == Some(&fenced));
    let refused = older.append(payload(1));
    assert_eq!(refused, Err(AppendError::Lost(LostCause::Fenced)));
    append_durably(provider, &mut *newer, &heard, 3);
    assert_eq!(older_heard.all().last(), Some(&fenced), "nothing follows");
}

fn a_stale_entry_behind_a_newer_barrier_is_skipped(provider: &mut dyn Provider) {
    let (mut log, heard) = open(provider);
    let stale = log.epoch();
    let mut all = append_durably(provider, &mut *log, &heard, 3);
    drop(log);
    let (mut log, heard) = open(provider);
    all.extend(append_durably(provider, &mut *log, &heard, 2));
    if !provider.land_stale(stale, payload(77)) {
        return;
    }
    all.extend(append_durably(provider, &mut *log, &heard, 2));
    assert_eq!(data(&replay(&*log, Index(1))), all);
    drop(log);
    let (log, _) = open(provider);
    assert_eq!(data(&replay(&*log, Index(1))), all);
}

fn a_failed_write_poisons(provider: &mut dyn Provider) {
    check_poisons(provider, |provider| provider.fail_write());
}

fn a_failed_sync_poisons(provider: &mut dyn Provider) {
    check_poisons(provider, |provider| provider.fail_sync());
}

fn check_poisons(provider: &mut dyn Provider, fail: fn(&mut dyn Provider) -> bool) {
    let (mut log, heard) = open(provider);
    let mut expected = append_durably(provider, &mut *log, &heard, 5);
    let before = expected.len();
    if !fail(provider) {
        return;
    }
    // The failure may hit the log's own upkeep: before this append, which is then refused, or
    // after its sync, and then it is acknowledged.
    if let Ok(index) = log.append(payload(500)) {
        expected.push((index, payload(500)));
    }
    work(provider, &mut *log);
    heard.wait(|events| matches!(events.last(), Some(Event::Lost(LostCause::Poisoned(_)))));
    for _ in 0..3 {
        let refused = log.append(payload(1));
        assert!(matches!(refused, Err(AppendError::Lost(LostCause::Poisoned(_)))));
        work(provider, &mut *log);
    }
    assert!(matches!(heard.all().last(), Some(Event::Lost(_))), "nothing follows");
    let durable = heard.durable();
    let acknowledged = expected.iter().filter(|(index, _)| *index <= durable).count();
    assert!(acknowledged >= before);
    assert_eq!(data(&replay(&*log, Index(1))), expected[..acknowledged]);
    // What a failed sync left in memory is gone with the power: only what was durable may stay.
    provider.crash(log);
    let (log, _) = open(provider);
    let kept = data(&replay(&*log, Index(1)));
    assert!(kept.len() >= acknowledged);
    assert_eq!(kept, expected[..kept.len()]);
}

fn a_full_disk_refuses_writes_and_goes_on_when_there_is_room(provider: &mut dyn Provider) {
    let (mut log, heard) = open(provider);
    let mut all = append_durably(provider, &mut *log, &heard, 5);
    if !provider.fill_disk(true) {
        return;
    }
    let refused_at = loop {
        let next = log.next_index();
        let rooms = count_rooms(&heard.all());
        match log.append(payload(300)) {
            Ok(index) => all.push((index, payload(300))),
            Err(AppendError::DiskFull) => break next,
            Err(AppendError::NoRoom) => {
                work(provider, &mut *log);
                heard.wait(|events| count_rooms(events) > rooms);
            }
            Err(e) => panic!("refused for another reason: {e}"),
        }
    };
    work(provider, &mut *log);
    heard.wait_durable(Index(refused_at.0 - 1));
    assert_eq!(log.next_index(), refused_at, "a refusal takes no index");
    assert_eq!(data(&replay(&*log, Index(1))), all, "reads are served");
    drop(log);
    let (mut log, heard) = open(provider);
    assert_eq!(data(&replay(&*log, Index(1))), all, "a log on a full disk opens");
    provider.fill_disk(false);
    loop {
        match log.append(payload(300)) {
            Ok(index) => {
                all.push((index, payload(300)));
                break;
            }
            Err(AppendError::DiskFull | AppendError::NoRoom) => {
                work(provider, &mut *log);
                std::thread::yield_now();
            }
            Err(e) => panic!("refused for another reason: {e}"),
        }
    }
    all.extend(append_durably(provider, &mut *log, &heard, 30));
    assert_eq!(data(&replay(&*log, Index(1))), all);
}
