//! Permissions: statements in the policy of a queue, one for each label.
//!
//! The rest of a policy is as it was set, and is kept.

use serde_json::{Map, Value, json};

use crate::error::{ErrorKind, SqsError};
use crate::input::AddPermission;
use crate::limits::{ACCOUNT_DIGITS, PERMISSIONS_MAX};

const STATEMENT: &str = "Statement";

/// The policy of the queue of this ARN with one permission more.
///
/// # Errors
/// When the label is taken, there are too many, or an account cannot be one.
pub fn add(policy: Option<&str>, arn: &str, ask: &AddPermission) -> Result<String, SqsError> {
    let is_account =
        |id: &String| id.len() == ACCOUNT_DIGITS && id.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(id) = ask.aws_account_ids.iter().find(|id| !is_account(id)) {
        let shown: String = id.chars().take(100).collect();
        return Err(SqsError::value(shown, "PrincipalId", "Unable to verify."));
    }
    let (mut policy, mut statements) = read(policy).unwrap_or_else(|| {
        let id = format!("{arn}/SQSDefaultPolicy");
        let empty = json!({"Version": "2008-10-17", "Id": id});
        (empty.as_object().cloned().unwrap_or_default(), Vec::new())
    });
    if statements.iter().any(|statement| is_of(statement, &ask.label)) {
        return Err(SqsError::value(&ask.label, "Label", "Already exists."));
    }
    if statements.len() >= PERMISSIONS_MAX {
        let why = format!("A queue has {PERMISSIONS_MAX} permissions at most.");
        return Err(ErrorKind::OverLimit.because(why));
    }
    let root = |id: &String| format!("arn:aws:iam::{id}:root");
    statements.push(json!({
        "Sid": ask.label,
        "Effect": "Allow",
        "Principal": {"AWS": one_or_many(ask.aws_account_ids.iter().map(root))},
        "Action": one_or_many(ask.actions.iter().map(|action| format!("SQS:{action}"))),
        "Resource": arn,
    }));
    policy.insert(STATEMENT.to_owned(), statements.into());
    Ok(Value::from(policy).to_string())
}

/// The policy without the permission of this label; `None` when nothing is left of it.
///
/// # Errors
/// When there is no such permission.
pub fn remove(policy: Option<&str>, label: &str) -> Result<Option<String>, SqsError> {
    let (mut policy, mut statements) = read(policy).unwrap_or_default();
    let before = statements.len();
    statements.retain(|statement| !is_of(statement, label));
    if statements.len() == before {
        let why = "can't find label on existing policy.";
        return Err(SqsError::value(label, "Label", why));
    }
    if statements.is_empty() {
        return Ok(None);
    }
    policy.insert(STATEMENT.to_owned(), statements.into());
    Ok(Some(Value::from(policy).to_string()))
}

/// A policy and its statements, of which a lone one needs no list.
fn read(policy: Option<&str>) -> Option<(Map<String, Value>, Vec<Value>)> {
    let mut policy: Map<String, Value> = serde_json::from_str(policy?).ok()?;
    let statements = match policy.remove(STATEMENT) {
        Some(Value::Array(statements)) => statements,
        None => Vec::new(),
        Some(lone) => vec![lone],
    };
    Some((policy, statements))
}

fn is_of(statement: &Value, label: &str) -> bool {
    statement.get("Sid").and_then(Value::as_str) == Some(label)
}

fn one_or_many(mut texts: impl ExactSizeIterator<Item = String>) -> Value {
    if texts.len() == 1 { texts.next().into() } else { texts.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:sqs:us-east-1:acme:jobs";

    fn permission(label: &str, accounts: &[&str], actions: &[&str]) -> AddPermission {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        AddPermission {
            queue_url: "jobs".to_owned(),
            label: label.to_owned(),
            aws_account_ids: texts(accounts),
            actions: texts(actions),
        }
    }

    #[test]
    fn permissions_are_statements_that_come_and_go() {
        let one = permission("one", &["111111111111"], &["SendMessage"]);
        let two = permission("two", &["111111111111", "222222222222"], &["*", "DeleteMessage"]);
        let policy = add(None, ARN, &one).expect("good");
        let shown: Value = serde_json::from_str(&policy).expect("JSON");
        let first = json!({"Sid": "one", "Effect": "Allow", "Resource": ARN,
            "Principal": {"AWS": "arn:aws:iam::111111111111:root"}, "Action": "SQS:SendMessage"});
        let id = format!("{ARN}/SQSDefaultPolicy");
        assert_eq!(shown, json!({"Version": "2008-10-17", "Id": id, "Statement": [first]}));
        let policy = add(Some(&policy), ARN, &two).expect("good");
        let shown: Value = serde_json::from_str(&policy).expect("JSON");
        assert_eq!(shown["Statement"][1]["Action"], json!(["SQS:*", "SQS:DeleteMessage"]));
        assert_eq!(shown["Statement"][1]["Principal"]["AWS"].as_array().map(Vec::len), Some(2));
        let policy = remove(Some(&policy), "one").expect("it is there").expect("another is left");
        let shown: Value = serde_json::from_str(&policy).expect("JSON");
        assert_eq!(shown["Statement"][0]["Sid"], "two");
        assert_eq!(remove(Some(&policy), "two").expect("it is there"), None);
    }

    #[test]
    fn permissions_join_what_a_policy_has() {
        let set = r#"{"Version":"2012-10-17","Statement":{"Sid":"own","Effect":"Deny"}}"#;
        let one = permission("one", &["111111111111"], &["SendMessage"]);
        let policy = add(Some(set), ARN, &one).expect("good");
        let shown: Value = serde_json::from_str(&policy).expect("JSON");
        assert_eq!(shown["Version"], "2012-10-17");
        assert_eq!(shown["Statement"][0], json!({"Sid": "own", "Effect": "Deny"}));
        assert_eq!(shown["Statement"][1]["Sid"], "one");
    }

    #[test]
    fn permissions_that_cannot_be_are_refused() {
        let one = permission("one", &["111111111111"], &["SendMessage"]);
        let policy = add(None, ARN, &one).expect("good");
        let kind = |refused: Result<String, SqsError>| refused.expect_err("refused").kind;
        assert_eq!(kind(add(Some(&policy), ARN, &one)), ErrorKind::InvalidParameterValue);
        for account in ["", "1", "1111111111111", "11111111111a", "acme"] {
            let wrong = permission("two", &[account], &["SendMessage"]);
            assert_eq!(kind(add(None, ARN, &wrong)), ErrorKind::InvalidParameterValue, "{account}");
        }
        for policy in [None, Some(policy.as_str())] {
            let error = remove(policy, "other").expect_err("it is not there");
            assert_eq!(error.kind, ErrorKind::InvalidParameterValue);
        }
        let mut policy = policy;
        for n in 1..PERMISSIONS_MAX {
            let more = permission(&n.to_string(), &["111111111111"], &["SendMessage"]);
            policy = add(Some(&policy), ARN, &more).expect("there is room");
        }
        let more = permission("more", &["111111111111"], &["SendMessage"]);
        assert_eq!(kind(add(Some(&policy), ARN, &more)), ErrorKind::OverLimit);
    }
}
