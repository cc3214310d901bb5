package lakeproof;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on S3: a commit is written only if its version is free. Delta's own store looks first and writes then, so a
 * writer that slept in between would replace the commit of the one that followed it.
 *
 * <p>Janino compiles this (log_store.py): no type parameters, no lambdas, no overriding marks.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {

    // S3A itself has tried each of them several times.
    private static final int ATTEMPTS = 3;

    public ConditionalLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, conf);
            return;
        }
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.write(((String) actions.next()).getBytes("UTF-8"));
            lines.write('\n');
        }
        byte[] bytes = lines.toByteArray();
        FileSystem store = path.getFileSystem(conf);
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
