//! Names of pods and containers, asked from the socket of a container runtime (CRI).
//!
//! A runtime speaks gRPC: HTTP/2, where each message comes after a byte that is 1 if it is compressed, and its length
//! in four bytes, big-endian. The numbers of fields are those of `runtime.v1` of Kubernetes, which containerd has since
//! 1.6 and CRI-O since 1.20.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, TE};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use isotherm_kernel::{ContainerNames, tell_containers};
use prost::Message;
use thiserror::Error;
use tokio::net::UnixStream;

use crate::daemon::Daemon;
use crate::journal;

/// How often the runtime is asked, and for how long an answer may take.
const EVERY: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(5);

/// An answer has at most this many bytes. A container takes about 2 KiB.
const LARGEST: usize = 32 << 20;

/// The URL of the call. The host means nothing on a Unix socket.
const LIST: &str = "http://localhost/runtime.v1.RuntimeService/ListContainers";

/// The bytes before a message.
const PREFIX: usize = 5;

/// The labels that kubelet gives to each container: its name, its pod, and the namespace.
const CONTAINER: &str = "io.kubernetes.container.name";
const POD: &str = "io.kubernetes.pod.name";
const NAMESPACE: &str = "io.kubernetes.pod.namespace";

/// `ListContainersResponse`.
#[derive(Clone, PartialEq, Message)]
struct Containers {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Container>,
}

/// `Container`, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(map = "string, string", tag = "8")]
    labels: HashMap<String, String>,
}

