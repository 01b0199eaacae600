"""The requests and answers that the golden files are made of: one or more for every action."""

URL = "http://localhost:8080/sqs/acme/orders"
FIFO = "http://localhost:8080/sqs/acme/orders.fifo"
ARN = "arn:aws:sqs:us-east-1:acme:dead"
HANDLE = "AQEB/handle+with=signs&more"
TEXT = "a+b=c&d e\r\n\t<x y=\"z\">'é€😀%20</x>"

ATTRIBUTES = {
    "n": {"DataType": "Number.int", "StringValue": "42"},
    "Text.x-y_z": {"DataType": "String", "StringValue": TEXT},
    "blob": {"DataType": "Binary.png", "BinaryValue": b"\x00\x01\xfe\xff"},
}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a9"}}

# Action, input.
REQUESTS = [
    ("AddPermission", {"QueueUrl": URL, "Label": "l", "AWSAccountIds": ["1", "2"],
                       "Actions": ["SendMessage", "*"]}),
    ("CancelMessageMoveTask", {"TaskHandle": HANDLE}),
    ("ChangeMessageVisibility", {"QueueUrl": URL, "ReceiptHandle": HANDLE, "VisibilityTimeout": 0}),
    ("ChangeMessageVisibilityBatch", {"QueueUrl": URL, "Entries": [
        {"Id": "a", "ReceiptHandle": HANDLE, "VisibilityTimeout": 60},
        {"Id": "b", "ReceiptHandle": "h2"}]}),
    ("CreateQueue", {"QueueName": "orders"}),
    ("CreateQueue", {"QueueName": "orders.fifo",
                     "Attributes": {"FifoQueue": "true", "DelaySeconds": "5",
                                    "RedrivePolicy": '{"deadLetterTargetArn":"%s","maxReceiveCount":"3"}' % ARN},
                     "tags": {"team": "a b", "größe": "1"}}),
    ("DeleteMessage", {"QueueUrl": URL, "ReceiptHandle": HANDLE}),
    ("DeleteMessageBatch", {"QueueUrl": URL, "Entries": [
        {"Id": str(n), "ReceiptHandle": "h%d" % n} for n in range(10)]}),
    ("DeleteQueue", {"QueueUrl": URL}),
    ("GetQueueAttributes", {"QueueUrl": URL, "AttributeNames": ["QueueArn", "All"]}),
    ("GetQueueUrl", {"QueueName": "orders", "QueueOwnerAWSAccountId": "acme"}),
    ("ListDeadLetterSourceQueues", {"QueueUrl": URL, "NextToken": "t+/=", "MaxResults": 7}),
    ("ListMessageMoveTasks", {"SourceArn": ARN, "MaxResults": 3}),
    ("ListQueueTags", {"QueueUrl": URL}),
    ("ListQueues", {}),
    ("ListQueues", {"QueueNamePrefix": "or", "NextToken": "t", "MaxResults": 1000}),
    ("PurgeQueue", {"QueueUrl": URL}),
    ("ReceiveMessage", {"QueueUrl": URL}),
    ("ReceiveMessage", {"QueueUrl": FIFO, "AttributeNames": ["All"],
                        "MessageAttributeNames": ["a", "b.*"], "MaxNumberOfMessages": 10,
                        "VisibilityTimeout": 30, "WaitTimeSeconds": 20,
                        "ReceiveRequestAttemptId": "try-1"}),
    ("RemovePermission", {"QueueUrl": URL, "Label": "l"}),
    ("SendMessage", {"QueueUrl": URL, "MessageBody": TEXT, "DelaySeconds": 900,
                     "MessageAttributes": ATTRIBUTES, "MessageSystemAttributes": TRACE}),
    ("SendMessage", {"QueueUrl": FIFO, "MessageBody": "x", "MessageGroupId": "g",
                     "MessageDeduplicationId": "d!\"#$%&'()*+,-./"}),
    ("SendMessageBatch", {"QueueUrl": URL, "Entries": [
        {"Id": "a", "MessageBody": TEXT, "MessageAttributes": ATTRIBUTES},
        {"Id": "b", "MessageBody": "y", "DelaySeconds": 1, "MessageSystemAttributes": TRACE,
         "MessageGroupId": "g", "MessageDeduplicationId": "d"}]}),
    ("SetQueueAttributes", {"QueueUrl": URL, "Attributes": {"VisibilityTimeout": "1", "Policy": ""}}),
    ("StartMessageMoveTask", {"SourceArn": ARN, "DestinationArn": ARN,
                              "MaxNumberOfMessagesPerSecond": 500}),
    ("TagQueue", {"QueueUrl": URL, "Tags": {"a": "1", "b": ""}}),
    ("UntagQueue", {"QueueUrl": URL, "TagKeys": ["a", "b"]}),
]

