"""FIFO queues by boto3: groups in order, duplicates left out, receives that are repeated."""

import hashlib
import json
import time
import uuid

import suite
from suite import arn, attributes, bodies, case, delete, equal, fails, queue, receive, sqs


def fifo(name, **more):
    return queue(f"{name}.fifo", FifoQueue="true", **more)


def send(url, body, group="g", dedup=None):
    """Sends under an id of its own unless told one; None leaves it to the body."""
    more = {} if dedup is None else {"MessageDeduplicationId": dedup}
    return sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **more)


@case
def attributes_of_fifo_queues_are_those_of_aws():
    url = fifo("shown")
    shown = attributes(url)
    equal(shown["FifoQueue"], "true")
    equal(shown["ContentBasedDeduplication"], "false")
    equal(shown["DeduplicationScope"], "queue")
    equal(shown["FifoThroughputLimit"], "perQueue")
    high = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**high, "ContentBasedDeduplication": "true"})
    shown = attributes(url)
    equal({name: shown[name] for name in high}, high)
    equal(shown["ContentBasedDeduplication"], "true")
    # Throughput by group needs duplicates by group.
    for bad in ({"DeduplicationScope": "galaxy"}, {"DeduplicationScope": "queue"}):
        fails("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url, Attributes=bad)
    # What is shown without having been said is what the queue has.
    plain = fifo("defaults")
    said = {name: attributes(plain)[name] for name in [*high, "ContentBasedDeduplication", "SqsManagedSseEnabled"]}
    equal(fifo("defaults", **said), plain)


@case
def groups_keep_their_order_and_wait_for_their_first():
    url = fifo("groups")
    sequences = []
    for n in range(4):
        for group in ("a", "b"):
            sequences.append(send(url, f"{group}{n}", group, str(uuid.uuid4()))["SequenceNumber"])
    assert all(len(s) == 20 and s.isdigit() for s in sequences), sequences
    equal(sorted(set(sequences)), sequences)
    [first] = receive(url, 1, AttributeNames=["All"])
    equal(first["Body"], "a0")
    equal(first["Attributes"]["MessageGroupId"], "a")
    equal(first["Attributes"]["SequenceNumber"], sequences[0])
    assert first["Attributes"]["MessageDeduplicationId"]
    others = receive(url)
    equal(bodies(others), ["b0", "b1", "b2", "b3"])
    equal(receive(url), [])
    delete(url, *others)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    again = receive(url)
    equal(bodies(again), ["a0", "a1", "a2", "a3"])
    # Given to somebody else since: the old receipt does not delete it.
    fails("InvalidParameterValue", sqs.delete_message, QueueUrl=url,
          ReceiptHandle=first["ReceiptHandle"])
    delete(url, *again)
    equal(attributes(url)["ApproximateNumberOfMessagesNotVisible"], "0")


@case
def batch_keeps_its_order():
    url = fifo("batch", ContentBasedDeduplication="true")
    entries = [{"Id": str(n), "MessageBody": f"m{n}", "MessageGroupId": "g"} for n in range(10)]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    numbers = [entry["SequenceNumber"] for entry in answer["Successful"]]
    equal(sorted(numbers), numbers)
    equal(suite.drain(url), [f"m{n}" for n in range(10)])
    # One that cannot be in any order keeps all of them out.
    entries = [{**entry, "MessageBody": "again " + entry["Id"]} for entry in entries]
    del entries[4]["MessageGroupId"]
    fails("MissingParameter", sqs.send_message_batch, QueueUrl=url, Entries=entries)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"ContentBasedDeduplication": "false"})
    entries = [{**entry, "MessageGroupId": "g", "MessageDeduplicationId": entry["Id"]} for entry in entries]
    del entries[4]["MessageDeduplicationId"]
    fails("InvalidParameterValue", sqs.send_message_batch, QueueUrl=url, Entries=entries)
    equal(suite.drain(url), [])


@case
def duplicates_by_id_are_left_out():
    url = fifo("by-id")
    first = send(url, "one", dedup="id-1")
    second = send(url, "another body", dedup="id-1")
    equal(second["MessageId"], first["MessageId"])
    equal(second["SequenceNumber"], first["SequenceNumber"])
    send(url, "one", dedup="id-2")
    send(url, "other group", group="h", dedup="id-1")
    equal(suite.drain(url), ["one", "one"])
    # Deleted, and still remembered.
    send(url, "one", dedup="id-1")
    equal(suite.drain(url), [])


