import java.io.PrintStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a consumer group, which tells what happens to it.
 *
 * <p>Arguments: topics with commas, or ^regex; then Kafka's own properties as name=value. It reads until its
 * standard input ends, then leaves the group. Each line on standard output is a JSON object: "event" is
 * "assigned", "revoked" or "lost" with "partitions" [[topic, partition]], "record" with topic, partition and
 * offset, "committed" with "offsets" [[topic, partition, offset]], "refused" with the error of a commit, or
 * "closed". What was read is committed before the next poll, and before partitions are given back.
 */
public final class GroupMember implements ConsumerRebalanceListener {
  private final PrintStream out;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final Map<TopicPartition, OffsetAndMetadata> unsaved = new HashMap<>();

  private GroupMember(PrintStream out, Map<String, Object> properties) {
    this.out = out;
    this.consumer = new KafkaConsumer<>(properties);
  }

  public static void main(String[] arguments) throws Exception {
    var out = System.out;
    System.setOut(System.err); // where the log goes
    var properties = new HashMap<String, Object>();
    properties.put("auto.offset.reset", "earliest");
    properties.put("enable.auto.commit", "false");
    properties.put("key.deserializer", ByteArrayDeserializer.class);
    properties.put("value.deserializer", ByteArrayDeserializer.class);
    for (var each : Arrays.asList(arguments).subList(1, arguments.length)) {
      properties.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
    }
    var member = new GroupMember(out, properties);
    member.subscribe(arguments[0], "consumer".equals(properties.get("group.protocol")));
    member.run();
  }

  private void subscribe(String topics, boolean brokerMatches) {
    if (!topics.startsWith("^")) {
      consumer.subscribe(List.of(topics.split(",")), this);
    } else if (brokerMatches) {
      consumer.subscribe(new SubscriptionPattern(topics), this);
    } else {
      consumer.subscribe(Pattern.compile(topics), this);
    }
  }

  private void run() {
    var waiting = new Thread(this::untilInputEnds);
    waiting.setDaemon(true);
    waiting.start();
    try {
      while (true) {
        poll();
      }
    } catch (WakeupException ending) {
      // the standard input has ended
    }
    consumer.close();
    say("closed", "");
    out.flush();
  }

  private void untilInputEnds() {
    try {
      while (System.in.read() >= 0) {}
    } catch (java.io.IOException gone) {
      // as good as its end
    }
    consumer.wakeup();
  }

  private void poll() {
    for (var record : consumer.poll(Duration.ofMillis(100))) {
      var form = "\"topic\": \"%s\", \"partition\": %d, \"offset\": %d";
      say("record", String.format(form, record.topic(), record.partition(), record.offset()));
      var next = new OffsetAndMetadata(record.offset() + 1);
      unsaved.put(new TopicPartition(record.topic(), record.partition()), next);
    }
    commit();
    out.flush();
  }

  private void commit() {
    if (unsaved.isEmpty()) {
      return;
    }
    try {
      consumer.commitSync(unsaved);
      say("committed", "\"offsets\": " + offsets());
      unsaved.clear();
    } catch (RebalanceInProgressException later) {
      // the partitions are still held; the next commit has these positions too
    } catch (CommitFailedException gone) {
      unsaved.clear();
      say("refused", "\"error\": \"" + gone.getClass().getSimpleName() + "\"");
    }
  }

  @Override
  public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
    tell("assigned", partitions);
  }

  @Override
  public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
    commit();
    tell("revoked", partitions);
  }

  @Override
  public void onPartitionsLost(Collection<TopicPartition> partitions) {
    partitions.forEach(unsaved::remove);
    tell("lost", partitions);
  }

  private void tell(String event, Collection<TopicPartition> partitions) {
    var places =
        partitions.stream().map(each -> place(each) + "]").collect(Collectors.joining(", "));
    say(event, "\"partitions\": [" + places + "]");
    out.flush();
  }

  private String offsets() {
    return unsaved.entrySet().stream()
        .map(each -> place(each.getKey()) + ", " + each.getValue().offset() + "]")
        .collect(Collectors.joining(", ", "[", "]"));
  }

  private static String place(TopicPartition tp) {
    return "[\"" + tp.topic() + "\", " + tp.partition();
  }

  private void say(String event, String rest) {
    out.print("{\"event\": \"" + event + "\"" + (rest.isEmpty() ? "" : ", " + rest) + "}\n");
  }
}
