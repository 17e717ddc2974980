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
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::{Gid, Mode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use crate::api::{self, ARROW, Answer, Call, EVENTS, HTML, PAGE, Problem, SVG};
use crate::daemon::Daemon;
use crate::guard::{self, Token};
use crate::journal;
use crate::patience::Patient;
use crate::streams::{self, Place};

/// The most bytes of the body of a request.
const MOST_BODY: usize = 1 << 20;

/// The most connections at once. Others wait.
const MOST_CONNECTIONS: usize = 256;

/// How long a client may take to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take none of the bytes that are there for it.
const STALLED: Duration = Duration::from_secs(60);

/// After how many seconds a client may ask again that was refused because there is no room.
const RETRY: &str = "5";

/// The CPU time that the answer took, of a stream until it begins, for those who ask again and again.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

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

/// An answer, and the CPU time that a worker took for it, if one had to.
struct Served {
    answer: Answer,
    cpu: Option<Duration>,
}

impl From<Result<Self, Problem>> for Served {
    fn from(served: Result<Self, Problem>) -> Self {
        served.unwrap_or_else(|problem| Self { answer: problem.into(), cpu: None })
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
            async move { answer(request, daemon, peer).await.into() }
        }
    })
    .await;
}

/// Answers the requests of all clients. `serving` makes what answers those of a client.
async fn accept<L: Listener, S, A>(listener: L, serving: impl Fn(&L::Client) -> S)
where
    S: Fn(Request<Incoming>) -> A + Send + 'static,
    A: Future<Output = Served> + Send + 'static,
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
            std::future::ready(Served { answer, cpu: None })
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
                    return Served::from(Err(Problem::new(401, detail)));
                }
                answer(request, daemon, None).await.into()
            }
        }
    })
    .await;
}

async fn answer(request: Request<Incoming>, daemon: Arc<Daemon>, peer: Option<(u32, u32)>) -> Result<Served, Problem> {
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
    let (call, serving) = (Call { path, query, body, peer }, Arc::clone(&daemon));
    // Work may take long, and the server goes on meanwhile.
    let work = move || {
        let done = (operation.run)(&daemon, &call);
        if operation.changes() {
            daemon.groups.keep();
            let problem = done.as_ref().err();
            if operation.is_logged || problem.is_some() {
                log(operation, &call, problem);
            }
        }
        done
    };
    let done = tokio::task::spawn_blocking(move || serving.serving.counted(work)).await;
    let (answer, cpu) = done.map_err(|_| Problem::new(500, "the request failed in an unforeseen way"))?;
    Ok(Served { answer: answer?, cpu: Some(cpu) })
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

fn response(Served { answer, cpu }: Served) -> Response<Content> {
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
        Answer::Stream(place, events) => (200, Some(EVENTS), NOTHING, Content::stream(place, streams::events(events))),
        Answer::Live(place, live) => (200, Some(EVENTS), NOTHING, Content::stream(place, streams::live(*live))),
        Answer::Recording(place, following) => {
            (200, Some(ARROW), NOTHING, Content::stream(place, streams::recording(*following)))
        }
    };
    let mut response = Response::new(content);
    secure(response.headers_mut(), policy);
    if status == 401 {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == 503 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY));
    }
    let timing = cpu.map(|cpu| HeaderValue::try_from(format!("cpu;dur={:.3}", cpu.as_secs_f64() * 1e3)));
    if let Some(Ok(timing)) = timing {
        response.headers_mut().insert(SERVER_TIMING, timing);
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
    Stream {
        events: mpsc::Receiver<Bytes>,
        /// Given back with the end of the stream.
        _place: Place,
    },
}

impl Content {
    fn stream(place: Place, events: mpsc::Receiver<Bytes>) -> Self {
        Self::Stream { events, _place: place }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream { .. } => SizeHint::default(),
        }
    }

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream { events, .. } => {
                events.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }
}
