"""Messages of standard queues by boto3: what is sent comes back, once it may, until it is deleted."""

import time

import suite
from suite import attributes, bodies, case, delete, equal, fails, md5, queue, receive, sqs


@case
def message_comes_back_with_its_checksums():
    url = queue("plain")
    for body in ("x", "ümlaut ✓ 😀", " spaces ", "a\tb\nc\rd", '{"json": ["<&>\\"]}', "%20+&=", "\ufffd"):
        sent = sqs.send_message(QueueUrl=url, MessageBody=body)
        equal(sent["MD5OfMessageBody"], md5(body))
        assert "MD5OfMessageAttributes" not in sent and "SequenceNumber" not in sent, sent
        [got] = receive(url)
        equal((got["Body"], got["MD5OfBody"], got["MessageId"]), (body, md5(body), sent["MessageId"]))
        assert "Attributes" not in got and "MessageAttributes" not in got, got
        delete(url, got)


@case
def large_message_comes_back_with_its_checksum():
    url = queue("large")
    fails("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x" * 300_000)
    suite.change("large", largeBodies=True)
    equal(attributes(url, "MaximumMessageSize")["MaximumMessageSize"], str(16 << 20))
    shown = {"MaximumMessageSize": str(16 << 20)}
    equal(queue("large", **shown), url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes=shown)
    other = {"MaximumMessageSize": str(8 << 20)}
    fails("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url, Attributes=other)
    for size in (300_000, 5 << 20):
        body = "é" * (size // 2)
        sent = sqs.send_message(QueueUrl=url, MessageBody=body)
        equal(sent["MD5OfMessageBody"], md5(body))
        [got] = receive(url)
        assert got["Body"] == body
        equal(got["MD5OfBody"], md5(body))
        delete(url, got)


@case
def attributes_come_back_as_asked_for():
    url = queue("attributes")
    extra = {
        "text": {"DataType": "String", "StringValue": "ümlaut <&>"},
        "text.1øßä": {"DataType": "String", "StringValue": "x"},
        "text.more": {"DataType": "String.json", "StringValue": "{}"},
        "number": {"DataType": "Number", "StringValue": "-12.50e3"},
        "number-2": {"DataType": "Number.int", "StringValue": "007"},
        "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
        "bytes.png": {"DataType": "Binary.png", "BinaryValue": b"\0"},
    }

    def check(asked, expected):
        sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=extra)
        equal(sent["MD5OfMessageAttributes"], suite.md5_of_attributes(extra))
        [got] = receive(url, MessageAttributeNames=asked)
        chosen = {name: extra[name] for name in expected}
        equal(got.get("MessageAttributes", {}), chosen)
        equal(got.get("MD5OfMessageAttributes"), suite.md5_of_attributes(chosen) if chosen else None)
        delete(url, got)

    check(["All"], extra)
    check([".*"], extra)
    check(["*"], extra)
    check([], [])
    check(["number"], ["number"])
    check(["text.*", "bytes"], ["text", "text.1øßä", "text.more", "bytes"])
    check(["never-there"], [])


@case
def system_attributes_come_back_as_asked_for():
    url = queue("system", VisibilityTimeout="0")
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    before = time.time()
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageSystemAttributes=trace)
    equal(sent["MD5OfMessageSystemAttributes"], suite.md5_of_attributes(trace))
    for count in ("1", "2"):
        [got] = receive(url, AttributeNames=["All"], WaitTimeSeconds=5)
        shown = got["Attributes"]
        equal(shown["ApproximateReceiveCount"], count)
        equal(shown["AWSTraceHeader"], trace["AWSTraceHeader"]["StringValue"])
        assert shown["SenderId"] and suite.KEY not in shown["SenderId"], shown
        for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
            assert before - 5 < int(shown[name]) / 1000 < time.time() + 5, shown
    newer = "MessageSystemAttributeNames"
    if newer in sqs.meta.service_model.shape_for("ReceiveMessageRequest").members:
        [got] = receive(url, **{newer: ["SentTimestamp"]}, WaitTimeSeconds=5)
        equal(got["Attributes"].keys(), {"SentTimestamp"})
    fails("InvalidAttributeName", receive, url=url, AttributeNames=["Nonsense"])


@case
def waiting_receive_gets_what_comes():
    url = queue("waiting")
    started = time.monotonic()
    equal(receive(url, WaitTimeSeconds=1), [])
    assert 0.9 < time.monotonic() - started < 5
    sqs.send_message(QueueUrl=url, MessageBody="late", DelaySeconds=1)
    equal(attributes(url)["ApproximateNumberOfMessagesDelayed"], "1")
    equal(receive(url), [])
    started = time.monotonic()
    got = receive(url, WaitTimeSeconds=20)
    equal(bodies(got), ["late"])
    assert time.monotonic() - started < 10
    delete(url, *got)
    # The queue's own wait, where the call says nothing; the call's, where it does.
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"ReceiveMessageWaitTimeSeconds": "3"})
    started = time.monotonic()
    equal(receive(url), [])
    assert time.monotonic() - started > 2.9
    started = time.monotonic()
    equal(receive(url, WaitTimeSeconds=0), [])
    assert time.monotonic() - started < 2.5
    for arguments in ({"WaitTimeSeconds": 21}, {"VisibilityTimeout": 43201}, {"count": 0}, {"count": 11}):
        fails("InvalidParameterValue", receive, url=url, **arguments)


