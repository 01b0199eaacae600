//! Lanes whose head lies in the store.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel::base::{BaseIter, MemoryBase};
use kernel::rows::{ReadRows, Scan};
use kernel::{Base, BaseError, Index, Layer, Rows};

use super::*;
use crate::filter::{Filter, Rule};
use crate::parcel::{Attribute, Body, Parcel};
use crate::query::peek_after;

/// A base that counts how often somebody looks into it: for more than one row, and for one.
#[derive(Default)]
struct Counted {
    base: MemoryBase,
    looks: AtomicUsize,
    gets: AtomicUsize,
    /// That such looks went through.
    rows: AtomicUsize,
}

impl Base for Counted {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.base.get(key)
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let found = self.base.range(from, to, reverse);
        Box::new(found.inspect(|_| {
            self.rows.fetch_add(1, Ordering::Relaxed);
        }))
    }

    fn snapshot(&self) -> Arc<dyn Base> {
        self.base.snapshot()
    }

    fn applied(&self) -> Index {
        self.base.applied()
    }

    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        self.base.ingest(layer, through, pace)
    }

    fn disk_bytes(&self) -> u64 {
        self.base.disk_bytes()
    }
}

/// A queue whose store counts.
fn on_counted(mode: Mode) -> (Bench, Arc<Counted>) {
    let counted = Arc::new(Counted::default());
    let mut bench = Bench { rig: Rig::new(Queues::default(), START_MS) };
    bench.rig.rows = Rows::new(Arc::clone(&counted) as Arc<dyn Base>);
    bench.create(JOBS, Settings::usual(mode));
    (bench, counted)
}

/// A queue with so many messages, of some bytes each, all of them in the store.
fn stored(messages: usize, bytes: usize) -> (Bench, Arc<Counted>) {
    let (mut bench, counted) = on_counted(Mode::Standard);
    for first in (0..messages).step_by(100) {
        let text = |number: usize| format!("{number:0bytes$}");
        let batch = first..messages.min(first + 100);
        bench.send_all(batch.map(|number| new(&text(number))).collect());
    }
    bench.rig.checkpoint();
    (bench, counted)
}

