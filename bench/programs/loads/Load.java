import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.util.Random;

/**
 * 600 MiB of old objects, of which a third is read twice a second, beside short-lived ones. Arguments: MiB, if others;
 * a library to load when the objects are there. With -Dlog=FILE, half of each object is random, and FILE gets a line
 * for each slice of a hundredth of a second: when it began, in seconds since 1970, and how many microseconds it took.
 */
public class Load {
    static final int RUN = 1024;
    static final int SLICES = 50;
    static long sink;

    public static void main(String[] arguments) throws InterruptedException, IOException {
        String name = System.getProperty("log");
        Writer log = name == null ? null : new FileWriter(name);
        Random random = new Random(1);
        int objects = (arguments.length > 0 ? Integer.parseInt(arguments[0]) : 600) * 1024;
        byte[][] old = new byte[objects][];
        for (int i = 0; i < objects; i++) {
            old[i] = new byte[1000];
            if (log != null) {
                byte[] half = new byte[500];
                random.nextBytes(half);
                System.arraycopy(half, 0, old[i], 0, 500);
            }
            old[i][i % 1000] = 1;
        }
        System.gc();
        if (arguments.length > 1) {
            System.load(arguments[1]);
        }
        for (int round = 0; ; round++) {
            for (int slice = 0; slice < SLICES; slice++) {
                long began = System.nanoTime();
                // Of each three runs of objects, the first.
                for (int run = slice * 3 * RUN; run < objects; run += SLICES * 3 * RUN) {
                    for (int i = run; i < Math.min(run + RUN, objects); i++) {
                        sink += old[i][0] + old[i][999];
                    }
                }
                for (int i = 0; i < 200; i++) {
                    sink += new byte[1000].length;
                }
                long took = System.nanoTime() - began;
                if (log != null) {
                    long micros = System.currentTimeMillis() * 1000 - took / 1000;
                    log.write((micros / 1e6) + " " + (took / 1e3) + "\n");
                }
                long left = 10_000_000 - took;
                if (left > 0) {
                    Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
                }
            }
            if (log != null) {
                log.flush();
            }
            if (round == 10) {
                System.out.println("ready");
                System.out.flush();
            }
        }
    }
}
