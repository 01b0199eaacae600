//! Durable queues side by side: ours over HTTP, and the servers that people use for this, each
//! started here with a sync before every acknowledgement.
//!
//! | module | what it holds |
//! |---|---|
//! | `peer` | what every queue can do: the traits |
//! | `drive` | one driver for all, which checks every message |
//! | `report` | medians, ratios to the best peer, table, JSON, chart |
//! | `stampede`, `redis`, `nats`, `postgres`, `rabbitmq`, `beanstalkd` | the subjects |
//! | `child`, `wire`, `amqp`, `pgwire` | servers as children, connections, two protocols |

mod amqp;
mod beanstalkd;
mod child;
pub(crate) mod drive;
mod nats;
pub(crate) mod peer;
mod pgwire;
mod postgres;
mod rabbitmq;
mod redis;
mod report;
pub(crate) mod stampede;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::proc::{self, Setup};
use drive::{Amount, Case};
use peer::{NotInstalled, Subject};
use report::{Measured, State};

const SUBJECTS: &[&Subject] = &[
    &stampede::SUBJECT,
    &redis::SUBJECT,
    &nats::SUBJECT,
    &postgres::SUBJECT,
    &rabbitmq::QUORUM,
    &rabbitmq::CLASSIC,
    &beanstalkd::SUBJECT,
];

/// What the command line says.
#[derive(Args)]
pub(crate) struct QueueArgs {
    #[command(flatten)]
    common: crate::Common,
    /// Only these, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Connections that publish, and as many that receive.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// How often each is measured, in turns.
    #[arg(long)]
    rounds: Option<u32>,
    /// How long is published in each step.
    #[arg(long)]
    seconds: Option<f64>,
    /// At most so many messages in each step.
    #[arg(long)]
    messages: Option<u64>,
    /// Bytes of a message.
    #[arg(long, value_delimiter = ',', default_values_t = [1024, 100])]
    sizes: Vec<usize>,
    /// Messages in a call.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    batches: Vec<usize>,
}

impl QueueArgs {
    fn subjects(&self) -> Result<Vec<&'static Subject>> {
        for name in &self.only {
            if !SUBJECTS.iter().any(|subject| subject.name == name) {
                let names: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
                bail!("there is no {name}; there are {}", names.join(", "));
            }
        }
        let wanted = |subject: &&&Subject| match self.only.as_slice() {
            [] => subject.usual,
            only => only.iter().any(|name| name == subject.name),
        };
        Ok(SUBJECTS.iter().filter(wanted).copied().collect())
    }

    fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for &bytes in &self.sizes {
            for &batch in &self.batches {
                ensure!(bytes >= 16 && (1..=100).contains(&batch), "16 bytes, 1 to 100 a batch");
                cases.push(Case { bytes, batch });
            }
        }
        Ok(cases)
    }
}

/// One server from its start to its end: every case once.
fn round(
    setup: &Setup,
    measured: &mut Measured,
    program: &Path,
    cases: &[Case],
    amount: &Amount,
) -> Result<()> {
    let subject = measured.subject;
    let scratch = setup.scratch(subject.name)?;
    let peer = (subject.start)(program, scratch.path()).context("cannot start it")?;
    measured.version = peer.version();
    let warm_up = Amount { lasts: amount.lasts / 3, ..*amount };
    let warm_up_case = Case { bytes: 1024, batch: 10 };
    drive::run(peer.as_ref(), "warm_up", warm_up_case, &warm_up).context("warm-up")?;
    for case in cases {
        let Case { bytes, batch } = case;
        let queue = format!("q_{bytes}_{batch}");
        let outcome = drive::run(peer.as_ref(), &queue, *case, amount)
            .with_context(|| format!("{bytes} bytes, {batch} a call"))?;
        measured.add(*case, outcome);
    }
    Ok(())
}

/// What there is to measure, and what there is not.
fn prepare(setup: &Setup, subjects: &[&'static Subject]) -> Result<Vec<(Measured, PathBuf)>> {
    let mut all = Vec::new();
    for &subject in subjects {
        let mut measured = Measured::new(subject);
        let program = match (subject.find)(setup)? {
            Ok(program) => program,
            Err(NotInstalled(what)) => {
                eprintln!("{}: not installed ({what}); cargo xtask bench-setup", subject.name);
                measured.state = State::NotInstalled(what);
                PathBuf::new()
            }
        };
        all.push((measured, program));
    }
    Ok(all)
}

pub(crate) fn run(args: &QueueArgs) -> Result<()> {
    let setup = args.common.setup(args.connections, 0);
    std::fs::create_dir_all(&setup.out)
        .with_context(|| format!("cannot make {}", setup.out.display()))?;
    let load_before = proc::load_average()?;
    let cases = args.cases()?;
    let seconds = args.seconds.unwrap_or(setup.size(3.0, 0.1));
    ensure!(seconds > 0.0 && seconds < 3600.0, "seconds must be more than 0");
    let amount = Amount {
        connections: args.connections.max(1),
        lasts: Duration::from_secs_f64(seconds),
        messages_max: args.messages.unwrap_or(u64::MAX),
    };
    let mut all = prepare(&setup, &args.subjects()?)?;
    let rounds = args.rounds.unwrap_or(setup.size(3, 1));
    for number in 1..=rounds {
        for (measured, program) in &mut all {
            if !matches!(measured.state, State::Measured) {
                continue;
            }
            let name = measured.subject.name;
            eprintln!("round {number} of {rounds}: {name} …");
            // What is broken is shown as broken, and does not hide the others.
            if let Err(error) = round(&setup, measured, program, &cases, &amount) {
                eprintln!("{name}: {error:#}");
                measured.state = State::Failed(format!("{error:#}"));
            }
            if !setup.smoke {
                // What one has left in the disk's cache shall not weigh on the next.
                rustix::fs::sync();
            }
        }
    }
    let all: Vec<Measured> = all.into_iter().map(|(measured, _)| measured).collect();
    report::conclude(&setup, &all, &cases, &amount, load_before)?;
    let failed = all.iter().filter(|measured| matches!(measured.state, State::Failed(_)));
    let failed: Vec<&str> = failed.map(|measured| measured.subject.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