impl Bench {
    /// Receives without [`Bench::check`], which looks at everything.
    fn receive_unchecked(&mut self, name: &str, max: u16) -> Vec<Delivery> {
        let receive = Receive { queue: name.into(), max, visibility_ms: None };
        let reply = self.rig.apply(TENANT, &Command::Receive(receive).encode()).expect("readable");
        match Reply::decode(&reply) {
            Ok(Reply::Received(deliveries)) => deliveries,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_long_lane_in_the_store_is_looked_up_once_for_many_receives() {
    let (mut bench, counted) = stored(2000, 10);
    let before = counted.looks.load(Ordering::Relaxed);
    let mut numbers = Vec::new();
    while numbers.len() < 2000 {
        let got = bench.receive_unchecked(JOBS, 10);
        let number = |delivery| text(delivery).parse::<usize>().expect("a number");
        numbers.extend(got.iter().map(number));
    }
    assert!(numbers.iter().copied().eq(0..2000), "in their order");
    let looks = counted.looks.load(Ordering::Relaxed) - before;
    assert!(looks <= 20, "{looks} looks for 200 receives");
    bench.check();
}

/// What it costs to receive and ack all of one group while another is blocked that has so many messages.
fn looks_beside_a_blocked_group(blocked: usize) -> (usize, usize) {
    let (mut bench, counted) = on_counted(Mode::Fifo);
    let grouped = |group: &str| NewMessage { group: Some(group.into()), ..new("m") };
    for _ in 0..blocked / 50 {
        bench.send_all(vec![grouped("blocked"); 50]);
    }
    bench.send_all(vec![grouped("free"); 50]);
    assert_eq!(bench.receive_unchecked(JOBS, 1)[0].group.as_deref(), Some("blocked"));
    bench.rig.checkpoint();
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let before = (count(&counted.looks), count(&counted.gets));
    for _ in 0..50 {
        let got = bench.receive_unchecked(JOBS, 1).remove(0);
        assert_eq!(got.group.as_deref(), Some("free"));
        let ack = Ack { queue: JOBS.into(), receipts: vec![got.receipt] };
        bench.rig.apply(TENANT, &Command::Ack(ack).encode()).expect("readable");
    }
    assert!(bench.receive_unchecked(JOBS, 1).is_empty());
    (count(&counted.looks) - before.0, count(&counted.gets) - before.1)
}

#[test]
fn a_receive_costs_the_same_however_much_waits_in_a_blocked_group() {
    let few = looks_beside_a_blocked_group(50);
    assert!(few.0 > 0 && few.1 > 0, "the test would show nothing");
    assert_eq!(looks_beside_a_blocked_group(5000), few);
}

#[test]
fn sending_behind_a_large_message_that_waits_for_another_try_does_not_read_it() {
    let (mut bench, counted) = on_counted(Mode::Fifo);
    bench.send_all(vec![grouped("g", &"x".repeat(256 << 10))]);
    let poison = bench.receive(1).remove(0);
    bench.nack(poison.receipt, Some(60_000));
    bench.rig.checkpoint();
    let before = counted.looks.load(Ordering::Relaxed);
    let messages = (0..100).map(|n| grouped("g", &n.to_string())).collect();
    let send = Command::Send(Send { queue: JOBS.into(), messages });
    bench.rig.apply(TENANT, &send.encode()).expect("readable");
    assert_eq!(counted.looks.load(Ordering::Relaxed) - before, 0);
    bench.check();
    assert!(bench.receive(1).is_empty(), "all wait behind the first");
    bench.advance(60_000);
    let order: Vec<u64> = bench.receive(200).iter().map(|got| got.sequence).collect();
    assert!(order.into_iter().eq(1..=101));
}

/// Visible messages as looks of so many show them, page after page.
fn visible(rows: &impl ReadRows, queue: u64, limit: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let page = peek_after(rows, TENANT, queue, PeekState::Visible, after.as_deref(), limit);
        let (looked, next) = page.expect("it goes on where the last page ended");
        let text = |looked: Looked| String::from_utf8(looked.peeked.parcel.to_vec());
        all.extend(looked.into_iter().map(|looked| text(looked).expect("sent as text")));
        if next.is_none() {
            return all;
        }
        after = next;
    }
}

#[test]
fn a_look_does_not_pass_what_is_gone_from_the_head_of_a_lane() {
    let (mut bench, counted) = stored(2000, 10);
    let number = bench.described().definition.number;
    for _ in 0..19 {
        let got = bench.receive_unchecked(JOBS, 100);
        let receipts = got.iter().map(|delivery| delivery.receipt).collect();
        let ack = Ack { queue: JOBS.into(), receipts };
        bench.rig.apply(TENANT, &Command::Ack(ack).encode()).expect("readable");
    }
    let before = counted.rows.load(Ordering::Relaxed);
    assert_eq!(visible(&bench.rig.rows, number, 1000).len(), 100);
    let passed = counted.rows.load(Ordering::Relaxed) - before;
    assert!((100..300).contains(&passed), "{passed} rows for 100 messages");
}

/// Rows of which what the queue counts was read before.
struct CountedBefore<'a> {
    counts: (Vec<u8>, Bytes),
    rows: &'a Rows,
}

impl ReadRows for CountedBefore<'_> {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        let (counts_key, counts) = &self.counts;
        if key == counts_key { Some(counts.clone()) } else { self.rows.get(key) }
    }

    fn scan(&self, scan: &Scan) -> Vec<(Bytes, Bytes)> {
        self.rows.scan(scan)
    }
}

#[test]
fn a_look_finds_what_came_after_it_read_where_lanes_begin() {
    let mut bench = standard();
    let with = |priority, text: &str| NewMessage { priority, ..new(text) };
    bench.send_all(["a", "b", "c"].map(|text| with(3, text)).to_vec());
    let number = bench.described().definition.number;
    let counts_key = crate::query::counts_row(TENANT, number);
    let counts = bench.rig.rows.get(&counts_key).expect("it is there");
    let got = bench.receive(2);
    bench.ack(&[got[0].receipt]);
    bench.nack(got[1].receipt, Some(0));
    bench.send_all(vec![with(9, "high"), with(3, "d"), with(0, "low")]);
    let rows = CountedBefore { counts: (counts_key, counts), rows: &bench.rig.rows };
    for limit in [1, 2, 100] {
        assert_eq!(visible(&rows, number, limit), ["low", "c", "d", "b", "high"]);
        assert_eq!(visible(rows.rows, number, limit), ["low", "c", "d", "b", "high"]);
    }
}

