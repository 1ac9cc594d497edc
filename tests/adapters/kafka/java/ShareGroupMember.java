import java.io.PrintStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a share group, which accepts what it reads, and tells of it.
 *
 * <p>Arguments: topics with commas; then Kafka's own properties as name=value. It reads until its standard input
 * ends, then leaves the group. Each line on standard output is a JSON object: "event" is "record" with topic,
 * partition and offset, or "closed".
 */
public final class ShareGroupMember {
  private final PrintStream out;
  private final KafkaShareConsumer<byte[], byte[]> consumer;

  private ShareGroupMember(PrintStream out, Map<String, Object> properties) {
    this.out = out;
    this.consumer = new KafkaShareConsumer<>(properties);
  }

  public static void main(String[] arguments) throws Exception {
    var out = System.out;
    System.setOut(System.err); // where the log goes
    var properties = new HashMap<String, Object>();
    properties.put("share.acknowledgement.mode", "explicit");
    properties.put("key.deserializer", ByteArrayDeserializer.class);
    properties.put("value.deserializer", ByteArrayDeserializer.class);
    for (var each : Arrays.asList(arguments).subList(1, arguments.length)) {
      properties.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
    }
    var member = new ShareGroupMember(out, properties);
    member.consumer.subscribe(List.of(arguments[0].split(",")));
    member.run();
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
    out.print("{\"event\": \"closed\"}\n");
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
    var form = "{\"event\": \"record\", \"topic\": \"%s\", \"partition\": %d, \"offset\": %d}%n";
    for (var record : consumer.poll(Duration.ofMillis(100))) {
      consumer.acknowledge(record, AcknowledgeType.ACCEPT);
      out.printf(form, record.topic(), record.partition(), record.offset());
    }
    consumer.commitSync();
    out.flush();
  }
}
