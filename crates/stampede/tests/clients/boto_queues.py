"""Queues by boto3: making, finding, changing, listing, tags, permissions, purging, deleting."""

import json
import time

import suite
from suite import ACCOUNT, REGION, arn, attributes, case, equal, fails, queue, receive, sqs


@case
def queue_is_made_found_and_made_again():
    url = queue("made", VisibilityTimeout="7")
    assert url.startswith(suite.ENDPOINT) and url.endswith(f"/{ACCOUNT}/made"), url
    equal(sqs.get_queue_url(QueueName="made")["QueueUrl"], url)
    found = sqs.get_queue_url(QueueName="made", QueueOwnerAWSAccountId=ACCOUNT)
    equal(found["QueueUrl"], url)
    equal(queue("made", VisibilityTimeout="7"), url)
    equal(queue("made"), url)
    shown = {name: attributes(url)[name] for name in ("DelaySeconds", "MaximumMessageSize", "SqsManagedSseEnabled")}
    equal(queue("made", **shown), url)
    equal(sqs.list_queue_tags(QueueUrl="made").get("Tags", {}), {})
    error = fails("QueueAlreadyExists", queue, name="made", VisibilityTimeout="8")
    assert str(error).endswith("a different value for attribute VisibilityTimeout"), error
    assert isinstance(error, sqs.exceptions.QueueNameExists), type(error)


@case
def attributes_are_those_of_aws():
    url = queue("plain")
    shown = attributes(url)
    now = time.time()
    for name in ("CreatedTimestamp", "LastModifiedTimestamp"):
        assert abs(int(shown.pop(name)) - now) < 60, name
    equal(shown, {
        "QueueArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:plain",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "262144",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": "30",
        "SqsManagedSseEnabled": "false",
    })
    equal(attributes(url, "DelaySeconds", "QueueArn").keys(), {"DelaySeconds", "QueueArn"})
    equal(sqs.get_queue_attributes(QueueUrl=url).get("Attributes", {}), {})


@case
def attributes_change_one_by_one():
    url = queue("changed", DelaySeconds="3", MessageRetentionPeriod="60")
    change = {
        "VisibilityTimeout": "0",
        "MaximumMessageSize": "1024",
        "ReceiveMessageWaitTimeSeconds": "20",
        "Policy": json.dumps({"Version": "2012-10-17", "Statement": []}),
        "KmsMasterKeyId": "alias/some",
        "KmsDataKeyReusePeriodSeconds": "60",
    }
    both = {"KmsMasterKeyId": "alias/some", "SqsManagedSseEnabled": "true"}
    fails("InvalidAttributeName", sqs.set_queue_attributes, QueueUrl=url, Attributes=both)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes=change)
    shown = attributes(url)
    for name, value in {**change, "DelaySeconds": "3", "MessageRetentionPeriod": "60"}.items():
        equal(shown[name], value)
    equal(shown["SqsManagedSseEnabled"], "false")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": "", "KmsMasterKeyId": ""})
    shown = attributes(url)
    assert "Policy" not in shown and "KmsMasterKeyId" not in shown, shown


