//! The HTTP server: on a Unix socket for all, and by TCP for metrics alone or for the live page.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use isotherm_run::{Event, EventSink};
use rustix::fs::{Gid, Mode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, broadcast, mpsc};

use crate::api::{self, ARROW, Answer, Call, HTML, PAGE, Problem, SVG};
use crate::daemon::Daemon;
use crate::encoded::encoded;
use crate::guard::{self, Token};
use crate::hub::Following;
use crate::journal;
use crate::patience::Patient;
use crate::view::Streamed;

/// The most bytes of the body of a request.
const MOST_BODY: usize = 1 << 20;

/// The most connections at once. Others wait.
const MOST_CONNECTIONS: usize = 256;

/// How long a client may take to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take none of the bytes that are there for it.
const STALLED: Duration = Duration::from_secs(60);

/// How often a stream without events says that it is there.
const ALIVE: Duration = Duration::from_secs(15);

/// The group that may use the socket.
const GROUP: &str = "isotherm";

/// Opens the socket at `path` for its owner and the group `isotherm`, if there is one. A socket that nobody listens on
/// is replaced.
///
/// # Errors
/// If another daemon listens, or the socket cannot be made.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    if path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "a daemon listens there"));
        }
        remove(path);
    }
    // Between the two calls nobody but root may connect.
    let before = rustix::process::umask(Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound?;
    if let Some(group) = isotherm_kernel::group_id(GROUP)? {
        rustix::fs::chown(path, None, Some(Gid::from_raw(group)))?;
        rustix::fs::chmod(path, Mode::from_bits_truncate(0o660))?;
    }
    Ok(listener)
}

/// Removes the socket.
#[expect(clippy::disallowed_methods, reason = "the server removes the socket that it has made")]
pub fn remove(path: &Path) {
    // It may be gone.
    let _ = std::fs::remove_file(path);
}

/// Where clients connect.
trait Listener {
    type Client: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Who a client is, for the log.
    fn who(client: &Self::Client) -> String;

    fn next(&self) -> impl Future<Output = io::Result<Self::Client>> + Send;
}

impl Listener for UnixListener {
    type Client = UnixStream;

    fn who(client: &UnixStream) -> String {
        let peer = client.peer_cred().ok();
        peer.map_or_else(|| "a client".into(), |peer| shown((peer.uid(), peer.pid().map_or(0, |pid| pid as u32))))
    }

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

impl Listener for TcpListener {
    type Client = TcpStream;

    fn who(client: &TcpStream) -> String {
        client.peer_addr().map_or_else(|_| "a client".into(), |address| format!("the client {address}"))
    }

    async fn next(&self) -> io::Result<TcpStream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves all operations.
pub async fn serve(listener: UnixListener, daemon: Arc<Daemon>) {
    accept(listener, |client: &UnixStream| {
        let peer = client.peer_cred().ok();
        let peer = peer.map(|peer| (peer.uid(), peer.pid().map_or(0, |pid| pid as u32)));
        let daemon = Arc::clone(&daemon);
        move |request| {
            let daemon = Arc::clone(&daemon);
            async move { answer(request, daemon, peer).await.unwrap_or_else(Answer::from) }
        }
    })
    .await;
}

/// Answers the requests of all clients. `serving` makes what answers those of a client.
async fn accept<L: Listener, S, A>(listener: L, serving: impl Fn(&L::Client) -> S)
where
    S: Fn(Request<Incoming>) -> A + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok(client) = listener.next().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let serves = serving(&client);
        let service = service_fn(move |request| {
            let answer = serves(request);
            async move { Ok::<_, Infallible>(response(answer.await)) }
        });
        tokio::spawn(async move {
            let who = L::who(&client);
            let served = connection().serve_connection(TokioIo::new(Patient::new(client, STALLED)), service).await;
            drop(permit);
            // A client that goes away harms nobody, and is no news.
            if let Some(why) = served.err().filter(|error| error.is_parse() || is_stalled(error)) {
                journal::info(&format!("{who} was given up: {}", isotherm_core::chain(&why)));
            }
        });
    }
}

/// Whether a connection has ended because its client took nothing.
fn is_stalled(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::TimedOut)
}

