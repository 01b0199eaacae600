//! What one timer does, however much there is to do.

use super::*;

const MANY: u64 = 100;
/// 256 KiB each: what one timer looks at may have a few megabytes, whatever their number.
const AT_ONCE: std::ops::RangeInclusive<u64> = 1..=32;

fn heavy(mode: Mode) -> Vec<NewMessage> {
    let group = (mode == Mode::Fifo).then(|| "g".to_owned());
    let message = NewMessage { group, ..new(&"x".repeat(256 << 10)) };
    vec![message; 3]
}

/// One entry, later, in which nothing is asked for.
fn later(bench: &mut Bench, ms: u64) {
    bench.rig.now_ms += ms;
    bench.ack(&[]);
}

#[test]
fn messages_that_come_back_come_some_megabytes_at_a_time() {
    let mut bench = standard();
    for _ in 0..MANY {
        let heavy = heavy(Mode::Standard).into_iter().take(1);
        bench.send_all(heavy.map(|m| NewMessage { delay_ms: Some(1000), ..m }).collect());
    }
    later(&mut bench, 1000);
    let visible = bench.described().counts.visible;
    assert!(AT_ONCE.contains(&visible), "{visible}");
    bench.advance(0);
    assert_eq!(bench.described().counts.visible, MANY);
}

#[test]
fn messages_are_dropped_for_their_age_some_megabytes_at_a_time() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(mode) });
        for _ in 0..MANY / 2 {
            bench.send_all(heavy(mode).into_iter().take(2).collect());
        }
        later(&mut bench, 60_000);
        let expired = bench.described().counts.totals.expired;
        assert!(AT_ONCE.contains(&expired), "{mode:?} {expired}");
        bench.advance(0);
        assert_eq!(bench.described().counts.totals.expired, MANY, "{mode:?}");
    }
}

#[test]
fn many_old_messages_are_dropped_at_once_whatever_lies_in_another_lane() {
    let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(Mode::Standard) });
    bench.send_all((0..900).map(|n| new(&n.to_string())).collect());
    bench.advance(59_000);
    bench.send_all(vec![NewMessage { priority: 5, ..new("young") }]);
    bench.advance(1000);
    assert_eq!(bench.described().counts.totals.expired, 900);
}
