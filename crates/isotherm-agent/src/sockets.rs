//! The sockets that the daemon listens on: those that systemd hands over (`LISTEN_FDS`), else those of the
//! configuration.

use std::io;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};

use crate::config::Settings;
use crate::server;

/// The sockets of the daemon. Each wakes the runtime in which they were opened.
pub struct Sockets {
    /// For all operations.
    pub control: Vec<UnixListener>,
    /// For metrics alone.
    pub metrics: Vec<TcpListener>,
    /// For the live page.
    pub page: Option<TcpListener>,
    /// The path of the control socket, if the daemon has made it and is to remove it.
    pub own: Option<PathBuf>,
}

/// Why there is no socket.
#[derive(Debug, Error)]
pub enum SocketError {
    /// A socket of the configuration cannot be opened.
    #[error("the socket {0} cannot be opened")]
    Open(String, #[source] io::Error),
    /// systemd has handed over something else.
    #[error(
        "descriptor {0} of systemd is neither a Unix nor a TCP socket that listens (in the .socket unit, use \
         ListenStream= with a path or an address)"
    )]
    NoListener(usize),
    /// A socket of systemd cannot be used.
    #[error("descriptor {0} of systemd cannot be used")]
    Unusable(usize, #[source] io::Error),
}

/// The number of the first descriptor that systemd hands over.
const FIRST: usize = 3;

impl Sockets {
    /// Opens them. It is called in a runtime, and before other threads are there, because it changes the environment.
    ///
    /// # Errors
    /// If a socket cannot be opened or used.
    pub fn open(settings: &Settings) -> Result<Self, SocketError> {
        let mut sockets = Self::handed_over(ListenFd::from_env())?;
        if sockets.control.is_empty() {
            let shown = || settings.socket.display().to_string();
            sockets.control.push(server::listen(&settings.socket).map_err(|error| SocketError::Open(shown(), error))?);
            sockets.own = Some(settings.socket.clone());
        }
        if let Some(address) = settings.metrics.listen.as_ref().filter(|_| sockets.metrics.is_empty()) {
            let bound = std::net::TcpListener::bind(address).and_then(listener);
            sockets.metrics.push(bound.map_err(|error| SocketError::Open(address.clone(), error))?);
        }
        if let Some(address) = &settings.page.listen {
            let bound = std::net::TcpListener::bind(address).and_then(listener);
            sockets.page = Some(bound.map_err(|error| SocketError::Open(address.clone(), error))?);
        }
        Ok(sockets)
    }

    /// Takes what systemd hands over.
    fn handed_over(mut descriptors: ListenFd) -> Result<Self, SocketError> {
        let mut sockets = Self { control: Vec::new(), metrics: Vec::new(), page: None, own: None };
        for nth in 0..descriptors.len() {
            let unusable = |error| SocketError::Unusable(FIRST + nth, error);
            if let Ok(Some(control)) = descriptors.take_unix_listener(nth) {
                control.set_nonblocking(true).map_err(unusable)?;
                sockets.control.push(UnixListener::from_std(control).map_err(unusable)?);
            } else if let Ok(Some(metrics)) = descriptors.take_tcp_listener(nth) {
                sockets.metrics.push(listener(metrics).map_err(unusable)?);
            } else {
                return Err(SocketError::NoListener(FIRST + nth));
            }
        }
        Ok(sockets)
    }

    /// Where the control socket is, for the log.
    pub fn shown(&self) -> String {
        self.own.as_deref().map_or_else(|| "that of systemd".into(), |path: &Path| path.display().to_string())
    }
}

fn listener(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}
