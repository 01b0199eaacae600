//! What clients of SQS make of queues.

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

const FIFO: &str = "http://x/sqs/default/jobs.fifo";

impl Server {
    async fn create(&self, name: &str, attributes: Value) -> Answer {
        let ask = json!({"QueueName": name, "Attributes": attributes});
        self.sqs_call("CreateQueue", &ask).await
    }

    async fn set(&self, url: &str, attributes: Value) -> Answer {
        let ask = json!({"QueueUrl": url, "Attributes": attributes});
        self.sqs_call("SetQueueAttributes", &ask).await
    }

    async fn attributes(&self, url: &str) -> Value {
        let ask = json!({"QueueUrl": url, "AttributeNames": ["All"]});
        let shown = self.sqs_call("GetQueueAttributes", &ask).await;
        Server::ok(&shown, 200)["Attributes"].clone()
    }
}

#[tokio::test]
async fn a_queue_is_made_again_with_what_it_shows() {
    let (server, _) = Server::start_product(1).await;
    for (name, attributes) in [("jobs", json!({})), ("jobs.fifo", json!({"FifoQueue": "true"}))] {
        let made = Server::ok(&server.create(name, attributes).await, 200);
        let url = made["QueueUrl"].as_str().expect("a URL");
        let mut shown = server.attributes(url).await;
        let settings = shown.as_object_mut().expect("attributes");
        settings.retain(|name, _| {
            !name.starts_with("Approximate") && !name.ends_with("Timestamp") && name != "QueueArn"
        });
        assert_eq!(Server::ok(&server.create(name, shown).await, 200), made);
    }
    let refused = server.create("jobs", json!({"DelaySeconds": "5"})).await;
    assert_eq!(
        refused.json(),
        json!({"__type": "com.amazonaws.sqs#QueueNameExists", "message": "A queue already exists \
            with the same name and a different value for attribute DelaySeconds"})
    );
    server.stop().await;
}

#[tokio::test]
async fn what_our_own_api_has_set_is_no_mistake_to_who_says_it_again() {
    let (server, _) = Server::start_product(1).await;
    let settings = json!({"name": "jobs", "largeBodies": true, "delaySeconds": 5000,
        "retentionSeconds": 9_000_000, "maxReceiveCount": 5, "deadLetterQueue": "dead"});
    server.make(settings).await;
    let shown = server.attributes("jobs").await;
    assert_eq!(shown["MaximumMessageSize"], "16777216");
    let names = ["MaximumMessageSize", "DelaySeconds", "MessageRetentionPeriod", "RedrivePolicy"];
    for name in names {
        let alone = json!({name: shown[name]});
        Server::ok(&server.create("jobs", alone.clone()).await, 200);
        Server::ok(&server.set("jobs", alone).await, 200);
        assert_eq!(server.attributes("jobs").await[name], shown[name]);
    }
    // What is said with it counts.
    let more = json!({"MaximumMessageSize": "16777216", "VisibilityTimeout": "7"});
    assert_eq!(server.create("jobs", more.clone()).await.status, 400);
    Server::ok(&server.set("jobs", more).await, 200);
    let after = server.attributes("jobs").await;
    assert_eq!(
        (&after["VisibilityTimeout"], &after["MaximumMessageSize"]),
        (&json!("7"), &json!("16777216"))
    );
    let refused = |answer: Answer| {
        let kind = "com.amazonaws.sqs#InvalidAttributeValue";
        assert_eq!((answer.status, &answer.json()["__type"]), (400, &json!(kind)), "{answer:?}");
    };
    for size in ["8388608", "16777217"] {
        refused(server.set("jobs", json!({"MaximumMessageSize": size})).await);
    }
    refused(server.create("another", json!({"MaximumMessageSize": "16777216"})).await);
    server.stop().await;
}

#[tokio::test]
async fn throughput_by_group_needs_deduplication_by_group() {
    let (server, _) = Server::start_product(1).await;
    let refused = |answer: Answer| {
        let kind = "com.amazonaws.sqs#InvalidAttributeValue";
        assert_eq!((answer.status, &answer.json()["__type"]), (400, &json!(kind)), "{answer:?}");
    };
    let by_group = json!({"FifoThroughputLimit": "perMessageGroupId"});
    let alone = json!({"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"});
    refused(server.create("jobs.fifo", alone).await);
    Server::ok(&server.create("jobs.fifo", json!({"FifoQueue": "true"})).await, 200);
    refused(server.set(FIFO, by_group.clone()).await);
    Server::ok(&server.set(FIFO, json!({"DeduplicationScope": "messageGroup"})).await, 200);
    Server::ok(&server.set(FIFO, by_group).await, 200);
    refused(server.set(FIFO, json!({"DeduplicationScope": "queue"})).await);
    assert_eq!(server.attributes(FIFO).await["DeduplicationScope"], "messageGroup");
    server.stop().await;
}

