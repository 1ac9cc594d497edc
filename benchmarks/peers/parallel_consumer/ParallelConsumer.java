import com.sun.management.OperatingSystemMXBean;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One contestant: Confluent's Parallel Consumer, KEY order, a handler that sleeps.
 *
 * <p>Arguments: bootstrap servers, topic, group, threads, work in milliseconds, records, warm-up
 * records, and perhaps a topic: then each record is written there in the library's transactions, and is done when that was
 * acknowledged. Prints one JSON line: what `benchmarks.contestant.Measured` has, and rss_mb. Keys are strings, not bytes: the library
 * tells keys apart by equals, which Java arrays do not define by content.
 */
public final class ParallelConsumer {
  private final long workMillis;
  private final long firstTimed;
  private final long last;
  private final AtomicLong done = new AtomicLong();
  private final CountDownLatch finished = new CountDownLatch(1);
  private volatile long began;
  private volatile long warm;
  private volatile long cpuAtWarm;
  private volatile long ended;

  private ParallelConsumer(long workMillis, long records, long warmup) {
    this.workMillis = workMillis;
    this.firstTimed = warmup;
    this.last = warmup + records;
  }

  public static void main(String[] arguments) throws Exception {
    var contestant =
        new ParallelConsumer(
            Long.parseLong(arguments[4]),
            Long.parseLong(arguments[5]),
            Long.parseLong(arguments[6]));
    var target = arguments.length > 7 ? arguments[7] : null;
    var options =
        ParallelConsumerOptions.<String, byte[]>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(Integer.parseInt(arguments[3]))
            .consumer(consumer(arguments[0], arguments[2]));
    if (target != null) {
      options
          .commitMode(CommitMode.PERIODIC_TRANSACTIONAL_PRODUCER)
          .allowEagerProcessingDuringTransactionCommit(true)
          .producer(producer(arguments[0], arguments[2]));
    }
    var processor = ParallelStreamProcessor.createEosStreamProcessor(options.build());
    processor.subscribe(List.of(arguments[1]));
    if (target == null) {
      processor.poll(context -> contestant.handle());
    } else {
      processor.pollAndProduce(
          context ->
              new ProducerRecord<>(
                  target, context.getSingleConsumerRecord().key(), context.getSingleConsumerRecord().value()),
          written -> contestant.handle());
    }
    contestant.finished.await();
    contestant.report();
    System.exit(0); // not close(): it would wait for thousands of records that nobody counts
  }

  private static KafkaConsumer<String, byte[]> consumer(String servers, String group) {
    return new KafkaConsumer<>(
        Map.of(
            "bootstrap.servers", servers,
            "group.id", group,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class));
  }

  private static KafkaProducer<String, byte[]> producer(String servers, String group) {
    return new KafkaProducer<>(
        Map.of(
            "bootstrap.servers", servers,
            "transactional.id", group,
            "linger.ms", "5",
            "key.serializer", StringSerializer.class,
            "value.serializer", ByteArraySerializer.class));
  }

  private void handle() {
    if (workMillis > 0) {
      try {
        Thread.sleep(workMillis);
      } catch (InterruptedException stopping) {
        Thread.currentThread().interrupt();
      }
    }
    long count = done.getAndIncrement();
    if (count == 0) {
      began = System.nanoTime();
    } else if (count == firstTimed) {
      warm = System.nanoTime();
      cpuAtWarm = cpuNanos();
    } else if (count == last) {
      ended = System.nanoTime();
      finished.countDown();
    }
  }

  private void report() throws Exception {
    var line =
        "{\"records\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f,"
            + " \"warmup\": %d, \"warmup_seconds\": %.6f, \"rss_mb\": %s}%n";
    System.out.printf(
        line,
        last - firstTimed,
        (ended - warm) / 1e9,
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
