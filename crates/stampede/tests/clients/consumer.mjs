// sqs-consumer takes 20 messages from a queue; one fails at first, and comes again.
// Run as: node consumer.mjs ENDPOINT KEY, with node_modules beside it.

import assert from "node:assert/strict";
import {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  SendMessageBatchCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const [endpoint, key] = process.argv.slice(2);
const sqs = new SQSClient({
  endpoint,
  region: "eu-central-1",
  credentials: { accessKeyId: key, secretAccessKey: key },
});

const { QueueUrl: queueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "node" }));
const bodies = Array.from({ length: 20 }, (_, n) => `message ${n} ✓`);
for (const from of [0, 10]) {
  // The SDK compares the checksums of the bodies itself, here and when it receives.
  const sent = await sqs.send(
    new SendMessageBatchCommand({
      QueueUrl: queueUrl,
      Entries: bodies.slice(from, from + 10).map((MessageBody, n) => ({
        Id: `${n}`,
        MessageBody,
        MessageAttributes: { n: { DataType: "Number", StringValue: `${from + n}` } },
      })),
    }),
  );
  assert.equal(sent.Successful.length, 10);
}

const tried = new Map();
const errors = [];
const consumer = Consumer.create({
  queueUrl,
  sqs,
  batchSize: 10,
  waitTimeSeconds: 5,
  visibilityTimeout: 30,
  terminateVisibilityTimeout: true,
  messageAttributeNames: ["All"],
  messageSystemAttributeNames: ["ApproximateReceiveCount"],
  handleMessage: async (message) => {
    const n = Number(message.MessageAttributes.n.StringValue);
    assert.equal(message.Body, bodies[n]);
    const count = (tried.get(n) ?? 0) + 1;
    tried.set(n, count);
    assert.equal(message.Attributes.ApproximateReceiveCount, `${count}`);
    if (n === 7 && count === 1) throw new Error("seven fails once");
    return message;
  },
});
consumer.on("error", (error) => errors.push(error));
consumer.on("timeout_error", (error) => errors.push(error));
const failures = [];
consumer.on("processing_error", (error) => failures.push(error.message));
let processed = 0;
const done = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error(`only ${processed} were processed`)), 60_000).unref();
  consumer.on("message_processed", () => {
    processed += 1;
    if (processed === 20) resolve();
  });
});
consumer.start();
await done;
const stopped = new Promise((resolve) => consumer.on("stopped", resolve));
consumer.stop();
await stopped;

assert.deepEqual(errors, []);
assert.equal(failures.length, 1, failures.join("\n"));
assert.equal(tried.size, 20);
assert.equal(tried.get(7), 2);
// The last delete may still be on its way when the consumer says that it has stopped.
for (let left = 50; ; left -= 1) {
  const { Attributes: shown } = await sqs.send(
    new GetQueueAttributesCommand({ QueueUrl: queueUrl, AttributeNames: ["All"] }),
  );
  const counts = [shown.ApproximateNumberOfMessages, shown.ApproximateNumberOfMessagesNotVisible];
  if (counts.every((count) => count === "0")) break;
  assert.ok(left > 0, `messages are left: ${counts}`);
  await new Promise((resolve) => setTimeout(resolve, 100));
}
console.log("ok");