@case
def delay_of_the_queue_is_that_of_its_messages():
    url = queue("delayed", DelaySeconds="900")
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="now", DelaySeconds=0)
    equal(suite.drain(url), ["now"])
    fails("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x", DelaySeconds=901)
    fails("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x", DelaySeconds=-1)


@case
def visibility_hides_and_shows():
    url = queue("visibility")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [first] = receive(url)
    equal(receive(url), [])
    equal(attributes(url)["ApproximateNumberOfMessagesNotVisible"], "1")
    change = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    sqs.change_message_visibility(**change, VisibilityTimeout=0)
    [second] = receive(url, VisibilityTimeout=3)
    equal(second["MessageId"], first["MessageId"])
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=60)
    equal(receive(url, WaitTimeSeconds=4), [])
    fails("InvalidParameterValue", sqs.change_message_visibility, **change, VisibilityTimeout=43201)
    delete(url, second)
    # Deleting what is gone is no error; a lease that is gone cannot be changed.
    delete(url, second)
    code = "AWS.SimpleQueueService.MessageNotInflight"
    error = fails(code, sqs.change_message_visibility, **change, VisibilityTimeout=5)
    assert isinstance(error, sqs.exceptions.MessageNotInflight), type(error)


@case
def queue_with_too_many_in_flight_is_full_for_who_does_not_wait():
    url = queue("in-flight")
    suite.change("in-flight", maxInflight=1)
    for body in ("a", "b"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    [first] = receive(url, VisibilityTimeout=3)
    error = fails("OverLimit", receive, url=url)
    equal(error.response["ResponseMetadata"]["HTTPStatusCode"], 403)
    equal(receive(url, WaitTimeSeconds=1), [])
    # Who waits gets something when a lease ends: the first again, or what is behind it.
    equal(len(receive(url, WaitTimeSeconds=20)), 1)


@case
def batches_succeed_and_fail_entry_by_entry():
    url = queue("batches")
    extra = {"n": {"DataType": "Number", "StringValue": "1"}}
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[
        {"Id": "good", "MessageBody": "a", "MessageAttributes": extra},
        {"Id": "late", "MessageBody": "b", "DelaySeconds": 901},
        {"Id": "bad-1", "MessageBody": "\u0001"},
        {"Id": "bad-2", "MessageBody": "x", "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "NaN"}}},
        {"Id": "also-good", "MessageBody": "c"},
    ])
    good = {entry["Id"]: entry for entry in answer["Successful"]}
    equal(good.keys(), {"good", "also-good"})
    equal(good["good"]["MD5OfMessageBody"], md5("a"))
    equal(good["good"]["MD5OfMessageAttributes"], suite.md5_of_attributes(extra))
    bad = {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]}
    equal(bad, {
        "late": ("InvalidParameterValue", True),
        "bad-1": ("InvalidMessageContents", True),
        "bad-2": ("InvalidParameterValue", True),
    })
    got = {message["Body"]: message["ReceiptHandle"] for message in receive(url)}
    equal(got.keys(), {"a", "c"})
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[
        {"Id": "a", "ReceiptHandle": got["a"], "VisibilityTimeout": 60},
        {"Id": "long", "ReceiptHandle": got["c"], "VisibilityTimeout": 43201},
        {"Id": "forged", "ReceiptHandle": "AQEBnonsense", "VisibilityTimeout": 60},
    ])
    equal([entry["Id"] for entry in answer["Successful"]], ["a"])
    bad = {entry["Id"]: entry["Code"] for entry in answer["Failed"]}
    equal(bad, {"long": "InvalidParameterValue", "forged": "ReceiptHandleIsInvalid"})
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[
        {"Id": "a", "ReceiptHandle": got["a"]},
        {"Id": "forged", "ReceiptHandle": "AQEBnonsense"},
        {"Id": "c", "ReceiptHandle": got["c"]},
    ])
    equal([entry["Id"] for entry in answer["Successful"]], ["a", "c"])
    equal([(e["Id"], e["Code"], e["SenderFault"]) for e in answer["Failed"]], [("forged", "ReceiptHandleIsInvalid", True)])
    counts = attributes(url)
    equal((counts["ApproximateNumberOfMessages"], counts["ApproximateNumberOfMessagesNotVisible"]), ("0", "0"))


@case
def ten_messages_at_a_time():
    url = queue("tens")
    for batch in range(3):
        entries = [{"Id": str(n), "MessageBody": f"{batch}{n}"} for n in range(10)]
        equal(len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]), 10)
    equal(attributes(url)["ApproximateNumberOfMessages"], "30")
    seen = set()
    while messages := receive(url):
        assert len(messages) <= 10
        seen.update(bodies(messages))
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
        equal(len(sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Successful"]), len(entries))
    equal(len(seen), 30)


@case
def resource_interface_works():
    """The other way to use boto3, with objects."""
    import boto3

    service = boto3.resource("sqs", endpoint_url=suite.ENDPOINT, region_name=suite.REGION,
                             aws_access_key_id=suite.KEY, aws_secret_access_key=suite.KEY)
    made = service.create_queue(QueueName="objects")
    made.send_message(MessageBody="hello")
    [message] = made.receive_messages(MaxNumberOfMessages=10, WaitTimeSeconds=2)
    equal(message.body, "hello")
    message.change_visibility(VisibilityTimeout=10)
    message.delete()
    equal(service.get_queue_by_name(QueueName="objects").url, made.url)
    equal(made.attributes["ApproximateNumberOfMessagesNotVisible"], "0")
    made.delete()


suite.run()
