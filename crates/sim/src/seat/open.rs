//! Opening a shard after a crash, and what must then be true.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use journal::disk::Faults;
use journal::{Event, EventSink, Kind, Log, OpenError, Record, SimLog};
use kernel::machine::Output;
use kernel::{Base, Entry, Index};
use parking_lot::Mutex;
use shard::{Request, Shard};

use super::{Checkpoint, Live, Seat};
use crate::base::Ingest;
use crate::common::{Common, Ticket};
use crate::naive::Seen;
use crate::subject::{Difference, Sight, Views, same};
use crate::tap::{PaperLog, Taken, Tap};

const FOLDER: &str = "/log";

impl Seat {
    /// Opens the shard. False when a fault of the disk prevented it; then it may be tried again.
    pub(crate) fn open(&mut self, common: &mut Common) -> Result<bool, Difference> {
        let shard = self.place.shard;
        if common.mishap(150) {
            self.set_open_fault(common);
        }
        let events: Arc<Mutex<VecDeque<Event>>> = Arc::default();
        let heard = Arc::clone(&events);
        let sink: EventSink = Arc::new(move |event| heard.lock().push_back(event));
        let opened =
            SimLog::open(&self.disk, Path::new(FOLDER), &self.log_options, Arc::clone(&sink));
        let (log, handle) = match opened {
            Ok(opened) => opened,
            Err(OpenError::Io { doing, source }) if self.disk_faulty || self.disk_full => {
                common.note(format!("{shard} cannot be opened: cannot {doing}: {source}"));
                self.after_failed_open(common);
                return Ok(false);
            }
            Err(error) => return Err(format!("opening the log of shard {shard}: {error}")),
        };
        self.disk.set_faults(Faults::default());
        self.disk_faulty = false;
        common.note(format!(
            "{shard} opens its log: {} to {}, epoch {}",
            log.first_index(),
            log.next_index(),
            log.epoch()
        ));
        self.read_log(&log, common)?;
        let taken = Taken::default();
        let epoch = log.epoch();
        let log = Tap { log: Box::new(log), taken: Arc::clone(&taken) };
        let log = (common.options.parts.log)(Box::new(log), sink);
        let base = (common.options.parts.base)(self.base.clone());
        let machines = common.machines();
        let (overlay_bytes, fate) = Seat::replay_moves(common);
        self.base.set_next(fate);
        let opened = Shard::open(self.place, log, base, machines, overlay_bytes, &mut |_| {});
        if fate != Ingest::Done && self.base.is_settled() {
            common.report.fault("open: store full or failed");
        }
        self.base.set_next(Ingest::Done);
        let opened = match opened {
            Ok(opened) => opened,
            Err(shard::OpenError::Base(error)) if fate.fails() => {
                common.note(format!("{shard} cannot be opened: {error}"));
                self.after_failed_open(common);
                return Ok(false);
            }
            Err(error) => return Err(format!("opening shard {shard}: {error}")),
        };
        same("applied after opening", &self.known(), &opened.shard.applied())?;
        self.live = Some(Live {
            shard: opened.shard,
            handle,
            epoch,
            events,
            taken,
            in_flight: VecDeque::new(),
            checkpoint: opened.unfinished.map(Checkpoint::Begun),
            lost: false,
        });
        common.report.opens += 1;
        self.taken.clear();
        self.views.clear();
        self.usage.clear();
        let effects = opened.outputs.iter().any(|output| matches!(output, Output::Effect(_)));
        self.publish(opened.outputs);
        self.check(true, common)?;
        same("effects asked for again", &self.naive.has_effects(), &effects)?;
        Ok(true)
    }

    /// From how many bytes of rows on replay moves them to the store, and how that ends.
    fn replay_moves(common: &mut Common) -> (usize, Ingest) {
        let overlay_bytes = common.random.pick(&[usize::MAX, 20_000, 2_000]);
        if overlay_bytes == usize::MAX || !common.mishap(200) {
            return (overlay_bytes, Ingest::Done);
        }
        let fates = [Ingest::Full, Ingest::FailedBefore, Ingest::FailedAfter];
        (overlay_bytes, common.random.pick(&fates))
    }

