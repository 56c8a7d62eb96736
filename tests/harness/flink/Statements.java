import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Flink's SQL in a process of its own, asked by lines on the standard input: words with tabs between them.
 *
 * <p>Each is answered with lines of "row" and then one of "done" or "error". Jobs run in Flink's MiniCluster.
 */
public class Statements {
  private static final long TIMEOUT_S = 60;
  private static final TableEnvironment BATCH =
      TableEnvironment.create(EnvironmentSettings.inBatchMode());
  private static final Map<String, JobClient> JOBS = new HashMap<>();
  private static final List<String> DEFINITIONS = new ArrayList<>();
  private static PrintStream answers;

  public static void main(String[] ignored) throws Exception {
    answers = System.out;
    System.setOut(System.err); // Flink's own lines must not mix with the answers.
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    BATCH.getConfig().getConfiguration().setString("parallelism.default", "1");
    for (String line; (line = lines.readLine()) != null; ) {
      try {
        say("done", answer(line.split("\t", -1)));
      } catch (Throwable error) {
        say("error", causes(error));
      }
    }
    System.exit(0);
  }

  private static String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "define": // a catalog or table, for the jobs too
        BATCH.executeSql(words[1]);
        DEFINITIONS.add(words[1]);
        return "";
      case "ask":
        try (CloseableIterator<Row> rows = BATCH.executeSql(words[1]).collect()) {
          while (rows.hasNext()) {
            say("row", text(rows.next()));
          }
        }
        return "";
      case "start": // name, savepoint or nothing, statement, settings
        JOBS.put(words[1], start(words));
        return "";
      case "state":
        return JOBS.get(words[1]).getJobStatus().get(TIMEOUT_S, TimeUnit.SECONDS).toString();
      case "stop":
        return JOBS.get(words[1])
            .stopWithSavepoint(false, words[2], SavepointFormatType.CANONICAL)
            .get(TIMEOUT_S, TimeUnit.SECONDS);
      case "end": // an error, if the job ended with one
        JOBS.get(words[1]).getJobExecutionResult().get(TIMEOUT_S, TimeUnit.SECONDS);
        return "";
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private static JobClient start(String[] words) throws Exception {
    Configuration settings = new Configuration();
    settings.setString("parallelism.default", "1");
    for (int at = 4; at < words.length; at += 2) {
      settings.setString(words[at], words[at + 1]);
    }
    if (!words[2].isEmpty()) {
      settings.setString("execution.state-recovery.path", words[2]);
    }
    TableEnvironment stream =
        TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
    for (String statement : DEFINITIONS) {
      stream.executeSql(statement);
    }
    return stream.executeSql(words[3]).getJobClient().get();
  }

  // One line: an answer of EXPLAIN has several.
  private static String text(Row row) {
    StringJoiner fields = new StringJoiner("\t");
    for (int at = 0; at < row.getArity(); at++) {
      fields.add(String.valueOf(row.getField(at)).replace("\n", " "));
    }
    return fields.toString();
  }

  private static String causes(Throwable error) {
    StringJoiner causes = new StringJoiner(" <- ");
    for (Throwable at = error; at != null; at = at.getCause()) {
      causes.add(String.valueOf(at));
    }
    return causes.toString().replace('\n', ' ').replace('\t', ' ');
  }

  private static void say(String kind, String text) {
    answers.println(kind + "\t" + text);
    answers.flush();
  }
}
