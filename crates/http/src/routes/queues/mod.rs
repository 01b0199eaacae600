//! Queues. See `docs/queue.md`.
//!
//! `define` makes and changes queues, `send`, `receive` and `settle` are the life of a message,
//! `curl` is all of it by hand.

mod batch;
mod curl;
mod define;
mod receive;
mod redrive;
mod send;
mod settings;
mod settle;
mod shown;
mod topics;

use queue::{Definition, Refusal};

use crate::app::Edge;
use crate::auth::Caller;
use crate::problem::{Problem, ProblemKind, other_settings};
use crate::queues::{NAME_BYTES_MAX, is_name, service};
use crate::route::Routes;

/// The tables.
#[must_use]
pub fn routes() -> Vec<Routes> {
    let queues = Routes::new(
        "queues",
        "Queues: work that is handed out, one lease at a time, until it is done.",
    );
    let messages = Routes::new("messages", "What is in queues: sent, received, and settled.");
    let messages = settle::routes(receive::routes(send::routes(messages)));
    let redrives = Routes::new("redrives", "Dead letters on their way back.");
    let curl = Routes::new("curl", "Queues by hand.");
    let topics =
        Routes::new("topics", "What is published goes to every subscription: a queue each.");
    vec![
        define::routes(queues),
        messages,
        redrive::routes(redrives),
        topics::routes(topics),
        curl::routes(curl),
    ]
}

fn check_name(name: &str) -> Result<(), Problem> {
    check_name_of("queue", name)
}

/// As [`check_name`], of a queue that a field of a body names.
fn check_name_at(field: &str, name: &str) -> Result<(), Problem> {
    check_name(name).map_err(|problem| {
        ProblemKind::InvalidParameter.because(format!("at {field}: {}", problem.detail))
    })
}

/// As [`check_name`], of what has names like those of queues.
fn check_name_of(what: &str, name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    let detail = format!(
        "a {what}'s name has 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . - _, and is not . or .."
    );
    Err(ProblemKind::InvalidParameter.because(detail))
}

fn no_queue(name: &str) -> Problem {
    ProblemKind::NotFound.because(format!("there is no queue `{name}`"))
}

/// The queue that the path names.
async fn find(edge: &Edge, caller: &Caller, name: &str) -> Result<Definition, Problem> {
    check_name(name)?;
    service::find(edge, caller.tenant, name).await?.ok_or_else(|| no_queue(name))
}

/// Why nothing was done; `name` is of the queue, or of the topic, that was asked.
fn refused(name: &str, refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NoQueue => no_queue(name),
        Refusal::Exists => other_settings("queue", name, &[]),
        Refusal::Version => {
            ProblemKind::Conflict.because("somebody else is changing the queue: try again")
        }
        Refusal::Mode => ProblemKind::Conflict.because("the mode of a queue does not change"),
        Refusal::Redriving => {
            ProblemKind::Conflict.because("messages of this queue are being moved already")
        }
        Refusal::NoTopic => ProblemKind::NotFound.because(format!("there is no topic `{name}`")),
        Refusal::NoSubscription => {
            ProblemKind::NotFound.because(format!("the topic `{name}` has no such subscription"))
        }
        Refusal::Subscriptions => {
            ProblemKind::Unprocessable.because("a topic has 100 subscriptions at most")
        }
        Refusal::FanOut => ProblemKind::Overloaded
            .because("the topic has more subscriptions than a moment ago: try again")
            .retry_after_ms(100),
        Refusal::NoJob => {
            ProblemKind::NotFound.because(format!("the queue `{name}` has no such redrive"))
        }
        Refusal::SameQueue => {
            ProblemKind::Unprocessable.because("at targetQueue: it is the queue itself")
        }
        Refusal::Inflight => ProblemKind::QuotaExceeded
            .because("as many messages are being worked on as the queue's maxInflight allows")
            .with("quota", "maxInflight")
            .retry_after_ms(1000),
    }
}
