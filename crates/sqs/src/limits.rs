//! Every bound that AWS documents and that a request can break on its own.

use std::ops::RangeInclusive;

/// Bytes of a message with its attributes, and of all messages of a batch together, unless their
/// queue says otherwise.
///
/// AWS raised this to 1 MiB in August 2025. Ours is the product's: larger bodies are refused, or
/// go to the archive.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// What `MaximumMessageSize` of a queue can be.
pub const MAXIMUM_MESSAGE_SIZE: RangeInclusive<i64> = 1024..=MESSAGE_BYTES_MAX as i64;
/// Entries of a batch.
pub const BATCH_ENTRIES_MAX: usize = 10;
/// Characters of the id of an entry.
pub const ENTRY_ID_MAX: usize = 80;
/// Characters of the name of a queue, `.fifo` included.
pub const QUEUE_NAME_MAX: usize = 80;
/// How the name of a FIFO queue ends, and no other.
pub const FIFO_SUFFIX: &str = ".fifo";
/// Attributes of a message.
pub const MESSAGE_ATTRIBUTES_MAX: usize = 10;
/// Characters of the name of an attribute.
pub const ATTRIBUTE_NAME_MAX: usize = 256;
/// Characters of the type of an attribute, suffix included.
pub const ATTRIBUTE_TYPE_MAX: usize = 256;
/// Digits of a number that count.
pub const NUMBER_DIGITS_MAX: usize = 38;
/// Characters of ids for deduplication, groups and repeated attempts.
pub const TOKEN_MAX: usize = 128;
/// `DelaySeconds`.
pub const DELAY_SECONDS: RangeInclusive<i64> = 0..=900;
/// `VisibilityTimeout`: 12 hours.
pub const VISIBILITY_SECONDS: RangeInclusive<i64> = 0..=43_200;
/// `WaitTimeSeconds` and `ReceiveMessageWaitTimeSeconds`.
pub const WAIT_SECONDS: RangeInclusive<i64> = 0..=20;
/// `MaxNumberOfMessages`.
pub const RECEIVE_COUNT: RangeInclusive<i64> = 1..=10;
/// `MessageRetentionPeriod`: a minute to 14 days.
pub const RETENTION_SECONDS: RangeInclusive<i64> = 60..=1_209_600;
/// `maxReceiveCount` of a redrive policy.
pub const MAX_RECEIVE_COUNT: RangeInclusive<i64> = 1..=1000;
/// `sourceQueueArns` of a redrive-allow policy.
pub const SOURCE_QUEUES_MAX: usize = 10;
/// `KmsDataKeyReusePeriodSeconds`: a minute to a day.
pub const KMS_REUSE_SECONDS: RangeInclusive<i64> = 60..=86_400;
/// `MaxResults` of lists of queues.
pub const LIST_RESULTS: RangeInclusive<i64> = 1..=1000;
/// `MaxResults` of lists of tasks.
pub const TASK_RESULTS: RangeInclusive<i64> = 1..=10;
/// `MaxNumberOfMessagesPerSecond` of a task.
pub const TASK_RATE: RangeInclusive<i64> = 1..=500;
/// Tags of a queue.
pub const TAGS_MAX: usize = 50;
/// Characters of the key of a tag.
pub const TAG_KEY_MAX: usize = 128;
/// Characters of the value of a tag.
pub const TAG_VALUE_MAX: usize = 256;
/// Characters of the label of a permission.
pub const LABEL_MAX: usize = 80;
/// Permissions of a queue.
pub const PERMISSIONS_MAX: usize = 20;
/// Digits of an account of AWS.
pub const ACCOUNT_DIGITS: usize = 12;
/// Actions of a permission.
pub const PERMISSION_ACTIONS_MAX: usize = 7;
/// How far the clock of a signer may be off, either way.
pub const CLOCK_SKEW_SECONDS: i64 = 15 * 60;
/// `X-Amz-Expires` of a presigned request: up to 7 days.
pub const PRESIGNED_SECONDS: RangeInclusive<i64> = 1..=604_800;