#[tokio::test]
async fn the_way_to_encrypt_that_was_named_last_is_the_one_shown() {
    let (server, _) = Server::start_product(1).await;
    Server::ok(&server.create("jobs", json!({"SqsManagedSseEnabled": "true"})).await, 200);
    Server::ok(&server.set("jobs", json!({"KmsMasterKeyId": "alias/some"})).await, 200);
    let shown = server.attributes("jobs").await;
    assert_eq!(
        (&shown["KmsMasterKeyId"], &shown["SqsManagedSseEnabled"]),
        (&json!("alias/some"), &json!("false"))
    );
    Server::ok(&server.set("jobs", json!({"SqsManagedSseEnabled": "true"})).await, 200);
    let shown = server.attributes("jobs").await;
    assert_eq!(
        (shown.get("KmsMasterKeyId"), &shown["SqsManagedSseEnabled"]),
        (None, &json!("true"))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_queue_may_be_called_by_its_name() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let send = json!({"QueueUrl": "jobs", "MessageBody": "x"});
    Server::ok(&server.sqs_call("SendMessage", &send).await, 200);
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let answer = server.send("POST", "/", form, "Action=ReceiveMessage&QueueUrl=jobs").await;
    assert!(answer.status == 200 && answer.body.contains("<Body>x</Body>"), "{answer:?}");
    let lost = json!({"QueueUrl": "lost", "MessageBody": "x"});
    let refused = server.sqs_call("SendMessage", &lost).await;
    assert_eq!(refused.json()["__type"], "com.amazonaws.sqs#QueueDoesNotExist", "{refused:?}");
    server.stop().await;
}

#[tokio::test]
async fn permissions_are_statements_of_the_policy() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let add = json!({"QueueUrl": "jobs", "Label": "them", "AWSAccountIds": ["123456789012"],
        "Actions": ["SendMessage"]});
    Server::ok(&server.sqs_call("AddPermission", &add).await, 200);
    assert_eq!(server.sqs_call("AddPermission", &add).await.status, 400);
    let shown = server.attributes("jobs").await;
    let policy = shown["Policy"].as_str().expect("a policy");
    let policy: Value = serde_json::from_str(policy).expect("JSON");
    assert_eq!(policy["Statement"][0]["Sid"], "them");
    assert_eq!(policy["Statement"][0]["Resource"], shown["QueueArn"]);
    let remove = json!({"QueueUrl": "jobs", "Label": "them"});
    Server::ok(&server.sqs_call("RemovePermission", &remove).await, 200);
    assert_eq!(server.attributes("jobs").await.get("Policy"), None);
    assert_eq!(server.sqs_call("RemovePermission", &remove).await.status, 400);
    server.stop().await;
}

#[tokio::test]
async fn a_queue_whose_name_has_periods_is_one_like_any_other_but_for_who_makes_it() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs.v2.dead"})).await;
    let settings =
        json!({"name": "jobs.v2", "maxReceiveCount": 5, "deadLetterQueue": "jobs.v2.dead"});
    server.make(settings).await;
    let listed = Server::ok(&server.sqs_call("ListQueues", &json!({})).await, 200);
    let url = "http://x/sqs/default/jobs.v2";
    assert_eq!(listed["QueueUrls"], json!([url, format!("{url}.dead")]));
    let send = json!({"QueueUrl": url, "MessageBody": "x"});
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for (path, queue) in [("/sqs/default/jobs.v2", ""), ("/sqs", "&QueueUrl=jobs.v2")] {
        Server::ok(&server.sqs_call("SendMessage", &send).await, 200);
        let ask = format!("Action=ReceiveMessage{queue}");
        let answer = server.send("POST", path, form, &ask).await;
        assert!(answer.body.contains("<Body>x</Body>"), "{answer:?}");
    }
    // What it shows of itself can be said again, and names it.
    let policy = json!({"RedrivePolicy": server.attributes(url).await["RedrivePolicy"]});
    Server::ok(&server.set(url, policy).await, 200);
    let dead = server.attributes(&format!("{url}.dead")).await["QueueArn"].clone();
    let task = json!({"SourceArn": dead});
    Server::ok(&server.sqs_call("StartMessageMoveTask", &task).await, 200);

    let refused = server.create("jobs.v3", json!({})).await;
    let kind = "com.amazon.coral.service#InvalidParameterValueException";
    assert_eq!((refused.status, &refused.json()["__type"]), (400, &json!(kind)), "{refused:?}");
    server.stop().await;
}
