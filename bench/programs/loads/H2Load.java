import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * The database H2 in memory: a table of rows, and a thread for each processor with transactions on a tenth of them.
 * Each reads eight rows and changes one. Arguments: the number of rows, and a file. It gets a line for each second: the
 * time in milliseconds since 1970, then BUCKET:COUNT for each bucket of latencies that has some.
 */
public class H2Load {
    static final String URL = "jdbc:h2:mem:bench;DB_CLOSE_DELAY=-1";
    static final int READS = 8;
    static AtomicLongArray latencies = new AtomicLongArray(64 * 16);

    /** Of a latency in nanoseconds, the power of two and the next four bits. A bucket is 6 % wide. */
    static int bucket(long nanoseconds) {
        int power = 63 - Long.numberOfLeadingZeros(Math.max(nanoseconds, 16));
        return power * 16 + (int) (nanoseconds >>> (power - 4)) % 16;
    }

    static void fill(int rows) throws SQLException {
        try (Connection connection = DriverManager.getConnection(URL)) {
            connection.createStatement().execute("CREATE TABLE item(id INT PRIMARY KEY, changes INT, body VARCHAR)");
            PreparedStatement insert = connection.prepareStatement("INSERT INTO item VALUES(?, 0, ?)");
            Random random = new Random(1);
            for (int row = 0; row < rows; row++) {
                insert.setInt(1, row);
                insert.setString(2, Long.toHexString(random.nextLong()).repeat(15));
                insert.execute();
            }
        }
    }

    static void work(int seed, int rows) {
        try (Connection connection = DriverManager.getConnection(URL)) {
            connection.setAutoCommit(false);
            PreparedStatement read = connection.prepareStatement("SELECT LENGTH(body) FROM item WHERE id = ?");
            PreparedStatement change =
                connection.prepareStatement("UPDATE item SET changes = changes + 1 WHERE id = ?");
            Random random = new Random(seed);
            int threads = Runtime.getRuntime().availableProcessors();
            while (true) {
                long began = System.nanoTime();
                for (int i = 0; i < READS; i++) {
                    read.setInt(1, random.nextInt(rows / 10));
                    read.executeQuery().next();
                }
                // Threads change different rows: they do not wait for each other.
                change.setInt(1, random.nextInt(rows / 10 / threads) * threads + seed);
                change.execute();
                connection.commit();
                latencies.incrementAndGet(bucket(System.nanoTime() - began));
            }
        } catch (SQLException error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws SQLException, IOException, InterruptedException {
        int rows = Integer.parseInt(arguments[0]);
        fill(rows);
        for (int i = 0; i < Runtime.getRuntime().availableProcessors(); i++) {
            int seed = i;
            new Thread(() -> work(seed, rows)).start();
        }
        try (Writer log = new FileWriter(arguments[1])) {
            while (true) {
                Thread.sleep(1000);
                StringBuilder line = new StringBuilder().append(System.currentTimeMillis());
                for (int i = 0; i < latencies.length(); i++) {
                    long count = latencies.getAndSet(i, 0);
                    if (count > 0) {
                        line.append(" " + i + ":" + count);
                    }
                }
                log.write(line.append("\n").toString());
                log.flush();
            }
        }
    }
}