FAILED = [{"Id": "b", "SenderFault": True, "Code": "InvalidParameterValue", "Message": TEXT}]

# Action, output.
ANSWERS = [
    ("AddPermission", {}),
    ("CancelMessageMoveTask", {"ApproximateNumberOfMessagesMoved": 12345678901}),
    ("ChangeMessageVisibility", {}),
    ("ChangeMessageVisibilityBatch", {"Successful": [{"Id": "a"}], "Failed": FAILED}),
    ("CreateQueue", {"QueueUrl": URL}),
    ("DeleteMessage", {}),
    ("DeleteMessageBatch", {"Successful": [{"Id": "a"}, {"Id": "c"}], "Failed": FAILED}),
    ("DeleteQueue", {}),
    ("GetQueueAttributes", {"Attributes": {"QueueArn": ARN, "Policy": '{"a": "<&>"}'}}),
    ("GetQueueAttributes", {}),
    ("GetQueueUrl", {"QueueUrl": FIFO}),
    ("ListDeadLetterSourceQueues", {"queueUrls": [URL, FIFO], "NextToken": "t"}),
    ("ListMessageMoveTasks", {"Results": [
        {"TaskHandle": "h", "Status": "RUNNING", "SourceArn": ARN, "DestinationArn": ARN,
         "MaxNumberOfMessagesPerSecond": 5, "ApproximateNumberOfMessagesMoved": 1,
         "ApproximateNumberOfMessagesToMove": 2, "StartedTimestamp": 1700000000000},
        {"Status": "FAILED", "FailureReason": "why", "ApproximateNumberOfMessagesMoved": 0,
         "StartedTimestamp": 1600000000000}]}),
    ("ListQueueTags", {"Tags": {"team": "a b", "größe": ""}}),
    ("ListQueues", {"QueueUrls": [URL, FIFO], "NextToken": "t"}),
    ("ListQueues", {}),
    ("PurgeQueue", {}),
    ("ReceiveMessage", {}),
    ("ReceiveMessage", {"Messages": [
        {"MessageId": "m1", "ReceiptHandle": HANDLE, "MD5OfBody": "0" * 32, "Body": TEXT,
         "Attributes": {"SenderId": "s", "SentTimestamp": "1700000000000"},
         "MD5OfMessageAttributes": "1" * 32, "MessageAttributes": ATTRIBUTES},
        {"MessageId": "m2", "ReceiptHandle": "h", "MD5OfBody": "2" * 32, "Body": " "}]}),
    ("RemovePermission", {}),
    ("SendMessage", {"MessageId": "m", "MD5OfMessageBody": "3" * 32,
                     "MD5OfMessageAttributes": "4" * 32, "MD5OfMessageSystemAttributes": "5" * 32,
                     "SequenceNumber": "18849496460467696128"}),
    ("SendMessageBatch", {"Successful": [
        {"Id": "a", "MessageId": "m", "MD5OfMessageBody": "6" * 32,
         "MD5OfMessageAttributes": "7" * 32, "MD5OfMessageSystemAttributes": "8" * 32,
         "SequenceNumber": "1"}], "Failed": FAILED}),
    ("SendMessageBatch", {"Successful": [
        {"Id": "a", "MessageId": "m", "MD5OfMessageBody": "6" * 32}], "Failed": []}),
    ("SetQueueAttributes", {}),
    ("StartMessageMoveTask", {"TaskHandle": "h"}),
    ("TagQueue", {}),
    ("UntagQueue", {}),
]
