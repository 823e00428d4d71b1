package org.apache.hadoop.fs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's file system for local files, which sets permissions without starting a program.
 *
 * Hadoop runs `chmod` for every file that it creates, unless its native library is installed.
 */
public class DirectLocalFileSystem extends LocalFileSystem {

    public DirectLocalFileSystem() {
        super(new Raw());
    }

    /** The files without their checksums. */
    public static class Raw extends RawLocalFileSystem {

        private static final PosixFilePermission[] FROM_LOWEST_BIT = {
            PosixFilePermission.OTHERS_EXECUTE, PosixFilePermission.OTHERS_WRITE, PosixFilePermission.OTHERS_READ,
            PosixFilePermission.GROUP_EXECUTE, PosixFilePermission.GROUP_WRITE, PosixFilePermission.GROUP_READ,
            PosixFilePermission.OWNER_EXECUTE, PosixFilePermission.OWNER_WRITE, PosixFilePermission.OWNER_READ,
        };

        private static final int SPECIAL_BITS = 07000; // sticky, setuid and setgid

        public void setPermission(Path path, FsPermission permission) throws IOException {
            java.nio.file.Path file = pathToFile(path).toPath();
            int bits = permission.toShort();
            int before = ((Integer) Files.getAttribute(file, "unix:mode", new LinkOption[0])).intValue();
            if (((bits | before) & SPECIAL_BITS) != 0) {
                super.setPermission(path, permission); // Java cannot set these bits, and would remove them
                return;
            }
            Set permissions = EnumSet.noneOf(PosixFilePermission.class);
            for (int bit = 0; bit < FROM_LOWEST_BIT.length; bit++) {
                if ((bits >> bit & 1) != 0) {
                    permissions.add(FROM_LOWEST_BIT[bit]);
                }
            }
            Files.setPosixFilePermissions(file, permissions);
        }
    }
}