@case
def attributes_with_bad_values_are_refused():
    url = queue("bad-values")
    for name, value in [
        ("VisibilityTimeout", "43201"),
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "soon"),
        ("DelaySeconds", "901"),
        ("MaximumMessageSize", "1023"),
        ("MessageRetentionPeriod", "59"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("Policy", "no JSON"),
    ]:
        error = fails("InvalidAttributeValue", queue, name="never", **{name: value})
        fails("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={name: value})
    if hasattr(sqs.exceptions, "InvalidAttributeValue"):
        assert isinstance(error, sqs.exceptions.InvalidAttributeValue), type(error)
    for policy in ("{}", "no JSON"):
        fails("InvalidParameterValue", queue, name="never", RedrivePolicy=policy)
    for name in ("Nonsense", "QueueArn", "CreatedTimestamp", "ContentBasedDeduplication"):
        fails("InvalidAttributeName", sqs.set_queue_attributes, QueueUrl=url, Attributes={name: "true"})
    fails("InvalidAttributeName", sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Nonsense"])
    fails("MissingParameter", sqs.create_queue, QueueName="")
    for name in ("a b", "a" * 81, "ä", "not.fifo", "dot.dot"):
        fails("InvalidParameterValue", sqs.create_queue, QueueName=name)
    fails("InvalidParameterValue", queue, name="no-suffix", FifoQueue="true")


@case
def lists_have_prefixes_and_pages():
    urls = [queue(f"list-{n}") for n in range(7)]
    queue("other-list")
    equal(sqs.list_queues(QueueNamePrefix="list-")["QueueUrls"], urls)
    equal(sqs.list_queues(QueueNamePrefix="nothing-").get("QueueUrls", []), [])
    assert set(urls) < set(sqs.list_queues()["QueueUrls"])
    first = sqs.list_queues(QueueNamePrefix="list-", MaxResults=3)
    equal(first["QueueUrls"], urls[:3])
    second = sqs.list_queues(QueueNamePrefix="list-", MaxResults=3, NextToken=first["NextToken"])
    equal(second["QueueUrls"], urls[3:6])
    third = sqs.list_queues(QueueNamePrefix="list-", MaxResults=3, NextToken=second["NextToken"])
    equal((third["QueueUrls"], third.get("NextToken")), (urls[6:], None))
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix="list-", PaginationConfig={"PageSize": 2})
    equal([url for page in pages for url in page["QueueUrls"]], urls)
    fails("InvalidParameterValue", sqs.list_queues, MaxResults=1001)
    fails("InvalidParameterValue", sqs.list_queues, MaxResults=3, NextToken="%%%")


@case
def tags_come_and_go():
    url = sqs.create_queue(QueueName="tagged", tags={"team": "a", "ümlaut": "x=y/z@1+2"})["QueueUrl"]
    equal(sqs.list_queue_tags(QueueUrl=url)["Tags"], {"team": "a", "ümlaut": "x=y/z@1+2"})
    sqs.tag_queue(QueueUrl=url, Tags={"team": "b", "empty": ""})
    sqs.untag_queue(QueueUrl=url, TagKeys=["ümlaut", "never there"])
    equal(sqs.list_queue_tags(QueueUrl=url)["Tags"], {"team": "b", "empty": ""})
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "empty"])
    equal(sqs.list_queue_tags(QueueUrl=url).get("Tags", {}), {})
    fails("InvalidParameterValue", sqs.tag_queue, QueueUrl=url, Tags={"a": "b&c"})
    many = {f"key-{n}": "x" for n in range(51)}
    fails("InvalidParameterValue", sqs.tag_queue, QueueUrl=url, Tags=many)


@case
def permissions_are_statements_of_the_policy():
    url = queue("shared")
    sqs.add_permission(QueueUrl=url, Label="them", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    equal(json.loads(attributes(url, "Policy")["Policy"])["Statement"], [{
        "Sid": "them",
        "Effect": "Allow",
        "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
        "Action": "SQS:SendMessage",
        "Resource": arn(url),
    }])
    fails("InvalidParameterValue", sqs.add_permission, QueueUrl=url, Label="nobody",
          AWSAccountIds=["them"], Actions=["*"])
    fails("InvalidParameterValue", sqs.add_permission, QueueUrl=url, Label="them",
          AWSAccountIds=["123456789012"], Actions=["*"])
    sqs.remove_permission(QueueUrl=url, Label="them")
    assert "Policy" not in attributes(url)
    fails("InvalidParameterValue", sqs.remove_permission, QueueUrl=url, Label="them")


@case
def purge_empties_a_queue_and_delete_removes_it():
    url = queue("short-lived")
    for n in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(n))
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=60)
    leased = receive(url, 1)
    sqs.purge_queue(QueueUrl=url)
    shown = attributes(url)
    counts = [shown[name] for name in shown if name.startswith("ApproximateNumber")]
    equal(counts, ["0", "0", "0"])
    # Its lease is gone with it, and that is no error.
    suite.delete(url, *leased)
    sqs.send_message(QueueUrl=url, MessageBody="new")
    equal(suite.drain(url), ["new"])
    sqs.delete_queue(QueueUrl=url)
    error = fails("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName="short-lived")
    assert isinstance(error, sqs.exceptions.QueueDoesNotExist), type(error)
    # At once, not after a minute as at AWS.
    equal(queue("short-lived"), url)
    equal(suite.drain(url), [])


@case
def dead_letters_say_where_they_come_from():
    dead, url = queue("dead"), queue("alive", VisibilityTimeout="1")
    policy = {"deadLetterTargetArn": arn(dead), "maxReceiveCount": 2}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
    equal(json.loads(attributes(url)["RedrivePolicy"]), policy)
    equal(sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"], [url])
    extra = {"note": {"DataType": "String", "StringValue": "kept"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=extra)
    for attempt in ("1", "2"):
        got = receive(url, AttributeNames=["All"], WaitTimeSeconds=5)
        equal(got[0]["Attributes"]["ApproximateReceiveCount"], attempt)
        assert "DeadLetterQueueSourceArn" not in got[0]["Attributes"]
    letter = receive(dead, WaitTimeSeconds=10, AttributeNames=["All"], MessageAttributeNames=["All"])
    equal(suite.bodies(letter), ["poison"])
    equal(letter[0]["MessageId"], sent["MessageId"])
    equal(letter[0]["Attributes"]["DeadLetterQueueSourceArn"], arn(url))
    equal(letter[0]["MessageAttributes"], extra)
    equal(receive(url), [])
    wrong = {"deadLetterTargetArn": arn(dead) + "-none", "maxReceiveCount": 2}
    for bad in (wrong, {**policy, "maxReceiveCount": 0}, {**policy, "maxReceiveCount": 1001}):
        try:
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(bad)})
        except sqs.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            assert code in ("InvalidParameterValue", "InvalidAttributeValue"), code
        else:
            raise AssertionError(f"{bad} was taken")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in attributes(url)
    equal(sqs.list_dead_letter_source_queues(QueueUrl=dead).get("queueUrls", []), [])


@case
def dead_letter_queue_chooses_its_sources():
    dead, url = queue("choosy"), queue("chosen")
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": [arn(url)]}
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(allow)})
    equal(json.loads(attributes(dead)["RedriveAllowPolicy"]), allow)
    policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": "5"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    fails("InvalidParameterValue", queue, name="not-chosen", RedrivePolicy=policy)
    fails("InvalidParameterValue", queue, name="x.fifo", FifoQueue="true", RedrivePolicy=policy)