/// A user and a process, for the log.
fn shown((uid, pid): (u32, u32)) -> String {
    format!("user {uid}, process {pid}")
}

fn connection() -> http1::Builder {
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(64 << 10);
    connection
}

/// Serves metrics alone.
pub async fn serve_metrics(listener: TcpListener, daemon: Arc<Daemon>) {
    accept(listener, move |_: &TcpStream| {
        let daemon = Arc::clone(&daemon);
        move |request| {
            let answer = match (request.method().as_str(), request.uri().path()) {
                ("GET", "/metrics") => {
                    let accepts = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
                    let is_older = |accepts: &str| accepts.contains("text/plain") && !accepts.contains("openmetrics");
                    let asked = api::query(request.uri().query().unwrap_or_default()).remove("format");
                    let older = accepts.is_some_and(is_older).then(|| "text".to_owned());
                    api::metrics(&daemon, asked.or(older).as_deref()).unwrap_or_else(Answer::from)
                }
                _ => Problem::new(404, "there is nothing here but GET /metrics").into(),
            };
            std::future::ready(answer)
        }
    })
    .await;
}

/// Serves all operations that change nothing, for browsers. With a token, those who do not know it get the page only,
/// which asks for it.
pub async fn serve_page(listener: TcpListener, token: Option<Token>, daemon: Arc<Daemon>) {
    let token = Arc::new(token);
    accept(listener, move |client: &TcpStream| {
        let (daemon, token, who) = (Arc::clone(&daemon), Arc::clone(&token), TcpListener::who(client));
        move |request: Request<Incoming>| {
            let may = token.as_ref().as_ref().is_none_or(|token| token.is_in(request.headers()));
            let (daemon, is_page) = (Arc::clone(&daemon), request.uri().path() == PAGE);
            if !may && request.headers().contains_key(AUTHORIZATION) {
                journal::warning(&format!("{who} has a wrong token for the page"));
            }
            async move {
                if !may && !is_page {
                    let detail = "this needs the token that page.token_file has: Authorization: Bearer TOKEN";
                    return Problem::new(401, detail).into();
                }
                answer(request, daemon, None).await.unwrap_or_else(Answer::from)
            }
        }
    })
    .await;
}

async fn answer(request: Request<Incoming>, daemon: Arc<Daemon>, peer: Option<(u32, u32)>) -> Result<Answer, Problem> {
    let (head, body) = request.into_parts();
    guard::check(&head, &daemon.config().settings.page.hosts)?;
    let (operation, path) = api::find(head.method.as_str(), head.uri.path())?;
    if operation.changes() {
        let uid = peer.map(|(uid, _)| uid);
        let own = rustix::process::geteuid().as_raw();
        let may = uid.is_some_and(|uid| uid == 0 || uid == own || daemon.config().may_change.contains(&uid));
        if !may {
            let detail = "only root and the users of may_change in the configuration may change something, by the \
                          Unix socket";
            return Err(Problem::new(403, detail));
        }
    }
    let body = Limited::new(body, MOST_BODY).collect().await;
    let body = body.map_err(|_| Problem::new(413, format!("the body has more than {MOST_BODY} bytes, or was cut")))?;
    let body = String::from_utf8(body.to_bytes().into()).map_err(|_| Problem::new(400, "the body is not UTF-8"))?;
    let query = api::query(head.uri.query().unwrap_or_default());
    if let Some(name) = query.keys().find(|name| operation.query.iter().all(|(known, _)| known != name)) {
        return Err(Problem::new(400, format!("there is no parameter {name:?} of this")));
    }
    let call = Call { path, query, body, peer };
    // Work may take long, and the server goes on meanwhile.
    let done = tokio::task::spawn_blocking(move || {
        let done = (operation.run)(&daemon, &call);
        if operation.changes() {
            daemon.groups.keep();
            let problem = done.as_ref().err();
            if operation.is_logged || problem.is_some() {
                log(operation, &call, problem);
            }
        }
        done
    });
    done.await.unwrap_or_else(|_| Err(Problem::new(500, "the request failed in an unforeseen way")))
}

