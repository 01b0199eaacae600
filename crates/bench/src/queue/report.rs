//! Medians of the rounds, and how far each subject is from the best peer.

use anyhow::{Context, Result};
use serde::Serialize;

use super::drive::{Amount, Case, Latency, Outcome};
use super::peer::Subject;
use crate::proc::Setup;
use crate::stats::{median, short};
use crate::svg;
use crate::table;

/// How it went.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    Measured,
    NotInstalled(String),
    Failed(String),
}

/// A subject with its rounds.
pub(crate) struct Measured {
    pub(crate) subject: &'static Subject,
    pub(crate) version: String,
    pub(crate) state: State,
    rounds: Vec<(Case, Outcome)>,
}

impl Measured {
    pub(crate) fn new(subject: &'static Subject) -> Measured {
        Measured { subject, version: String::new(), state: State::Measured, rounds: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: Case, outcome: Outcome) {
        self.rounds.push((case, outcome));
    }

    /// The middle of the rounds; none for a subject that failed, even if only once.
    fn median(&self, case: Case) -> Option<Outcome> {
        let rounds = self.rounds.iter().filter(|(of, _)| *of == case);
        let rounds: Vec<&Outcome> = rounds.map(|(_, outcome)| outcome).collect();
        if rounds.is_empty() || !matches!(self.state, State::Measured) {
            return None;
        }
        let middle = |of: fn(&Outcome) -> f64| {
            median(&rounds.iter().map(|outcome| of(outcome)).collect::<Vec<_>>())
        };
        let latency = |p50: fn(&Outcome) -> f64, p99: fn(&Outcome) -> f64| Latency {
            p50_us: middle(p50),
            p99_us: middle(p99),
        };
        Some(Outcome {
            messages: middle(|o| o.messages),
            publish: middle(|o| o.publish),
            publish_call: latency(|o| o.publish_call.p50_us, |o| o.publish_call.p99_us),
            consume: middle(|o| o.consume),
            receive_call: latency(|o| o.receive_call.p50_us, |o| o.receive_call.p99_us),
            ack_call: latency(|o| o.ack_call.p50_us, |o| o.ack_call.p99_us),
            whole: middle(|o| o.whole),
            message: latency(|o| o.message.p50_us, |o| o.message.p99_us),
            driver_us: middle(|o| o.driver_us),
        })
    }
}

/// What is compared: its name, and where it is in an outcome.
type Step = (&'static str, fn(&Outcome) -> f64);

const STEPS: [Step; 3] =
    [("publish", |o| o.publish), ("consume", |o| o.consume), ("whole", |o| o.whole)];

/// One subject's figures of one case.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    subject: &'a str,
    case: Case,
    #[serde(flatten)]
    outcome: Outcome,
    /// Publish, consume and whole by those of the best peer.
    ratios: [Option<f64>; 3],
}

fn rows<'a>(all: &'a [Measured], case: Case) -> Vec<Row<'a>> {
    let found = |measured: &'a Measured| Some((measured.subject, measured.median(case)?));
    let outcomes: Vec<(&Subject, Outcome)> = all.iter().filter_map(found).collect();
    let best = |of: fn(&Outcome) -> f64| {
        let peers = outcomes.iter().filter(|(subject, _)| subject.peer);
        peers.map(|(_, outcome)| of(outcome)).max_by(f64::total_cmp).filter(|best| *best > 0.0)
    };
    let row = |(subject, outcome): &(&'a Subject, Outcome)| Row {
        subject: subject.name,
        case,
        outcome: *outcome,
        ratios: STEPS.map(|(_, of)| best(of).map(|best| of(outcome) / best)),
    };
    outcomes.iter().map(row).collect()
}

const HEAD: [&str; 13] = [
    "",
    "publish/s",
    "×best",
    "p50/p99",
    "consume/s",
    "×best",
    "receive p50/p99",
    "ack p50/p99",
    "whole/s",
    "×best",
    "p50/p99",
    "driver",
    "messages",
];