@case
def message_move_tasks():
    dead, url = queue("move-dead"), queue("move-alive", VisibilityTimeout="0")
    policy = {"deadLetterTargetArn": arn(dead), "maxReceiveCount": 1}
    fails("ResourceNotFoundException", sqs.start_message_move_task, SourceArn=arn(dead) + "-none")
    # Only a dead-letter queue can be a source.
    fails("InvalidParameterValue", sqs.start_message_move_task, SourceArn=arn(url))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
    for n in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(n))
    deadline = time.monotonic() + 10
    while attributes(dead)["ApproximateNumberOfMessages"] != "5":
        receive(url)
        assert time.monotonic() < deadline, "five letters die"
    task = sqs.start_message_move_task(SourceArn=arn(dead), MaxNumberOfMessagesPerSecond=500)
    assert task["TaskHandle"]
    while True:
        latest = sqs.list_message_move_tasks(SourceArn=arn(dead), MaxResults=1)["Results"][0]
        if latest["Status"] != "RUNNING":
            break
        assert time.monotonic() < deadline, "the task ends"
    equal(latest["Status"], "COMPLETED")
    equal(latest["SourceArn"], arn(dead))
    equal((latest["ApproximateNumberOfMessagesMoved"], latest["ApproximateNumberOfMessagesToMove"]), (5, 5))
    assert "TaskHandle" not in latest, "only a running task has a handle"
    assert abs(latest["StartedTimestamp"] / 1000 - time.time()) < 60
    # Back at their source, as new messages: receive counts begin again.
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "30"})
    back = receive(url, AttributeNames=["All"], WaitTimeSeconds=5)
    assert all(m["Attributes"]["ApproximateReceiveCount"] == "1" for m in back), back
    # To another queue, slowly, and stopped half way.
    other = queue("move-other")
    for n in range(20):
        sqs.send_message(QueueUrl=dead, MessageBody=str(n))
    task = sqs.start_message_move_task(
        SourceArn=arn(dead), DestinationArn=arn(other), MaxNumberOfMessagesPerSecond=1)
    # One at a time for a source.
    fails("InvalidParameterValue", sqs.start_message_move_task,
          SourceArn=arn(dead), DestinationArn=arn(other))
    stopped = sqs.cancel_message_move_task(TaskHandle=task["TaskHandle"])
    assert 0 <= stopped["ApproximateNumberOfMessagesMoved"] < 20
    fails("InvalidParameterValue", sqs.cancel_message_move_task, TaskHandle="foobared")
    fails("ResourceNotFoundException", sqs.cancel_message_move_task, TaskHandle=task["TaskHandle"])


suite.run()
