//! Unix sockets with abstract names (unix(7)): which ones listen, and who is at the other end.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// The flag of a socket that listens, `__SO_ACCEPTCON` of the kernel.
const LISTENS: &str = "00010000";

/// The abstract names that begin with `prefix` and that some process listens on, in this network namespace: from
/// `/proc/net/unix` below `root`. Names with white space are left out.
///
/// # Errors
/// If the file cannot be read.
pub fn listening_names(root: &Path, prefix: &str) -> io::Result<Vec<String>> {
    let text = std::fs::read(root.join("proc/net/unix"))?;
    let name = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // Num, RefCount, Protocol, Flags, Type, St, Inode, Path. An abstract name begins with a zero, shown as @.
        let [_, _, _, LISTENS, _, _, _, path] = fields[..] else { return None };
        path.strip_prefix('@').filter(|name| name.starts_with(prefix)).map(str::to_owned)
    };
    Ok(String::from_utf8_lossy(&text).lines().filter_map(name).collect())
}

/// The effective user ID with which the process at the other end connected, or began to listen (`SO_PEERCRED`).
///
/// # Errors
/// If the kernel does not tell.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, PeerCredentials)?.uid())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn names_that_are_listened_on_are_found() {
        let name = format!("isotherm-test/{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        assert_eq!(listening_names(Path::new("/"), &name).unwrap(), [name.as_str()]);
        let client = UnixStream::connect_addr(&listener.local_addr().unwrap()).unwrap();
        assert_eq!(peer_user(&client).unwrap(), rustix::process::geteuid().as_raw());
        // A connection has the name of the listener, and does not listen.
        let (_connection, _) = listener.accept().unwrap();
        assert_eq!(listening_names(Path::new("/"), &name).unwrap(), [name.as_str()]);
        drop(listener);
        assert!(listening_names(Path::new("/"), &name).unwrap().is_empty());
    }

    #[test]
    fn paths_and_other_names_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
                     0: 00000002 00000000 00010000 0001 01 11 /run/a/1\n\
                     0: 00000002 00000000 00010000 0001 01 12 @a/2\n\
                     0: 00000003 00000000 00000000 0001 03 13 @a/3\n\
                     0: 00000002 00000000 00010000 0001 01 14 @b/4\n\
                     0: 00000002 00000000 00010000 0001 01 15\n";
        std::fs::write(root.path().join("proc/net/unix"), table).unwrap();
        assert_eq!(listening_names(root.path(), "a/").unwrap(), ["a/2"]);
    }
}