#[test]
fn rows_ahead_of_many_long_lanes_take_bounded_memory() {
    let mut bench = standard();
    let names: Vec<String> = (0..100).map(|number| format!("q{number}")).collect();
    let large = "x".repeat(200 << 10);
    for name in &names {
        bench.create(name, Settings::usual(Mode::Standard));
        for _ in 0..4 {
            let send = Send { queue: name.clone(), messages: vec![new(&large)] };
            bench.rig.apply(TENANT, &Command::Send(send).encode()).expect("readable");
        }
    }
    bench.rig.checkpoint();
    for name in &names {
        assert_eq!(bench.receive_unchecked(name, 1).len(), 1);
        let held = bench.rig.machine.held_ahead_bytes();
        assert!(held <= 9 << 20, "{held} bytes ahead");
    }
    assert!(bench.rig.machine.held_ahead_bytes() > 0, "the test would show nothing");
}

/// One step of a script that goes through everything that changes lanes.
fn step(
    bench: &mut Bench,
    mode: Mode,
    number: usize,
    draw: usize,
    held: &mut Vec<Receipt>,
) -> Reply {
    let queue = JOBS.to_owned();
    let kinded = |n: usize| {
        let kind = ["even", "odd"][n % 2];
        let mut parcel = Parcel::new(Body::Text(number.to_string()));
        parcel.attributes.insert("kind".into(), Attribute::text("String", kind));
        let priority = u8::try_from(draw % 3).expect("small");
        let group = (mode == Mode::Fifo).then(|| format!("g{}", n % 7));
        NewMessage { priority, group, parcel: parcel.encode(), ..new("") }
    };
    let command = match draw % 16 {
        0..=4 => {
            let messages = (0..draw % 40).map(kinded).collect();
            Command::Send(Send { queue, messages })
        }
        5..=9 => Command::Receive(Receive { queue, max: 7, visibility_ms: Some(60_000) }),
        10 | 11 => Command::Ack(Ack { queue, receipts: std::mem::take(held) }),
        12 | 13 => {
            let (receipts, delay_ms) = (std::mem::take(held), Some(0));
            Command::Nack(Nack { queue, receipts, delay_ms, reason: None })
        }
        14 => {
            let rules = vec![Rule::Is("odd".into())];
            let filter = Some(Filter { attributes: [("kind".to_owned(), rules)].into() });
            let (target, limit) = (Some("other".into()), Some(5));
            let (per_second, dry_run) = (None, false);
            Command::StartRedrive(StartRedrive {
                queue,
                target,
                per_second,
                limit,
                filter,
                dry_run,
            })
        }
        _ if draw.is_multiple_of(5) => Command::Purge { queue },
        _ => Command::Receive(Receive { queue, max: 100, visibility_ms: None }),
    };
    let reply = bench.apply(&command);
    if let Reply::Received(deliveries) = &reply {
        held.extend(deliveries.iter().map(|delivery| delivery.receipt));
    }
    bench.advance(if draw.is_multiple_of(11) { 50_000 } else { 100 });
    reply
}

fn rows_at_hand_change_nothing(mode: Mode) {
    let settings = Settings { retention_ms: 200_000, ..Settings::usual(mode) };
    let (mut remembers, mut forgets) = (bench(settings.clone()), bench(settings.clone()));
    let (mut held, mut held_too) = (Vec::new(), Vec::new());
    let (mut random, mut used) = (1_u64, 0);
    for number in 0..1500 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let draw = usize::try_from(random >> 40).expect("24 bits");
        let reply = step(&mut remembers, mode, number, draw, &mut held);
        assert_eq!(reply, step(&mut forgets, mode, number, draw, &mut held_too), "step {number}");
        if draw.is_multiple_of(199) {
            for bench in [&mut remembers, &mut forgets] {
                assert_eq!(bench.apply(&Command::Delete { queue: JOBS.into() }), Reply::Deleted);
                bench.create(JOBS, settings.clone());
            }
            (held, held_too) = (Vec::new(), Vec::new());
        }
        forgets.rig.machine = Queues::default();
        if draw.is_multiple_of(3) {
            remembers.rig.checkpoint();
            let all = |bench: &Bench| bench.rig.rows.scan(&Scan::all());
            assert_eq!(all(&remembers), all(&forgets), "rows after step {number}");
        }
        used += usize::from(remembers.rig.machine.held_ahead_bytes() > 0);
    }
    assert!(used > 100, "only {used} steps had anything at hand");
}

#[test]
fn rows_at_hand_never_change_what_a_queue_does() {
    rows_at_hand_change_nothing(Mode::Standard);
}

#[test]
fn rows_at_hand_never_change_what_a_queue_with_order_does() {
    rows_at_hand_change_nothing(Mode::Fifo);
}
