//! Topics: what is published goes to every subscription, and a subscription is a queue.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::message::Outgoing;
use crate::queue::{Batch, Outcome, Results, fits_in_a_request};
use crate::queues::{NewQueue, Page, QueueMade};

/// The topics of a tenant. From [`Client::topics`].
#[derive(Clone, Debug)]
pub struct Topics {
    client: Client,
}

/// A topic that is there now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TopicMade {
    /// Never used again, even if the name is.
    pub topic_id: String,
    /// As asked for.
    pub name: String,
    /// Whether this call made it.
    #[serde(default)]
    pub created: bool,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TopicInfo {
    /// Never used again, even if the name is.
    pub topic_id: String,
    /// The name.
    pub name: String,
    /// RFC 3339.
    pub created_at: String,
    /// The queues that get what is published.
    pub subscriptions: Vec<Subscription>,
}

/// A queue that gets what is published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Subscription {
    /// Of the queue.
    pub name: String,
    /// Which messages; all when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Value>,
}

/// A message that was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Published {
    /// The same in every subscription.
    pub message_id: String,
    /// Its place in the topic's order.
    pub sequence: u64,
    /// Subscriptions that it goes to.
    pub subscriptions: u32,
}

#[derive(Serialize)]
struct NewSubscription<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<&'a Value>,
    #[serde(flatten)]
    queue: &'a NewQueue,
}

impl Topics {
    pub(crate) fn new(client: Client) -> Topics {
        Topics { client }
    }

    fn one(method: Method, name: &str) -> Call {
        Call::new(method, ["v1", "topics", name])
    }

    /// Makes a topic. One of this name that is there is no error.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn create(&self, name: &str) -> Result<TopicMade, Error> {
        let ask = serde_json::json!({"name": name});
        let call = Call::new(Method::POST, ["v1", "topics"]).json(&ask)?.keyed();
        let (made, created) = self.client.make::<TopicMade>(call).await?;
        Ok(TopicMade { created, ..made })
    }

    /// Looks at a topic.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn get(&self, name: &str) -> Result<TopicInfo, Error> {
        self.client.call(Topics::one(Method::GET, name)).await
    }

    /// All topics, by name, page after page.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn list_all(&self) -> Result<Vec<TopicInfo>, Error> {
        self.all_of(&["v1", "topics"]).await
    }

    /// The subscriptions of a topic, by name, page after page.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn subscriptions(&self, topic: &str) -> Result<Vec<Subscription>, Error> {
        self.all_of(&["v1", "topics", topic, "subscriptions"]).await
    }

    async fn all_of<T: for<'a> Deserialize<'a>>(&self, path: &[&str]) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let query = [("limit", Some("1000".to_owned())), ("cursor", cursor)];
            let call = Call::new(Method::GET, path.iter().copied()).query(&query);
            let page: Page<T> = self.client.call(call).await?;
            all.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// Deletes a topic. The queues of its subscriptions stay, with what is in them.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        self.client.done(Topics::one(Method::DELETE, name)).await
    }

    /// Makes a queue that gets what is published from now on and passes the filter. Again with
    /// another filter changes it.
    ///
    /// # Errors
    /// `not-found` when there is no such topic, `conflict` when the queue is there with other
    /// settings; any other [`Error`].
    pub async fn subscribe(
        &self,
        topic: &str,
        queue: &NewQueue,
        filter: Option<&Value>,
    ) -> Result<QueueMade, Error> {
        let call = Call::new(Method::POST, ["v1", "topics", topic, "subscriptions"]);
        let call = call.json(&NewSubscription { filter, queue })?.keyed();
        let (made, created) = self.client.make::<QueueMade>(call).await?;
        Ok(QueueMade { created, ..made })
    }

    /// A queue gets no more of what is published. It stays, with what is in it.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn unsubscribe(&self, topic: &str, queue: &str) -> Result<(), Error> {
        let path = ["v1", "topics", topic, "subscriptions", queue];
        self.client.done(Call::new(Method::DELETE, path)).await
    }

    /// Publishes a message, and returns when it is on disk and on its way.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`]. After [`Error::Cut`] it may have been published.
    pub async fn publish(&self, topic: &str, message: &Outgoing) -> Result<Published, Error> {
        let call = Call::new(Method::POST, ["v1", "topics", topic, "messages"]);
        self.client.call(call.json(message)?.keyed()).await
    }

    /// Publishes many, in their order, in as many requests as they need. Each is taken or refused by
    /// itself; the results are in the same order.
    ///
    /// # Errors
    /// What befalls a whole request. Of more than one request, those before it were carried out;
    /// their results are lost with the error, so publish in smaller parts where that matters.
    pub async fn publish_batch(
        &self,
        topic: &str,
        messages: &[Outgoing],
    ) -> Result<Vec<Result<Published, Error>>, Error> {
        let mut results = Vec::with_capacity(messages.len());
        let mut rest = messages;
        while !rest.is_empty() {
            let part;
            (part, rest) = rest.split_at(fits_in_a_request(rest));
            let call = Call::new(Method::POST, ["v1", "topics", topic, "messages"]).verb("batch");
            let call = call.json(&Batch { messages: part })?.keyed();
            let answer: Results<Published> = self.client.call(call).await?;
            results.extend(answer.results.into_iter().map(Outcome::into_result));
        }
        Ok(results)
    }
}
