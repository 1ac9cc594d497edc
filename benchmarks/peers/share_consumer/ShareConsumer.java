import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One contestant: Kafka's own share consumer, which accepts each record of a poll before the next poll, as it demands.
 *
 * <p>Arguments: bootstrap servers, topic, group, records of a poll, records, warm-up records. Acks go with the next
 * poll; the clock stops when the broker has all of them. Prints one JSON line: what
 * `benchmarks.contestant.Measured` has, and rss_mb.
 */
public final class ShareConsumer {
  private final KafkaShareConsumer<byte[], byte[]> consumer;
  private final long firstTimed;
  private final long last;
  private long done;
  private long began;
  private long warm;
  private long cpuAtWarm;

  private ShareConsumer(KafkaShareConsumer<byte[], byte[]> consumer, long records, long warmup) {
    this.consumer = consumer;
    this.firstTimed = warmup;
    this.last = warmup + records;
  }

  public static void main(String[] arguments) throws Exception {
    beginAtTheEarliest(arguments[0], arguments[2]);
    var consumer =
        new KafkaShareConsumer<byte[], byte[]>(
            Map.of(
                "bootstrap.servers", arguments[0],
                "group.id", arguments[2],
                "share.acknowledgement.mode", "explicit",
                "max.poll.records", arguments[3],
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class));
    consumer.subscribe(List.of(arguments[1]));
    var contestant =
        new ShareConsumer(
            consumer, Long.parseLong(arguments[4]), Long.parseLong(arguments[5]));
    while (contestant.done <= contestant.last) {
      contestant.handle(consumer.poll(Duration.ofSeconds(1)));
    }
    for (var failure : consumer.commitSync().values()) {
      if (failure.isPresent()) {
        throw failure.get();
      }
    }
    contestant.report();
    System.exit(0); // not close(): nobody times it
  }

  /** A share group begins at the latest record, unless it was told. */
  private static void beginAtTheEarliest(String servers, String group) throws Exception {
    var setting = new ConfigEntry("share.auto.offset.reset", "earliest");
    var change = new AlterConfigOp(setting, AlterConfigOp.OpType.SET);
    var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
    try (var admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }
  }

  private void handle(ConsumerRecords<byte[], byte[]> records) {
    for (var record : records) {
      consumer.acknowledge(record, AcknowledgeType.ACCEPT);
      if (done == 0) {
        began = System.nanoTime();
      } else if (done == firstTimed) {
        warm = System.nanoTime();
        cpuAtWarm = cpuNanos();
      }
      done++;
    }
  }

  private void report() throws Exception {
    var line =
        "{\"records\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f,"
            + " \"warmup\": %d, \"warmup_seconds\": %.6f, \"rss_mb\": %s}%n";
    System.out.printf(
        line,
        done - 1 - firstTimed,
        (System.nanoTime() - warm) / 1e9,
        (cpuNanos() - cpuAtWarm) / 1e9,
        firstTimed,
        (warm - began) / 1e9,
        peakRssMegabytes());
  }

  private static long cpuNanos() {
    var system = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    return system.getProcessCpuTime();
  }

  private static String peakRssMegabytes() throws Exception {
    var status = Path.of("/proc/self/status");
    if (!Files.exists(status)) {
      return "null";
    }
    for (var line : Files.readAllLines(status)) {
      if (line.startsWith("VmHWM:")) {
        return String.valueOf(Math.round(Long.parseLong(line.replaceAll("\\D", "")) / 1024.0));
      }
    }
    return "null";
  }
}
