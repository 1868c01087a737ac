import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * Runs logs of clicks through Flink's own event-time windows; flink_windows.py compiles and calls it.
 *
 * <p>Standard input, fields separated by tabs: a line {@code job kind size slide gap lateness}
 * begins a job, the lines {@code log index at page delay} after it are its clicks in order of
 * arrival. A click with index -1 only moves the watermark, and shows in no answer.
 *
 * <p>Standard output: {@code fired log page start end watermark index,index,...} for each result of
 * a window, in Flink's order, with the clicks that it held and Flink's watermark at that moment;
 * {@code dropped log index} for each click of the late side output.
 */
public final class FlinkWindows {
    private static final int JOBS_AT_ONCE = 20;

    /** A click; a class with public fields, as Flink's serializer wants it. */
    public static final class Click {
        public int log;
        public int index;
        public long at;
        public String page = "";
        public long delay;
    }

    /** Bounded out-of-orderness like Flink's own, but sent after every click instead of by a timer. */
    private static final class AfterEveryClick implements WatermarkGenerator<Click> {
        private long greatest = Long.MIN_VALUE;

        @Override
        public void onEvent(Click click, long at, WatermarkOutput output) {
            greatest = Math.max(greatest, at);
            output.emitWatermark(new Watermark(greatest - click.delay - 1));
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    /** Tells which clicks the window holds. */
    private static final class Contents extends ProcessWindowFunction<Click, String, String, TimeWindow> {
        @Override
        public void process(String key, Context context, Iterable<Click> clicks, Collector<String> out) {
            StringJoiner indices = new StringJoiner(",");
            Click first = null;
            for (Click click : clicks) {
                first = first == null ? click : first;
                indices.add(Integer.toString(click.index));
            }
            if (first.index >= 0) {
                TimeWindow window = context.window();
                out.collect(String.join("\t", "fired", Integer.toString(first.log), first.page,
                        Long.toString(window.getStart()), Long.toString(window.getEnd()),
                        Long.toString(context.currentWatermark()), indices.toString()));
            }
        }
    }

    private record Job(String kind, long size, long slide, long gap, long lateness, List<Click> clicks) {
        WindowAssigner<Object, TimeWindow> assigner() {
            return switch (kind) {
                case "tumbling" -> TumblingEventTimeWindows.of(Duration.ofMillis(size));
                case "sliding" -> SlidingEventTimeWindows.of(Duration.ofMillis(size), Duration.ofMillis(slide));
                case "session" -> EventTimeSessionWindows.withGap(Duration.ofMillis(gap));
                default -> throw new IllegalArgumentException(kind);
            };
        }

        DataStream<String> answers(StreamExecutionEnvironment env) {
            OutputTag<Click> tooLate = new OutputTag<>("too late", TypeInformation.of(Click.class));
            SingleOutputStreamOperator<String> fired = env
                    .fromData(clicks, TypeInformation.of(Click.class))
                    .assignTimestampsAndWatermarks(
                            WatermarkStrategy.<Click>forGenerator(context -> new AfterEveryClick())
                                    .withTimestampAssigner((click, before) -> click.at))
                    .keyBy(click -> click.log + "|" + click.page)
                    .window(assigner())
                    .allowedLateness(Duration.ofMillis(lateness))
                    .sideOutputLateData(tooLate)
                    .process(new Contents());
            return fired.union(fired.getSideOutput(tooLate)
                    .map(click -> "dropped\t" + click.log + "\t" + click.index));
        }
    }

    private static List<Job> read(BufferedReader in) throws IOException {
        List<Job> jobs = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] field = line.split("\t", -1);
            if (field[0].equals("job")) {
                jobs.add(new Job(field[1], Long.parseLong(field[2]), Long.parseLong(field[3]),
                        Long.parseLong(field[4]), Long.parseLong(field[5]), new ArrayList<>()));
            } else {
                Click click = new Click();
                click.log = Integer.parseInt(field[0]);
                click.index = Integer.parseInt(field[1]);
                click.at = Long.parseLong(field[2]);
                click.page = field[3];
                click.delay = Long.parseLong(field[4]);
                jobs.get(jobs.size() - 1).clicks().add(click);
            }
        }
        return jobs;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        List<Job> jobs = read(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        // To start a cluster takes seconds, so many jobs go into one, side by side.
        for (int from = 0; from < jobs.size(); from += JOBS_AT_ONCE) {
            StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
            DataStream<String> answers = null;
            for (Job job : jobs.subList(from, Math.min(jobs.size(), from + JOBS_AT_ONCE))) {
                DataStream<String> more = job.answers(env);
                answers = answers == null ? more : answers.union(more);
            }
            try (CloseableIterator<String> lines = answers.executeAndCollect()) {
                lines.forEachRemaining(out::println);
            }
        }
        out.flush();
    }
}
