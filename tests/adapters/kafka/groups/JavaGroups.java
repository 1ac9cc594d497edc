import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * Answers each line of stdin by one of stdout, with what kafka-clients does. Fields are parted by
 * tabs, "-" is an empty one; partitions are written topic:number, lists have commas.
 *
 * <pre>
 * subscription VERSION TOPICS USER_DATA OWNED GENERATION RACK       hex
 * assignment VERSION PARTITIONS USER_DATA                           hex
 * claims NAME PARTITIONS GENERATION                                 hex: an assignor's user data
 * assign NAME TOPIC:COUNT,... (MEMBER INSTANCE TOPICS OWNED GENERATION)...   MEMBER=PARTITIONS ...
 * </pre>
 */
public class JavaGroups {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split("\t")));
        }
    }

    static String answer(String[] fields) {
        switch (fields[0]) {
            case "subscription":
                var wanted = new Subscription(list(fields[2]), bytes(fields[3]), partitions(fields[4]),
                        Integer.parseInt(fields[5]), Optional.ofNullable(text(fields[6])));
                return hex(ConsumerProtocol.serializeSubscription(wanted, Short.parseShort(fields[1])));
            case "assignment":
                var given = new Assignment(partitions(fields[2]), bytes(fields[3]));
                return hex(ConsumerProtocol.serializeAssignment(given, Short.parseShort(fields[1])));
            case "claims":
                return hex(claims(fields[1], partitions(fields[2]), Integer.parseInt(fields[3])));
            default:
                return assign(fields);
        }
    }

    static String assign(String[] fields) {
        var counts = new HashMap<String, Integer>();
        for (TopicPartition each : partitions(fields[2])) counts.put(each.topic(), each.partition());
        var members = new HashMap<String, Subscription>();
        for (int at = 3; at < fields.length; at += 5) {
            int generation = Integer.parseInt(fields[at + 4]);
            List<TopicPartition> owned = partitions(fields[at + 3]);
            boolean isSticky = fields[1].equals("sticky");
            ByteBuffer data = isSticky ? claims("sticky", owned, generation) : null;
            var member = new Subscription(list(fields[at + 2]), data, isSticky ? List.of() : owned,
                    generation, Optional.empty());
            member.setGroupInstanceId(Optional.ofNullable(text(fields[at + 1])));
            members.put(fields[at], member);
        }
        var given = new TreeMap<>(assignor(fields[1]).assign(counts, members));
        var parts = new ArrayList<String>();
        given.forEach((member, tps) -> parts.add(member + "=" + shown(tps)));
        return String.join("\t", parts);
    }

    static AbstractPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    static ByteBuffer claims(String name, List<TopicPartition> owned, int generation) {
        var assignor = assignor(name);
        var group = new ConsumerGroupMetadata("g", generation, "m", Optional.empty());
        assignor.onAssignment(new Assignment(owned), group);
        return assignor.subscriptionUserData(Collections.emptySet());
    }

    static String shown(List<TopicPartition> tps) {
        var texts = new ArrayList<String>();
        for (TopicPartition tp : tps) texts.add(tp.topic() + ":" + tp.partition());
        Collections.sort(texts);
        return texts.isEmpty() ? "-" : String.join(",", texts);
    }

    static String text(String field) {
        return field.equals("-") ? null : field;
    }

    static List<String> list(String field) {
        return field.equals("-") ? List.of() : List.of(field.split(","));
    }

    static ByteBuffer bytes(String field) {
        return field.equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(field));
    }

    static List<TopicPartition> partitions(String field) {
        var found = new ArrayList<TopicPartition>();
        for (String each : list(field)) {
            int colon = each.lastIndexOf(':');
            found.add(new TopicPartition(each.substring(0, colon), Integer.parseInt(each.substring(colon + 1))));
        }
        return found;
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