    fn set_open_fault(&mut self, common: &mut Common) {
        let count = Some(common.random.below(12));
        let (kind, faults) = match common.random.below(4) {
            0 => ("open: write fails", Faults { write_in: count, ..Faults::default() }),
            1 => ("open: sync fails", Faults { sync_in: count, ..Faults::default() }),
            _ => ("open: power lost", Faults { power_lost_in: count, ..Faults::default() }),
        };
        common.report.fault(kind);
        common.note(format!("{} {kind} in {count:?}", self.place.shard));
        self.disk.set_faults(faults);
        self.disk_faulty = true;
    }

    fn after_failed_open(&mut self, common: &mut Common) {
        let seed = common.random.next();
        match common.random.below(3) {
            0 => self.disk.restart(),
            _ => self.disk.crash(seed),
        }
        self.disk_faulty = false;
        common.report.crashes += 1;
    }

    fn known(&self) -> Index {
        Index(self.history.len() as u64)
    }

    /// What the log says is the truth. It must hold everything it said was durable, and nothing
    /// that it did not take.
    fn read_log(&mut self, log: &dyn Log, common: &mut Common) -> Result<(), Difference> {
        let mut records = Vec::new();
        let read = log.replay(log.first_index(), &mut |record| {
            records.push(record);
            true
        });
        read.map_err(|error| format!("reading the log: {error}"))?;
        let last = records.last().ok_or("the log has no barrier")?;
        same("last record", &(Kind::Barrier, log.epoch()), &(last.kind, last.epoch))?;
        let mut next = log.first_index();
        for record in records {
            same("index in the log", &next, &record.index)?;
            next = next.next();
            self.settle(record, common)?;
        }
        same("next index", &log.next_index(), &next)?;
        let known = self.known();
        if known < self.durable {
            return Err(format!(
                "entry {} was said to be durable, and the log ends with {known}",
                self.durable
            ));
        }
        self.durable = known;
        Ok(())
    }

    /// One record of a log that was opened again.
    fn settle(&mut self, record: Record, common: &mut Common) -> Result<(), Difference> {
        let at = usize::try_from(record.index.0 - 1).expect("a small number");
        if let Some(known) = self.history.get(at) {
            return same("record that is known", known, &record);
        }
        let before = self.history.last().map_or(0, |record| record.epoch.0);
        if record.epoch.0 < before {
            return Err(format!("epoch {} after {before}", record.epoch));
        }
        if record.kind == Kind::Barrier {
            same("index", &self.known().next(), &record.index)?;
            self.history.push(record);
            return Ok(());
        }
        let taken = self.taken.get(&record.index);
        same("record that was in flight", &taken, &Some(&record.payload))?;
        common.note(format!("{} finds entry {}", self.place.shard, record.index));
        self.learn_unheard(record, common)
    }

    /// An entry is in the log that nobody has heard of. A shard on paper applies it too, so that
    /// its answers and its rows are compared like those of any other.
    fn learn_unheard(&mut self, record: Record, common: &mut Common) -> Result<(), Difference> {
        let entry = Entry::decode(record.payload.clone()).map_err(|e| e.to_string())?;
        let log = Box::new(PaperLog(self.history.clone()));
        let (base, machines) = (self.base.snapshot(), common.machines());
        let opened = Shard::open(self.place, log, base, machines, usize::MAX, &mut |_| {});
        let mut shard = opened.map_err(|error| format!("opening on paper: {error}"))?.shard;
        let requests = entry.commands.into_iter();
        let requests = requests.map(|envelope| Request::new(envelope, Ticket::Collected));
        let submitted = shard.submit(entry.at_ms, entry.seed, requests.collect());
        same("entry on paper", &Some(record.index), &submitted.ok())?;
        let published = shard.on_event(&Event::Durable(record.index));
        let (_, outcomes) = super::outcomes_of(published.answers)?;
        let rows = shard.reader();
        self.learn(record, Seen { rows: &rows, outcomes: &outcomes }, common)?;
        let sight = Sight {
            index: shard.applied(),
            rows: &rows,
            views: &Views::new(),
            usage: &BTreeMap::new(),
            archive: &common.archive,
            full: false,
        };
        // The others do not need to look at each entry, and want to see what was published.
        let mut free = self.models.values_mut().filter(|model| model.keeps_time());
        free.try_for_each(|model| model.check(&sight))
    }
}