@case
def duplicates_by_content_are_left_out():
    url = fifo("by-content", ContentBasedDeduplication="true")
    extra = {"n": {"DataType": "Number", "StringValue": "1"}}
    send(url, "same")
    sqs.send_message(QueueUrl=url, MessageBody="same", MessageGroupId="g", MessageAttributes=extra)
    send(url, "same", dedup="but-with-an-id")
    send(url, "different")
    got = receive(url, 10, AttributeNames=["All"])
    equal(bodies(got), ["same", "same", "different"])
    # What the body stands for is shown as well.
    ids = [message["Attributes"]["MessageDeduplicationId"] for message in got]
    equal(ids, [hashlib.sha256(b"same").hexdigest(), "but-with-an-id", hashlib.sha256(b"different").hexdigest()])


@case
def duplicates_of_a_group_are_those_of_the_group():
    url = fifo("by-group", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    send(url, "a", "a", "id")
    send(url, "b", "b", "id")
    send(url, "c", "a", "id")
    equal(sorted(suite.drain(url)), ["a", "b"])


@case
def repeated_attempt_gets_the_same_messages():
    url = fifo("attempts", ContentBasedDeduplication="true")
    for n in range(3):
        send(url, str(n))
    attempt = str(uuid.uuid4())
    first = receive(url, 2, ReceiveRequestAttemptId=attempt)
    equal(bodies(first), ["0", "1"])
    again = receive(url, 2, ReceiveRequestAttemptId=attempt)
    equal(again, first)
    equal(receive(url, ReceiveRequestAttemptId=str(uuid.uuid4())), [])
    delete(url, *again)
    # What was deleted is not given again.
    equal(bodies(receive(url, 2, ReceiveRequestAttemptId=attempt, VisibilityTimeout=0)), ["2"])
    fails("InvalidParameterValue", receive, url=url, ReceiveRequestAttemptId="x" * 129)


@case
def repeated_attempt_begins_its_leases_again():
    url = fifo("leases", ContentBasedDeduplication="true", VisibilityTimeout="4")
    send(url, "x")
    first = receive(url, ReceiveRequestAttemptId="a", AttributeNames=["All"])
    time.sleep(2.5)
    equal(receive(url, ReceiveRequestAttemptId="a", AttributeNames=["All"]), first)
    # The first lease would have ended by now, the second has not.
    equal(receive(url, WaitTimeSeconds=2), [])
    # When it has, the attempt is over: the message is received anew, and not under the old receipt.
    [again] = receive(url, WaitTimeSeconds=10, VisibilityTimeout=30)
    repeated = receive(url, ReceiveRequestAttemptId="a", AttributeNames=["All"])
    equal(repeated, [])
    delete(url, again)


@case
def dead_letter_of_a_group_lets_the_next_go():
    dead = fifo("dead")
    policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 1})
    url = fifo("alive", ContentBasedDeduplication="true", VisibilityTimeout="1", RedrivePolicy=policy)
    send(url, "poison")
    send(url, "good")
    equal(bodies(receive(url, 1)), ["poison"])
    equal(bodies(receive(url, 1, WaitTimeSeconds=10, VisibilityTimeout=30)), ["good"])
    [letter] = receive(dead, WaitTimeSeconds=5, AttributeNames=["All"])
    equal(letter["Body"], "poison")
    equal(letter["Attributes"]["DeadLetterQueueSourceArn"], arn(url))
    equal(letter["Attributes"]["MessageGroupId"], "g")


@case
def what_does_not_fit_the_kind_of_queue_is_refused():
    url, plain = fifo("strict"), queue("strict")
    message = {"QueueUrl": url, "MessageBody": "x"}
    fails("MissingParameter", sqs.send_message, **message, MessageDeduplicationId="a")
    fails("InvalidParameterValue", sqs.send_message, **message, MessageGroupId="g")
    fails("InvalidParameterValue", sqs.send_message, **message, MessageGroupId="g",
          MessageDeduplicationId="a", DelaySeconds=1)
    fails("InvalidParameterValue", sqs.send_message, **message, MessageGroupId="ä", MessageDeduplicationId="a")
    fails("InvalidParameterValue", sqs.send_message, **message, MessageGroupId="g", MessageDeduplicationId="x" * 129)
    fails("InvalidParameterValue", sqs.send_message, QueueUrl=plain, MessageBody="x", MessageDeduplicationId="a")
    # Since 2025 a group of a standard queue says who shares it fairly; it comes back.
    sqs.send_message(QueueUrl=plain, MessageBody="x", MessageGroupId="tenant-7")
    [got] = receive(plain, AttributeNames=["MessageGroupId"])
    equal(got["Attributes"], {"MessageGroupId": "tenant-7"})


suite.run()