/// Why a runtime has told no names.
#[derive(Debug, Error)]
enum CriError {
    #[error("nobody listens there ({0})")]
    Unreached(#[source] io::Error),
    #[error("it does not speak HTTP/2 as expected: {0}")]
    Http(#[source] hyper::Error),
    #[error("it refuses, with the status {status} of gRPC {message:?}")]
    Refused { status: String, message: String },
    #[error("its answer cannot be read: {0}")]
    Garbled(String),
    #[error("it has not answered within {} s", LONGEST.as_secs())]
    Late,
}

/// Asks the runtime at the socket that the configuration names, again and again, and tells its names to all who look
/// for them. If it does not answer, what it has told before stays.
pub(crate) async fn follow(daemon: Arc<Daemon>) {
    let mut failure = None;
    loop {
        let socket = daemon.config().settings.cri.clone();
        match names(socket.as_deref()).await {
            Ok(names) => {
                if failure.take().is_some() {
                    journal::info("the container runtime answers again");
                }
                tell_containers(names);
            }
            Err(error) => {
                let text = error.to_string();
                if failure.as_ref() != Some(&text) {
                    let socket = socket.map(|socket| socket.display().to_string()).unwrap_or_default();
                    journal::warning(&format!(
                        "the container runtime at {socket} tells no names: {text}; pods have those in files"
                    ));
                }
                failure = Some(text);
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// What the runtime at this socket, if there is one, calls its containers, by their IDs.
async fn names(socket: Option<&Path>) -> Result<HashMap<String, ContainerNames>, CriError> {
    let Some(socket) = socket else { return Ok(HashMap::new()) };
    let answer = tokio::time::timeout(LONGEST, list(&path_of(socket))).await.unwrap_or(Err(CriError::Late))?;
    let named = answer.containers.into_iter().filter_map(|Container { id, mut labels }| {
        let container = labels.remove(CONTAINER)?;
        Some((id, ContainerNames { container, pod: labels.remove(POD), namespace: labels.remove(NAMESPACE) }))
    });
    Ok(named.collect())
}

/// The path in `unix:///PATH`, as kubelet and crictl write it, or the path itself.
pub(crate) fn path_of(socket: &Path) -> PathBuf {
    socket.strip_prefix("unix:").map_or_else(|_| socket.to_owned(), |path| Path::new("/").join(path))
}

/// The answer to `ListContainers`.
async fn list(socket: &Path) -> Result<Containers, CriError> {
    let stream = UnixStream::connect(socket).await.map_err(CriError::Unreached)?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(CriError::Http)?;
    tokio::spawn(connection);
    // A message without fields: all containers.
    let request = Request::post(LIST)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Full::new(Bytes::from_static(&[0; PREFIX])))
        .map_err(|error| CriError::Garbled(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(CriError::Http)?;
    if response.status() != 200 {
        return Err(CriError::Refused { status: response.status().to_string(), message: String::new() });
    }
    // An answer of an error alone has its status in the header.
    check(response.headers())?;
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| CriError::Garbled(error.to_string()))?;
    body.trailers().map_or(Ok(()), check)?;
    let bytes = body.to_bytes();
    let Some((&[0, a, b, c, d], message)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(CriError::Garbled("no message, or a compressed one".into()));
    };
    let message = message.get(..u32::from_be_bytes([a, b, c, d]) as usize);
    let message = message.ok_or_else(|| CriError::Garbled("it was cut short".into()))?;
    Containers::decode(message).map_err(|error| CriError::Garbled(error.to_string()))
}

/// Whether the status of gRPC in these headers, if there is one, is that of a success.
fn check(headers: &HeaderMap) -> Result<(), CriError> {
    let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match text("grpc-status") {
        Some(status) if status != "0" => {
            Err(CriError::Refused { status, message: text("grpc-message").unwrap_or_default() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use hyper::body::Incoming;
    use hyper::server::conn::http2 as server;
    use hyper::service::service_fn;
    use hyper::{HeaderMap, Response};
    use tokio::net::UnixListener;

    use super::*;

    /// What is found where a runtime answers with these bytes and this status.
    async fn ask(bytes: Vec<u8>, status: &'static str) -> Result<HashMap<String, ContainerNames>, CriError> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("containerd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = move |request: Request<Incoming>| {
            let body = Full::new(Bytes::from(bytes.clone()));
            async move {
                assert_eq!(request.uri().path(), "/runtime.v1.RuntimeService/ListContainers");
                assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), [0; PREFIX][..]);
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", status.parse().unwrap());
                trailers.insert("grpc-message", "not now".parse().unwrap());
                Ok::<_, Infallible>(Response::new(body.with_trailers(ready(Some(Ok(trailers))))))
            }
        };
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            let builder = server::Builder::new(TokioExecutor::new());
            builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await
        };
        let url = PathBuf::from(format!("unix://{}", socket.display()));
        tokio::select! {
            found = names(Some(&url)) => found,
            ended = serve => panic!("{ended:?}"),
        }
    }

    fn framed(message: &impl Message) -> Vec<u8> {
        let length = u32::try_from(message.encoded_len()).unwrap();
        [&[0][..], &length.to_be_bytes(), &message.encode_to_vec()].concat()
    }

    fn container(id: &str, labels: &[(&str, &str)]) -> Container {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Container { id: id.into(), labels }
    }

    #[tokio::test]
    async fn a_runtime_tells_the_names_of_the_containers_of_kubernetes() {
        let of_pod = container("7f", &[(CONTAINER, "cart"), (POD, "pod-1"), (NAMESPACE, "shop"), ("tier", "gold")]);
        let answer = Containers { containers: vec![of_pod, container("80", &[("made-by", "hand")])] };
        let cart =
            ContainerNames { container: "cart".into(), pod: Some("pod-1".into()), namespace: Some("shop".into()) };
        assert_eq!(ask(framed(&answer), "0").await.unwrap(), HashMap::from([("7f".into(), cart)]));
        assert_eq!(ask(framed(&Containers::default()), "0").await.unwrap(), HashMap::new());
    }

    #[tokio::test]
    async fn what_a_runtime_refuses_or_sends_wrongly_is_said() {
        let none = framed(&Containers::default());
        let refused = ask(none.clone(), "14").await.unwrap_err().to_string();
        assert!(refused.contains("14") && refused.contains("not now"), "{refused}");
        let whole = framed(&Containers { containers: vec![container("7f", &[(CONTAINER, "cart")])] });
        for wrong in [&[][..], &none[..4], &whole[..whole.len() - 1], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 1, 0xff]] {
            let error = ask(wrong.to_vec(), "0").await.unwrap_err();
            assert!(matches!(error, CriError::Garbled(_)), "{wrong:?}: {error}");
        }
        let nobody = names(Some("/nowhere/containerd.sock".as_ref())).await.unwrap_err();
        assert!(matches!(nobody, CriError::Unreached(_)), "{nobody}");
        assert_eq!(names(None).await.unwrap(), HashMap::new());
    }
}
