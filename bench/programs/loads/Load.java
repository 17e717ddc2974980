/**
 * 600 MiB of old objects, of which a third is read twice a second, beside short-lived ones. Arguments: MiB, if others; a
 * library to load when the objects are there.
 */
public class Load {
    static final int RUN = 1024;
    static final int SLICES = 50;
    static long sink;

    public static void main(String[] arguments) throws InterruptedException {
        int objects = (arguments.length > 0 ? Integer.parseInt(arguments[0]) : 600) * 1024;
        byte[][] old = new byte[objects][];
        for (int i = 0; i < objects; i++) {
            old[i] = new byte[1000];
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
                long left = 10_000_000 - (System.nanoTime() - began);
                if (left > 0) {
                    Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
                }
            }
            if (round == 10) {
                System.out.println("ready");
                System.out.flush();
            }
        }
    }
}
