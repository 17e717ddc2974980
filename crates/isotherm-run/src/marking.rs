//! Marks from other processes: a socket of each run that records, and its clients.
//!
//! The socket has an abstract name (unix(7)). Such a name is in no file system, and disappears when the process ends in
//! any way. Everybody may connect; if the client runs neither as root nor as the user of the recorder, the connection
//! is closed before a byte is read. The recorder sends the name of its recording, the client answers with the text of a
//! mark, and the recorder sends the result. All of this happens on a separate thread.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isotherm_kernel::{listening_names, peer_user};
use isotherm_record::MarkText;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use thiserror::Error;

use crate::Control;

/// What the names of all sockets begin with. A process ID and a number follow.
const PREFIX: &str = "isotherm/marks/";
/// How many sockets a process has at most.
const MOST: u32 = 64;
/// How long the other end may be silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// The wait after a connection could not be accepted, as with too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of a path, and of an answer.
const LONGEST: u64 = 4096;
/// The answer to a mark that was taken.
const TAKEN: &str = "taken";

/// Takes marks for a run from other processes of the same user, and of root, until it is dropped.
#[derive(Debug)]
pub struct MarkSocket {
    listener: Arc<UnixListener>,
    closed: Arc<AtomicBool>,
}

impl MarkSocket {
    /// Listens for marks of the run that `control` controls and that records to `recording`.
    ///
    /// # Errors
    /// If there can be no socket or no thread.
    pub fn open(recording: &Path, control: Control) -> io::Result<Self> {
        let listener = Arc::new(bind()?);
        let socket = Self { listener: Arc::clone(&listener), closed: Arc::default() };
        let (closed, recording) = (Arc::clone(&socket.closed), whole(recording)?);
        let listen = move || {
            while !closed.load(Ordering::Acquire) {
                match listener.accept() {
                    // A client that goes away harms nobody else.
                    Ok((stream, _)) => drop(serve(stream, &recording, &control)),
                    Err(_) if closed.load(Ordering::Acquire) => {}
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        std::thread::Builder::new().name("marks".into()).spawn(listen)?;
        Ok(socket)
    }
}

impl Drop for MarkSocket {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        // It wakes the thread. Nobody waits for that: a client may be silent for a while.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// A socket with a name that nobody has.
fn bind() -> io::Result<UnixListener> {
    let mut taken = io::ErrorKind::AddrInUse.into();
    for nth in 0..MOST {
        let name = format!("{PREFIX}{}-{nth}", std::process::id());
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
            bound => return bound,
        }
    }
    Err(taken)
}

/// Takes the mark of one client.
fn serve(mut stream: UnixStream, recording: &Path, control: &Control) -> io::Result<()> {
    let peer = peer_user(&stream)?;
    if peer != 0 && peer != geteuid().as_raw() {
        return Ok(());
    }
    set_patience(&stream)?;
    stream.write_all(recording.as_os_str().as_bytes())?;
    stream.write_all(&[0])?;
    let mut text = Vec::new();
    (&mut stream).take(LONGEST).read_to_end(&mut text)?;
    if text.is_empty() {
        // The client looked for another recording.
        return Ok(());
    }
    let answer = match control.lost_recording() {
        Some(why) => format!("it is written no longer: {why}"),
        None => control.mark(text).map_or_else(|refused| refused.to_string(), |()| TAKEN.into()),
    };
    stream.write_all(answer.as_bytes())
}

fn set_patience(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// The path from the root directory, without links, as far as its directory exists.
fn whole(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    Ok(directory.canonicalize().map_or_else(|_| path.clone(), |directory| directory.join(name)))
}

/// Why a recording that is being made did not take a mark.
#[derive(Debug, Error)]
pub enum UnreachedError {
    /// Its recorder did not answer.
    #[error("its recorder does not answer")]
    Silent(#[source] io::Error),
    /// Its recorder refused the mark, for this reason.
    #[error("its recorder refused it: {0}")]
    Refused(String),
}

/// A recording that is being made by a process of this machine, and that takes marks.
#[derive(Debug)]
pub struct RunningRecording {
    path: PathBuf,
    stream: UnixStream,
}

impl RunningRecording {
    /// The recordings that this process may mark: those of its user, and for root those of all users. A recorder that
    /// does not answer within a second is left out.
    ///
    /// # Errors
    /// If it cannot be read which sockets there are.
    pub fn all() -> io::Result<Vec<Self>> {
        let names = listening_names(Path::new("/"), PREFIX)?;
        // Anybody can listen on such a name.
        Ok(names.iter().filter_map(|name| Self::connect(name).ok().flatten()).collect())
    }

    fn connect(name: &str) -> io::Result<Option<Self>> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // It also limits how long a process that accepts nobody holds up the connection.
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        let mut stream = UnixStream::from(socket);
        let user = geteuid();
        if !user.is_root() && peer_user(&stream)? != user.as_raw() {
            return Ok(None);
        }
        set_patience(&stream)?;
        let mut path = Vec::new();
        let mut byte = [0];
        while path.len() as u64 <= LONGEST {
            stream.read_exact(&mut byte)?;
            if byte == [0] {
                return Ok(Some(Self { path: OsString::from_vec(path).into(), stream }));
            }
            path.extend(byte);
        }
        Ok(None)
    }

    /// Where the recording is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is the recording at `path`.
    pub fn is_at(&self, path: &Path) -> bool {
        whole(path).is_ok_and(|path| path == self.path)
    }

    /// Gives this moment of the run a name, as [`Control::mark`] does.
    ///
    /// # Errors
    /// If the recorder refuses it or does not answer.
    pub fn mark(mut self, text: &[u8]) -> Result<(), UnreachedError> {
        // One byte more than is kept shows that the text was cut.
        let text = &text[..text.len().min(MarkText::LONGEST + 1)];
        let answer = self.ask(text).map_err(UnreachedError::Silent)?;
        match &*answer {
            TAKEN => Ok(()),
            "" => Err(UnreachedError::Silent(io::ErrorKind::UnexpectedEof.into())),
            refused => Err(UnreachedError::Refused(refused.into())),
        }
    }

    fn ask(&mut self, text: &[u8]) -> io::Result<String> {
        self.stream.write_all(text)?;
        self.stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        (&mut self.stream).take(LONGEST).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
