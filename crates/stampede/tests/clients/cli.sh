# The AWS CLI by hand: `sh cli.sh ENDPOINT`, with the program in $AWS and the key in the environment.
set -eu
sqs() { "$AWS" --endpoint-url "$endpoint" --region eu-central-1 --output text sqs "$@"; }
same() { if [ "$1" != "$2" ]; then echo "got '$1' instead of '$2'" >&2; exit 1; fi; }
endpoint=$1

"$AWS" --version
url=$(sqs create-queue --queue-name by-hand --attributes VisibilityTimeout=45 --query QueueUrl)
same "$url" "$endpoint/sqs/default/by-hand"
same "$(sqs get-queue-url --queue-name by-hand --query QueueUrl)" "$url"
id=$(sqs send-message --queue-url "$url" --message-body "hello ü" \
    --message-attributes '{"n": {"DataType": "Number", "StringValue": "1"}}' --query MessageId)
got=$(sqs receive-message --queue-url "$url" --wait-time-seconds 5 --attribute-names All \
    --message-attribute-names All \
    --query 'Messages[0].[MessageId, Body, Attributes.ApproximateReceiveCount, MessageAttributes.n.StringValue]')
same "$got" "$(printf '%s\thello ü\t1\t1' "$id")"
shown=$(sqs get-queue-attributes --queue-url "$url" --attribute-names All \
    --query 'Attributes.[VisibilityTimeout, ApproximateNumberOfMessagesNotVisible, QueueArn]')
same "$shown" "$(printf '45\t1\tarn:aws:sqs:eu-central-1:default:by-hand')"

# A second message, whose receipt is kept, and deleted with it.
sqs send-message --queue-url "$url" --message-body "again" --query MessageId > /dev/null
receipt=$(sqs receive-message --queue-url "$url" --wait-time-seconds 5 --query 'Messages[0].ReceiptHandle')
sqs delete-message --queue-url "$url" --receipt-handle="$receipt"
shown=$(sqs get-queue-attributes --queue-url "$url" --attribute-names All \
    --query 'Attributes.[ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible]')
same "$shown" "$(printf '0\t1')"

sqs delete-queue --queue-url "$url"
if error=$(sqs get-queue-url --queue-name by-hand 2>&1); then
    echo "a queue that was deleted is found" >&2
    exit 1
fi
case $error in
*"(AWS.SimpleQueueService.NonExistentQueue)"*) echo ok ;;
*) echo "$error" >&2 && exit 1 ;;
esac
