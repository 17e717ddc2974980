//! A client of the control socket, for `isotherm ctl` and for programs.

use std::io;
use std::path::Path;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::api::Problem;

/// Why a request was not answered, or was refused.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No daemon listens there.
    #[error("no daemon answers at {socket} (start it with `isotherm daemon`, or name its socket with --socket)")]
    Unreached {
        /// The socket.
        socket: String,
        /// The error.
        source: io::Error,
    },
    /// The connection ended early.
    #[error("the daemon did not answer")]
    Cut(#[from] hyper::Error),
    /// The daemon refused.
    #[error("the daemon refused: {}", .0.detail)]
    Refused(Problem),
    /// No runtime can be made.
    #[error("there can be no connection")]
    Runtime(#[source] io::Error),
}

/// A client of the daemon at a socket. It makes a connection for each request.
pub struct Client {
    socket: std::path::PathBuf,
    runtime: Runtime,
}

impl Client {
    /// A client of the daemon at this socket.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new(socket: &Path) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        Ok(Self { socket: socket.into(), runtime: runtime.map_err(ClientError::Runtime)? })
    }

    /// The answer to a request. `path` may have parameters after `?`.
    ///
    /// # Errors
    /// If nobody answers, or the daemon refuses.
    pub fn ask(&self, method: &str, path: &str, body: Option<String>) -> Result<Vec<u8>, ClientError> {
        self.runtime.block_on(async {
            let response = self.send(method, path, body).await?;
            Ok(response.into_body().collect().await?.to_bytes().into())
        })
    }

    /// Hands the text of an answer that has no end to `take`, until that returns false.
    ///
    /// # Errors
    /// If nobody answers, or the daemon refuses.
    pub fn stream(&self, path: &str, mut take: impl FnMut(&[u8]) -> bool) -> Result<(), ClientError> {
        self.runtime.block_on(async {
            let mut body = self.send("GET", path, None).await?.into_body();
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame?.into_data()
                    && !take(&bytes)
                {
                    break;
                }
            }
            Ok(())
        })
    }

    async fn send(&self, method: &str, path: &str, body: Option<String>) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream =
            stream.map_err(|source| ClientError::Unreached { socket: self.socket.display().to_string(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())));
        let request = request.map_err(|error| ClientError::Refused(Problem::new(400, error.to_string())))?;
        let response = sender.send_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let problem = serde_json::from_slice(&bytes);
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        Err(ClientError::Refused(problem.unwrap_or_else(|_| Problem::new(status, text()))))
    }
}