/// Changes go to the journal, with who and what.
fn log(operation: &api::Operation, call: &Call, problem: Option<&Problem>) {
    let who = call.peer.map_or_else(String::new, |peer| shown(peer) + ": ");
    let what = format!("{who}{} {} {}", operation.method, operation.path, call.path.join(" "));
    match problem {
        None => journal::info(what.trim_end()),
        Some(problem) => journal::warning(&format!("{what}: refused: {}", problem.detail)),
    }
}

fn response(answer: Answer) -> Response<Content> {
    let (status, media, policy, content) = match answer {
        Answer::Done => (204, None, NOTHING, Content::Whole(None)),
        Answer::Document { status, media, bytes } => {
            let policy = match media {
                // A report says itself what it may do.
                HTML => OF_REPORTS,
                SVG => OF_PICTURES,
                _ => NOTHING,
            };
            (status, Some(media), policy, Content::Whole(Some(bytes)))
        }
        Answer::Page(page) => (200, Some(HTML), &*page.policy, Content::Whole(Some(Bytes::from_static(&page.html)))),
        Answer::Stream(events) => (200, Some("text/event-stream"), NOTHING, stream(events)),
        Answer::Recording(following) => (200, Some(ARROW), NOTHING, recording(*following)),
    };
    let mut response = Response::new(content);
    secure(response.headers_mut(), policy);
    if status == 401 {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(media) = media {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    }
    response
}

/// What documents may do in a browser: nothing; reports, what they say themselves; pictures, what they consist of.
const NOTHING: &str = "default-src 'none'";
const OF_REPORTS: &str = "object-src 'none'";
const OF_PICTURES: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Tells a browser to show a document nowhere but in a window of its own, to let no other site read it, and to keep
/// nothing of it.
fn secure(headers: &mut HeaderMap, policy: &str) {
    let policy = HeaderValue::try_from(format!("{policy}; frame-ancestors 'none'"));
    // A policy consists of words.
    headers.extend(policy.ok().map(|policy| (CONTENT_SECURITY_POLICY, policy)));
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The content of an answer.
enum Content {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(events) => events.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }
}

/// Records events as they come, until the run ends. Those that a slow client misses are counted.
fn recording(following: Following) -> Content {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let Following { mut recording, mut events } = following;
        let mut last = Duration::ZERO;
        loop {
            let Ok(bytes) = recording.take() else { return };
            if !bytes.is_empty() && sender.send(bytes.into()).await.is_err() {
                return;
            }
            let event = match tokio::time::timeout(ALIVE, events.recv()).await {
                // Whether the client is there is found out with the next event.
                Err(_) => continue,
                Ok(Ok(event)) => event,
                Ok(Err(broadcast::error::RecvError::Lagged(count))) => Event::Missed(missed(last, count)),
                Ok(Err(broadcast::error::RecvError::Closed)) => return,
            };
            if let Event::Snapshot(record) = &event {
                last = record.snapshot.time;
            }
            if matches!(event, Event::End(_)) || recording.event(&event).is_err() {
                return;
            }
        }
    });
    Content::Stream(receiver)
}

/// So many events that a client was too slow for. Most of them were snapshots.
fn missed(time: Duration, count: u64) -> isotherm_run::Missed {
    let missed = isotherm_record::Missed { time, kind: isotherm_record::MissedKind::Snapshots, count };
    isotherm_run::Missed { counts: vec![missed], ..Default::default() }
}

/// Writes events as they come. Those that a slow client misses are counted.
fn stream(mut events: broadcast::Receiver<Arc<Streamed>>) -> Content {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        // The head of the answer goes out with the first bytes.
        let mut bytes = Bytes::from_static(b": isotherm\n\n");
        while sender.send(bytes).await.is_ok() {
            bytes = match tokio::time::timeout(ALIVE, events.recv()).await {
                Err(_) => Bytes::from_static(b": \n\n"),
                Ok(Ok(event)) => encoded(&event),
                Ok(Err(broadcast::error::RecvError::Lagged(count))) => {
                    format!("event: missed\ndata: {{\"event\":\"missed\",\"count\":{count}}}\n\n").into()
                }
                Ok(Err(broadcast::error::RecvError::Closed)) => return,
            };
        }
    });
    Content::Stream(receiver)
}
