package lakeproof;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on S3: a commit is written only if its version is free. Delta's own store looks first and writes then, so a
 * writer that slept in between would replace the commit of the one that followed it.
 *
 * <p>Janino compiles this (log_store.py): no type parameters, no lambdas, no overriding marks.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {

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
        ConditionalPut.write(path.getFileSystem(conf), path, lines.toByteArray());
    }
}
