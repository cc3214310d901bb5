package lakeproof;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** One conditional create on S3A: a key gets these bytes, or keeps what it has. */
public final class ConditionalPut {

    // S3A itself has tried each of them several times.
    private static final int ATTEMPTS = 3;

    private ConditionalPut() {}

    /** Writes the bytes; if the key has others, raises FileAlreadyExistsException, if it has these, that is success. */
    public static void write(FileSystem store, Path path, byte[] bytes) throws IOException {
        IOException failure = null;
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            try {
                put(store, path, bytes);
                return;
            } catch (IOException error) {
                failure = error;
            }
            // Whatever the error says, the object decides: the answer of a put that was made may be lost.
            byte[] stored = get(store, path);
            if (stored != null) {
                if (Arrays.equals(stored, bytes)) {
                    return;
                }
                throw new FileAlreadyExistsException(path.toString());
            }
        }
        throw failure;
    }

    private static void put(FileSystem store, Path path, byte[] bytes) throws IOException {
        FSDataOutputStreamBuilder builder = store.createFile(path);
        builder.overwrite(true);
        builder.must("fs.option.create.conditional.overwrite", true);
        FSDataOutputStream out = (FSDataOutputStream) builder.build();
        out.write(bytes);
        out.close();
    }

    private static byte[] get(FileSystem store, Path path) throws IOException {
        FSDataInputStream in;
        try {
            in = store.open(path);
        } catch (FileNotFoundException error) {
            return null;
        }
        try {
            return in.readAllBytes();
        } catch (FileNotFoundException error) {
            return null;
        } finally {
            in.close();
        }
    }
}
