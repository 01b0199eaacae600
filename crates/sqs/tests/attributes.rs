//! Attributes of queues, typed.

use std::collections::BTreeMap;

use sqs::attributes::{
    DeduplicationScope, FifoThroughputLimit, RedriveAllowPolicy, RedrivePermission, RedrivePolicy,
    Setting,
};
use sqs::{ErrorKind, QueueAttributes, SqsError};

const ARN: &str = "arn:aws:sqs:us-east-1:acme:dead";

fn parse(attributes: &[(&str, &str)]) -> Result<QueueAttributes, SqsError> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    QueueAttributes::parse(&attributes.iter().map(pair).collect::<BTreeMap<_, _>>())
}

fn refused(name: &str, value: &str) -> ErrorKind {
    parse(&[(name, value)]).expect_err(value).kind
}

#[test]
fn every_attribute_is_read() {
    let redrive = format!(r#"{{"deadLetterTargetArn":"{ARN}","maxReceiveCount":1000}}"#);
    let allow = format!(r#"{{"redrivePermission":"byQueue","sourceQueueArns":["{ARN}"]}}"#);
    let attributes = parse(&[
        ("DelaySeconds", "900"),
        ("MaximumMessageSize", "262144"),
        ("MessageRetentionPeriod", "1209600"),
        ("ReceiveMessageWaitTimeSeconds", "20"),
        ("VisibilityTimeout", "43200"),
        ("RedrivePolicy", &redrive),
        ("RedriveAllowPolicy", &allow),
        ("Policy", "{}"),
        ("FifoQueue", "true"),
        ("ContentBasedDeduplication", "True"),
        ("DeduplicationScope", "messageGroup"),
        ("FifoThroughputLimit", "perMessageGroupId"),
        ("KmsMasterKeyId", "alias/aws/sqs"),
        ("KmsDataKeyReusePeriodSeconds", "86400"),
        ("SqsManagedSseEnabled", "false"),
    ]);
    let expected = QueueAttributes {
        delay_seconds: Some(900),
        maximum_message_size: Some(262_144),
        message_retention_period: Some(1_209_600),
        receive_message_wait_time_seconds: Some(20),
        visibility_timeout: Some(43_200),
        redrive_policy: Some(Setting::Set(RedrivePolicy {
            dead_letter_target_arn: ARN.to_owned(),
            max_receive_count: 1000,
        })),
        redrive_allow_policy: Some(Setting::Set(RedriveAllowPolicy {
            redrive_permission: RedrivePermission::ByQueue,
            source_queue_arns: vec![ARN.to_owned()],
        })),
        policy: Some(Setting::Set("{}".to_owned())),
        fifo_queue: Some(true),
        content_based_deduplication: Some(true),
        deduplication_scope: Some(DeduplicationScope::MessageGroup),
        fifo_throughput_limit: Some(FifoThroughputLimit::PerMessageGroupId),
        kms_master_key_id: Some(Setting::Set("alias/aws/sqs".to_owned())),
        kms_data_key_reuse_period_seconds: Some(86_400),
        sqs_managed_sse_enabled: Some(false),
    };
    assert_eq!(attributes.expect("all good"), expected);
    expected.check_new("q.fifo").expect("goes together");
}

#[test]
fn empty_text_takes_away() {
    let attributes = parse(&[("RedrivePolicy", ""), ("Policy", "")]).expect("good");
    assert_eq!(attributes.redrive_policy, Some(Setting::Cleared));
    assert_eq!(attributes.policy, Some(Setting::Cleared));
    assert_eq!(attributes.redrive_allow_policy, None);
}

#[test]
fn numbers_have_limits() {
    for (name, low, high) in [
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1024, 262_144),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("VisibilityTimeout", 0, 43_200),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ] {
        for good in [low, high] {
            parse(&[(name, &good.to_string())]).expect(name);
        }
        for bad in [low - 1, high + 1] {
            assert_eq!(refused(name, &bad.to_string()), ErrorKind::InvalidAttributeValue, "{name}");
        }
        for bad in ["", "one", "1.0", "99999999999999999999"] {
            assert_eq!(refused(name, bad), ErrorKind::InvalidAttributeValue, "{name} {bad}");
        }
    }
}

#[test]
fn the_count_of_a_redrive_policy_is_a_number_or_text() {
    for count in ["5", "\"5\""] {
        let policy = format!(r#"{{"maxReceiveCount":{count},"deadLetterTargetArn":"{ARN}"}}"#);
        let attributes = parse(&[("RedrivePolicy", &policy)]).expect(count);
        let Some(Setting::Set(policy)) = attributes.redrive_policy else { panic!() };
        assert_eq!(policy.max_receive_count, 5);
        let json = serde_json::to_string(&policy).expect("serializes");
        assert_eq!(json, format!(r#"{{"deadLetterTargetArn":"{ARN}","maxReceiveCount":5}}"#));
    }
    for bad in ["0", "1001", "\"many\"", "-1", "1.5", "null"] {
        let policy = format!(r#"{{"maxReceiveCount":{bad},"deadLetterTargetArn":"{ARN}"}}"#);
        assert_eq!(refused("RedrivePolicy", &policy), ErrorKind::InvalidParameterValue, "{bad}");
    }
    for bad in ["{", "[]", "{}", r#"{"maxReceiveCount":5,"deadLetterTargetArn":"dead"}"#] {
        assert_eq!(refused("RedrivePolicy", bad), ErrorKind::InvalidParameterValue, "{bad}");
    }
}

#[test]
fn a_redrive_policy_is_refused_in_words_for_people() {
    for (policy, reason) in [
        ("{", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        ("{}", "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (
            r#"{"deadLetterTargetArn":"x"}"#,
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ),
        (
            r#"{"deadLetterTargetArn":"x","maxReceiveCount":"0"}"#,
            "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000 both inclusive.",
        ),
    ] {
        let error = parse(&[("RedrivePolicy", policy)]).expect_err(policy);
        let words =
            format!("Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}");
        assert_eq!(error.message, words);
    }
}

#[test]
fn one_way_to_encrypt_is_named_at_a_time() {
    let parse = |managed| parse(&[("KmsMasterKeyId", "k"), ("SqsManagedSseEnabled", managed)]);
    let error = parse("true").expect("alone").check_change().expect_err("together");
    assert_eq!(error.kind, ErrorKind::InvalidAttributeName);
    parse("false").expect("alone").check_new("q").expect("goes together");
}

#[test]
fn other_values_are_refused() {
    for (name, value) in [
        ("Policy", "{"),
        ("Policy", "[]"),
        ("FifoQueue", "yes"),
        ("ContentBasedDeduplication", ""),
        ("DeduplicationScope", "group"),
        ("FifoThroughputLimit", "perqueue"),
        ("RedriveAllowPolicy", r#"{"redrivePermission":"byQueue"}"#),
        ("RedriveAllowPolicy", r#"{"redrivePermission":"someQueues"}"#),
        ("RedriveAllowPolicy", r#"{"redrivePermission":"byQueue","sourceQueueArns":["x"]}"#),
        ("RedriveAllowPolicy", r#"{"redrivePermission":"denyAll","sourceQueueArns":["x"]}"#),
    ] {
        assert_eq!(refused(name, value), ErrorKind::InvalidAttributeValue, "{name} {value}");
    }
}

#[test]
fn what_cannot_be_set_is_unknown() {
    for name in ["QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages", "All", "Colour"] {
        assert_eq!(refused(name, "1"), ErrorKind::InvalidAttributeName, "{name}");
    }
}

#[test]
fn what_only_fifo_queues_have_is_unknown_to_others() {
    for (name, value) in [
        ("ContentBasedDeduplication", "true"),
        ("DeduplicationScope", "queue"),
        ("FifoThroughputLimit", "perQueue"),
    ] {
        let attributes = parse(&[(name, value)]).expect(name);
        let error = attributes.check_new("q").expect_err(name);
        assert_eq!(error.kind, ErrorKind::InvalidAttributeName, "{name}");
        attributes.check_change().expect("the queue may be a FIFO queue");
    }
    let together = [
        ("FifoQueue", "true"),
        ("DeduplicationScope", "queue"),
        ("FifoThroughputLimit", "perMessageGroupId"),
    ];
    let error = parse(&together).expect("alone").check_new("q.fifo").expect_err("together");
    assert_eq!(error.kind, ErrorKind::InvalidAttributeValue);
}