fn cells(row: &Row<'_>) -> Vec<String> {
    let ms = |us: f64| format!("{:.*}", if us < 100_000.0 { 1 } else { 0 }, us / 1000.0);
    let pair = |latency: Latency| format!("{}/{} ms", ms(latency.p50_us), ms(latency.p99_us));
    let [publish, consume, whole] =
        row.ratios.map(|ratio| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
    let o = &row.outcome;
    vec![
        row.subject.to_owned(),
        short(o.publish),
        publish,
        pair(o.publish_call),
        short(o.consume),
        consume,
        pair(o.receive_call),
        pair(o.ack_call),
        short(o.whole),
        whole,
        pair(o.message),
        format!("{:.0} µs", o.driver_us),
        short(o.messages),
    ]
}

fn text(all: &[Measured], cases: &[Case], amount: &Amount) -> String {
    let mut text = String::new();
    for case in cases {
        let Case { bytes, batch } = case;
        let connections = amount.connections;
        text += &format!(
            "\n{bytes} bytes, {batch} a call, {connections} producers, {connections} consumers\n"
        );
        let mut table = vec![HEAD.map(str::to_owned).to_vec()];
        table.extend(rows(all, *case).iter().map(cells));
        text += &table::columns(&table);
    }
    text.push('\n');
    for Measured { subject, version, state, .. } in all {
        text += &match state {
            State::Measured => format!("{} {version}: {}\n", subject.name, subject.settings),
            State::NotInstalled(what) => format!("{}: not installed ({what})\n", subject.name),
            State::Failed(error) => format!("{}: FAILED: {error}\n", subject.name),
        };
    }
    text
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct About<'a> {
    name: &'a str,
    version: &'a str,
    settings: &'a str,
    state: &'a State,
}

impl About<'_> {
    fn of(measured: &Measured) -> About<'_> {
        let Measured { subject, version, state, .. } = measured;
        About { name: subject.name, version, settings: subject.settings, state }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Results<'a> {
    smoke: bool,
    cores: usize,
    load_before: f64,
    connections: usize,
    subjects: Vec<About<'a>>,
    rows: Vec<Row<'a>>,
}

fn groups(all: &[Measured], cases: &[Case]) -> Vec<svg::Group> {
    let mut groups = Vec::new();
    for case in cases {
        let rows = rows(all, *case);
        for (name, of) in STEPS {
            let bars = rows.iter().map(|row| (row.subject.to_owned(), of(&row.outcome)));
            let title = format!("{name}, {} bytes, {} a call", case.bytes, case.batch);
            groups.push(svg::Group { title, bars: bars.collect() });
        }
    }
    groups
}

/// Prints the table and writes `queue.json` and `queue.svg`.
pub(crate) fn conclude(
    setup: &Setup,
    all: &[Measured],
    cases: &[Case],
    amount: &Amount,
    load_before: f64,
) -> Result<()> {
    println!("{}", text(all, cases, amount));
    let results = Results {
        smoke: setup.smoke,
        cores: table::cores(),
        load_before,
        connections: amount.connections,
        subjects: all.iter().map(About::of).collect(),
        rows: cases.iter().flat_map(|case| rows(all, *case)).collect(),
    };
    let json = serde_json::to_vec_pretty(&results).context("results as JSON")?;
    let chart = svg::bars("Durable messages a second", &groups(all, cases));
    table::save(setup, "queue", json, chart, load_before)
}

#[cfg(test)]
mod tests {
    use super::{Measured, State, rows};
    use crate::queue::drive::{Amount, Case, Outcome};
    use crate::queue::{redis, stampede};

    const CASE: Case = Case { bytes: 100, batch: 1 };

    fn measured(whole: [f64; 3]) -> [Measured; 2] {
        let mut ours = Measured::new(&stampede::SUBJECT);
        let mut peer = Measured::new(&redis::SUBJECT);
        for whole in whole {
            ours.add(CASE, Outcome { whole, ..Outcome::default() });
            peer.add(CASE, Outcome { whole: 10.0, ..Outcome::default() });
        }
        [ours, peer]
    }

    #[test]
    fn ours_is_compared_by_medians_with_the_best_peer() {
        let all = measured([20.0, 1.0, 30.0]);
        let rows = rows(&all, CASE);
        assert_eq!(rows[0].ratios, [None, None, Some(2.0)]);
        assert_eq!(rows[1].ratios[2], Some(1.0));
    }

    #[test]
    fn who_is_not_there_is_named() {
        let mut all = measured([1.0; 3]);
        all[1].state = State::NotInstalled("redis-server".to_owned());
        let lasts = std::time::Duration::ZERO;
        let amount = Amount { connections: 1, lasts, messages_max: 1 };
        let text = super::text(&all, &[CASE], &amount);
        assert!(text.contains("redis: not installed (redis-server)"), "{text}");
        assert_eq!(rows(&all, CASE).len(), 1);
    }
}
