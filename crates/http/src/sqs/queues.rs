//! What is done to queues.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use queue::{Command, Create, Definition, Mode, Reply, Settings, Update};
use sqs::attributes::{QueueAttributes, RedriveAllowPolicy, RedrivePermission, Setting};
use sqs::select::{QueueAttributeName, QueueAttributeSelection};
use sqs::{ActionName, ErrorKind, Output, SqsError, input, output};

use super::{Session, attributes, unavailable};

/// Tries of a change that meets others.
const UPDATE_TRIES: usize = 10;
/// Names on a page when nobody says how many.
const LIST_DEFAULT: usize = 1000;
/// The note that permissions are statements of.
const POLICY: &str = QueueAttributeName::Policy.as_str();

/// Whether a queue sends its dead letters to this one.
pub(super) fn feeds(dead: &str) -> impl Fn(&Definition) -> bool + use<> {
    let dead = dead.to_owned();
    move |definition| definition.settings.dead_letter_queue.as_deref() == Some(dead.as_str())
}

impl Session<'_> {
    pub(super) async fn create(&self, ask: input::CreateQueue) -> Result<Output, SqsError> {
        let name = &ask.queue_name;
        let before = self.find(name).await?.map(|definition| definition.settings);
        let attributes = self.read(&ask.attributes, before.as_ref())?;
        attributes.check_new(name)?;
        let is_fifo = attributes.fifo_queue == Some(true);
        let mode = if is_fifo { Mode::Fifo } else { Mode::Standard };
        let dead = self.dead_letter_queue(name, mode, &attributes).await?;
        let mut settings = before.clone().unwrap_or_else(|| Settings::usual(mode));
        attributes::apply(&attributes, dead, &mut settings);
        if let Some(before) = before {
            // The same queue, if what was said is what it is. Tags do not count.
            let differs = attributes::differing(&before, &settings, |name| self.arn(name));
            let differs =
                differs.or((before.mode != mode).then_some(QueueAttributeName::FifoQueue));
            return match differs {
                None => Ok(self.made(name)),
                Some(attribute) => Err(ErrorKind::QueueNameExists.because(format!(
                    "A queue already exists with the same name and a different value for \
                     attribute {}",
                    attribute.as_str()
                ))),
            };
        }
        attributes::check_throughput(&settings)?;
        settings.tags = ask.tags;
        if let Some(max_ms) = self.caller.retention_ms_max()
            && attributes.message_retention_period.is_none()
        {
            settings.retention_ms = settings.retention_ms.min(max_ms);
        }
        self.caller.check_new_queue(settings.retention_ms).map_err(super::refusal)?;
        self.submit(name, &Command::Create(Create { queue: name.clone(), settings })).await?;
        Ok(self.made(name))
    }

    /// Reads attributes of a queue that is to be made, or is there: then those that it does not show so.
    fn read(
        &self,
        asked: &BTreeMap<String, String>,
        before: Option<&Settings>,
    ) -> Result<QueueAttributes, SqsError> {
        let Some(before) = before else { return QueueAttributes::parse(asked) };
        let other = attributes::other_than_shown(asked, before, |name| self.arn(name));
        QueueAttributes::parse(&other)
    }

    fn made(&self, name: &str) -> Output {
        output::CreateQueueResult { queue_url: Some(self.url(name)) }.into()
    }

    /// The queue that a redrive policy names, if it may be named.
    async fn dead_letter_queue(
        &self,
        source: &str,
        mode: Mode,
        attributes: &QueueAttributes,
    ) -> Result<Option<String>, SqsError> {
        let Some(Setting::Set(policy)) = &attributes.redrive_policy else { return Ok(None) };
        let wrong = |why: &str| SqsError::value("given", "RedrivePolicy", why);
        let target = self.name_of_arn(&policy.dead_letter_target_arn)?;
        if target == source {
            return Err(wrong("A queue cannot be its own dead letter queue."));
        }
        let Some(definition) = self.find(&target).await? else {
            return Err(wrong("Dead letter target does not exist."));
        };
        if definition.settings.mode != mode {
            return Err(wrong("A FIFO queue and its dead letter queue are both FIFO."));
        }
        let allow = definition.settings.notes.get("RedriveAllowPolicy");
        let allow = allow.map(|text| serde_json::from_str::<RedriveAllowPolicy>(text));
        let allowed = match allow {
            Some(Ok(policy)) => match policy.redrive_permission {
                RedrivePermission::AllowAll => true,
                RedrivePermission::DenyAll => false,
                RedrivePermission::ByQueue => {
                    let arns = policy.source_queue_arns.iter();
                    arns.filter_map(|arn| self.name_of_arn(arn).ok()).any(|name| name == source)
                }
            },
            _ => true,
        };
        if allowed {
            Ok(Some(target))
        } else {
            Err(wrong("The redrive allow policy of the dead letter queue does not allow it."))
        }
    }

    pub(super) async fn delete(&self, ask: input::DeleteQueue) -> Result<Output, SqsError> {
        let name = self.name_of(&ask.queue_url)?;
        self.submit(name, &Command::Delete { queue: name.to_owned() }).await?;
        Ok(Output::Nothing(ActionName::DeleteQueue))
    }

    pub(super) async fn purge(&self, ask: input::PurgeQueue) -> Result<Output, SqsError> {
        let name = self.name_of(&ask.queue_url)?;
        self.submit(name, &Command::Purge { queue: name.to_owned() }).await?;
        Ok(Output::Nothing(ActionName::PurgeQueue))
    }

    pub(super) async fn url_of(&self, ask: input::GetQueueUrl) -> Result<Output, SqsError> {
        let owner = ask.queue_owner_aws_account_id.as_deref();
        let ours = owner.is_none_or(|owner| self.is_ours(owner));
        if !ours || self.find(&ask.queue_name).await?.is_none() {
            return Err(SqsError::no_queue());
        }
        Ok(output::GetQueueUrlResult { queue_url: Some(self.url(&ask.queue_name)) }.into())
    }

    /// Names after `token`'s, at most one more than asked for.
    pub(super) async fn names(
        &self,
        prefix: String,
        token: Option<&str>,
        keep: impl Fn(&Definition) -> bool + Send + 'static,
        limit: usize,
    ) -> Result<Vec<String>, SqsError> {
        let after = match token {
            None => String::new(),
            Some(token) => URL_SAFE_NO_PAD
                .decode(token)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| SqsError::value("given", "NextToken", "It was not given here."))?,
        };
        let (tenant, shards) = (self.caller.tenant, self.edge.node.all_rows());
        let read = move || {
            let mut names = Vec::new();
            for rows in &shards {
                names.extend(queue::names(rows, tenant, &prefix, &after, limit + 1, &keep));
            }
            names.sort();
            names.truncate(limit + 1);
            names
        };
        self.edge.node.read(read).await.map_err(unavailable)
    }

    fn page(&self, mut names: Vec<String>, limit: usize) -> (Vec<String>, Option<String>) {
        let more = names.len() > limit;
        names.truncate(limit);
        let next = names.last().filter(|_| more).map(|name| URL_SAFE_NO_PAD.encode(name));
        (names.iter().map(|name| self.url(name)).collect(), next)
    }

    pub(super) async fn list(&self, ask: input::ListQueues) -> Result<Output, SqsError> {
        let limit = ask.max_results.map_or(Ok(LIST_DEFAULT), usize::try_from);
        let limit = limit.unwrap_or(LIST_DEFAULT);
        let prefix = ask.queue_name_prefix.unwrap_or_default();
        let names = self.names(prefix, ask.next_token.as_deref(), |_| true, limit).await?;
        let (queue_urls, next) = self.page(names, limit);
        // Without a limit of their own, older clients do not expect a token.
        let next_token = next.filter(|_| ask.max_results.is_some());
        Ok(output::ListQueuesResult { queue_urls, next_token }.into())
    }

    pub(super) async fn sources(
        &self,
        ask: input::ListDeadLetterSourceQueues,
    ) -> Result<Output, SqsError> {
        let (name, _) = self.queue(&ask.queue_url).await?;
        let limit = ask.max_results.map_or(Ok(LIST_DEFAULT), usize::try_from);
        let limit = limit.unwrap_or(LIST_DEFAULT);
        let token = ask.next_token.as_deref();
        let names = self.names(String::new(), token, feeds(name), limit).await?;
        let (queue_urls, next_token) = self.page(names, limit);
        Ok(output::ListDeadLetterSourceQueuesResult { queue_urls, next_token }.into())
    }

    pub(super) async fn attributes(
        &self,
        ask: input::GetQueueAttributes,
    ) -> Result<Output, SqsError> {
        let selection = QueueAttributeSelection::parse(&ask.attribute_names)?;
        let name = self.name_of(&ask.queue_url)?.to_owned();
        let tenant = self.caller.tenant;
        let rows = self.edge.node.rows(queue::place(tenant, &name));
        let of = name.clone();
        let described = self.edge.node.read(move || queue::queue(&rows, tenant, &of)).await;
        let described = described.map_err(unavailable)?;
        let described = described.ok_or_else(SqsError::no_queue)?;
        let attributes = attributes::shown(&selection, &name, &described, |name| self.arn(name));
        Ok(output::GetQueueAttributesResult { attributes }.into())
    }

    /// Changes a queue's settings, whoever else does.
    async fn change(
        &self,
        url: &str,
        mut change: impl FnMut(&mut Settings) -> Result<(), SqsError>,
    ) -> Result<(), SqsError> {
        let mut last = super::refused(queue::Refusal::Version);
        for _ in 0..UPDATE_TRIES {
            let (name, definition) = self.queue(url).await?;
            let mut settings = definition.settings;
            change(&mut settings)?;
            let version = definition.version;
            let update = Update { queue: name.to_owned(), version, settings };
            match self.submit(name, &Command::Update(update)).await {
                Ok(Reply::Updated) => return Ok(()),
                Ok(other) => unreachable!("an Update is answered with {other:?}"),
                Err(error) if error.kind == ErrorKind::ServiceUnavailable => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    pub(super) async fn set_attributes(
        &self,
        ask: input::SetQueueAttributes,
    ) -> Result<Output, SqsError> {
        let (name, definition) = self.queue(&ask.queue_url).await?;
        let attributes = self.read(&ask.attributes, Some(&definition.settings))?;
        attributes.check_change()?;
        let mode = definition.settings.mode;
        if mode == Mode::Standard {
            attributes.check_standard()?;
        }
        let dead = self.dead_letter_queue(name, mode, &attributes).await?;
        self.change(&ask.queue_url, |settings| {
            let before_ms = settings.retention_ms;
            attributes::apply(&attributes, dead.clone(), settings);
            attributes::check_throughput(settings)?;
            if settings.retention_ms == before_ms {
                return Ok(());
            }
            self.caller.check_retention(settings.retention_ms).map_err(super::refusal)
        })
        .await?;
        Ok(Output::Nothing(ActionName::SetQueueAttributes))
    }

    pub(super) async fn tags(&self, ask: input::ListQueueTags) -> Result<Output, SqsError> {
        let (_, definition) = self.queue(&ask.queue_url).await?;
        Ok(output::ListQueueTagsResult { tags: definition.settings.tags }.into())
    }

    pub(super) async fn tag(&self, ask: input::TagQueue) -> Result<Output, SqsError> {
        self.change(&ask.queue_url, |settings| {
            settings.tags.extend(ask.tags.clone());
            if settings.tags.len() > sqs::limits::TAGS_MAX {
                let why = format!("A queue has {} tags at most.", sqs::limits::TAGS_MAX);
                return Err(SqsError::value("given", "Tags", &why));
            }
            Ok(())
        })
        .await?;
        Ok(Output::Nothing(ActionName::TagQueue))
    }

    pub(super) async fn untag(&self, ask: input::UntagQueue) -> Result<Output, SqsError> {
        self.change(&ask.queue_url, |settings| {
            settings.tags.retain(|key, _| !ask.tag_keys.contains(key));
            Ok(())
        })
        .await?;
        Ok(Output::Nothing(ActionName::UntagQueue))
    }

    /// Shown in the policy, and without effect: scopes of keys say who may do what here.
    pub(super) async fn add_permission(
        &self,
        ask: input::AddPermission,
    ) -> Result<Output, SqsError> {
        let arn = self.arn(self.name_of(&ask.queue_url)?);
        self.change(&ask.queue_url, |settings| {
            let before = settings.notes.get(POLICY).map(String::as_str);
            let after = sqs::policy::add(before, &arn, &ask)?;
            settings.notes.insert(POLICY.to_owned(), after);
            Ok(())
        })
        .await?;
        Ok(Output::Nothing(ActionName::AddPermission))
    }

    pub(super) async fn remove_permission(
        &self,
        ask: input::RemovePermission,
    ) -> Result<Output, SqsError> {
        self.change(&ask.queue_url, |settings| {
            let before = settings.notes.get(POLICY).map(String::as_str);
            match sqs::policy::remove(before, &ask.label)? {
                Some(after) => drop(settings.notes.insert(POLICY.to_owned(), after)),
                None => drop(settings.notes.remove(POLICY)),
            }
            Ok(())
        })
        .await?;
        Ok(Output::Nothing(ActionName::RemovePermission))
    }
}
