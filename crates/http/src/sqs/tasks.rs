//! Message move tasks: the redrive of this dialect.

use queue::{Command, Job, JobState, Reply, StartRedrive};
use sqs::{ErrorKind, Output, SqsError, input, output};

use super::queues::feeds;
use super::{Session, unavailable};
use crate::queues::{redrive, redrive_id};

/// Tasks that are listed when nobody says how many.
const LIST_DEFAULT: usize = 1;

fn no_task() -> SqsError {
    ErrorKind::ResourceNotFound.because("The task does not exist.")
}

fn no_source() -> SqsError {
    ErrorKind::ResourceNotFound.because("The source queue does not exist.")
}

fn count(number: u64) -> Option<i64> {
    Some(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Session<'_> {
    pub(super) async fn start_task(
        &self,
        ask: input::StartMessageMoveTask,
    ) -> Result<Output, SqsError> {
        let queue = self.name_of_arn(&ask.source_arn)?;
        let Some(source) = self.find(&queue).await? else { return Err(no_source()) };
        if self.names(String::new(), None, feeds(&queue), 1).await?.is_empty() {
            let why = "Source queue must be configured as a Dead Letter Queue.";
            return Err(SqsError::value(&ask.source_arn, "SourceArn", why));
        }
        let target = ask.destination_arn.as_deref().map(|arn| self.name_of_arn(arn)).transpose()?;
        if let Some(target) = &target {
            let Some(known) = self.find(target).await? else {
                return Err(ErrorKind::ResourceNotFound.because("The destination does not exist."));
            };
            if known.settings.mode != source.settings.mode {
                let arn = ask.destination_arn.as_deref().unwrap_or_default();
                let why = "The type of the destination queue must match that of the source queue.";
                return Err(SqsError::value(arn, "DestinationArn", why));
            }
        }
        let rate = ask.max_number_of_messages_per_second;
        let per_second = rate.and_then(|rate| u32::try_from(rate).ok());
        let (limit, filter, dry_run) = (None, None, false);
        let name = queue.clone();
        let start = StartRedrive { queue, target, per_second, limit, filter, dry_run };
        let Reply::Redriving { job } = self.submit(&name, &Command::StartRedrive(start)).await?
        else {
            unreachable!("a StartRedrive that is not refused has begun");
        };
        let task_handle = Some(redrive_id(&name, job));
        Ok(output::StartMessageMoveTaskResult { task_handle }.into())
    }

    /// The tasks that a queue remembers, the latest first.
    async fn jobs(&self, name: &str) -> Result<Vec<Job>, SqsError> {
        let definition = self.find(name).await?.ok_or_else(no_source)?;
        let tenant = self.caller.tenant;
        let rows = self.edge.node.rows(queue::place(tenant, name));
        let read = move || queue::jobs(&rows, tenant, definition.number);
        let mut jobs = self.edge.node.read(read).await.map_err(unavailable)?;
        jobs.reverse();
        Ok(jobs)
    }

    pub(super) async fn cancel_task(
        &self,
        ask: input::CancelMessageMoveTask,
    ) -> Result<Output, SqsError> {
        let (name, job) = redrive(&ask.task_handle).ok_or_else(|| {
            let why = "Value for parameter TaskHandle is invalid.";
            ErrorKind::InvalidParameterValue.because(why)
        })?;
        let is_running = |known: &Job| known.number == job && known.state == JobState::Running;
        if !self.jobs(name).await.map_err(|_| no_task())?.iter().any(is_running) {
            return Err(no_task());
        }
        self.submit(name, &Command::CancelRedrive { queue: name.to_owned(), job }).await?;
        let jobs = self.jobs(name).await?;
        let moved = jobs.iter().find(|known| known.number == job).map_or(0, |job| job.arrived);
        let approximate_number_of_messages_moved = count(moved);
        Ok(output::CancelMessageMoveTaskResult { approximate_number_of_messages_moved }.into())
    }

    pub(super) async fn list_tasks(
        &self,
        ask: input::ListMessageMoveTasks,
    ) -> Result<Output, SqsError> {
        let name = self.name_of_arn(&ask.source_arn)?;
        let limit = ask.max_results.and_then(|max| usize::try_from(max).ok());
        let jobs = self.jobs(&name).await?;
        let results = jobs.into_iter().take(limit.unwrap_or(LIST_DEFAULT));
        let results = results.map(|job| self.task(&name, &job)).collect();
        Ok(output::ListMessageMoveTasksResult { results }.into())
    }

    fn task(&self, name: &str, job: &Job) -> output::ListMessageMoveTasksResultEntry {
        let (status, is_running) = match job.state {
            JobState::Running => ("RUNNING", true),
            JobState::Done => ("COMPLETED", false),
            JobState::Cancelled => ("CANCELLED", false),
            JobState::NoQueue | JobState::OtherMode => ("FAILED", false),
        };
        let failure_reason = match job.state {
            JobState::Running | JobState::Done | JobState::Cancelled => None,
            JobState::NoQueue => Some("AWS.SimpleQueueService.NonExistentQueue"),
            JobState::OtherMode => Some("AWS.SimpleQueueService.UnsupportedOperation"),
        };
        let rate = job.asked.per_second.and_then(|rate| i32::try_from(rate).ok());
        output::ListMessageMoveTasksResultEntry {
            // Only what runs can be ended by its handle.
            task_handle: is_running.then(|| redrive_id(name, job.number)),
            status: Some(status.to_owned()),
            source_arn: Some(self.arn(name)),
            destination_arn: job.asked.target.as_deref().map(|target| self.arn(target)),
            max_number_of_messages_per_second: rate,
            approximate_number_of_messages_moved: count(job.arrived),
            approximate_number_of_messages_to_move: count(job.waiting),
            failure_reason: failure_reason.map(str::to_owned),
            started_timestamp: count(job.started_ms),
        }
    }
}
