package lakeproof;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;

/**
 * The checksum file of a Delta version on S3 as one conditional create. Spark's way writes it under another name and renames
 * it, which is 25 requests on S3A, of which the last puts without a condition.
 *
 * <p>All else (a stream's checkpoints, other stores) goes Spark's way. Janino compiles this, as ConditionalLogStore.
 */
public class ChecksumFiles implements CheckpointFileManager {

    private static final String SETTING = "spark.sql.streaming.checkpointFileManagerClass";

    private final Path place;
    private final Configuration conf;
    private CheckpointFileManager others;

    public ChecksumFiles(Path place, Configuration conf) {
        this.place = place;
        this.conf = conf;
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        String scheme = String.valueOf(path.toUri().getScheme());
        boolean onS3 = scheme.equals("s3a") || scheme.equals("s3");
        boolean checksum = path.getName().endsWith(".crc") && path.getParent().getName().equals("_delta_log");
        if (overwrite || !onS3 || !checksum) {
            return others().createAtomic(path, overwrite);
        }
        return new Checksum(path, conf, new ByteArrayOutputStream());
    }

    public FSDataInputStream open(Path path) {
        return others().open(path);
    }

    public FileStatus[] list(Path path, PathFilter filter) {
        return others().list(path, filter);
    }

    public FileStatus[] list(Path path) {
        return others().list(path);
    }

    public void mkdirs(Path path) {
        others().mkdirs(path);
    }

    public boolean exists(Path path) {
        return others().exists(path);
    }

    public void delete(Path path) {
        others().delete(path);
    }

    public boolean isLocal() {
        return others().isLocal();
    }

    public Path createCheckpointDirectory() {
        return others().createCheckpointDirectory();
    }

    public void close() {
        if (others != null) {
            others.close();
        }
    }

    private synchronized CheckpointFileManager others() {
        if (others == null) {
            Configuration spark = new Configuration(conf);
            spark.unset(SETTING);
            others = CheckpointFileManager$.MODULE$.create(place, spark);
        }
        return others;
    }

    /** The bytes of a checksum file, which appears when it is closed. */
    public static class Checksum extends CheckpointFileManager.CancellableFSDataOutputStream {

        private final Path path;
        private final Configuration conf;
        private final ByteArrayOutputStream bytes;
        private boolean ended;

        public Checksum(Path path, Configuration conf, ByteArrayOutputStream bytes) {
            super(bytes);
            this.path = path;
            this.conf = conf;
            this.bytes = bytes;
        }

        public void cancel() {
            ended = true;
        }

        public void close() throws IOException {
            if (!ended) {
                ended = true;
                ConditionalPut.write(path.getFileSystem(conf), path, bytes.toByteArray());
            }
        }
    }
}
