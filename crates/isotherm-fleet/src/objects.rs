//! A dataset on an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure.
//!
//! An object appears whole, by one request. Credentials, retries and signatures are those of the crate `object_store`.

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig, UpdateVersion,
};
use tokio::runtime::Runtime;
use url::Url;

use crate::error::FleetError;
use crate::store::{Claim, Entry, Sink, Source, Store, Wanted};

/// What URLs of datasets begin with.
pub(crate) const SCHEMES: [&str; 5] = ["s3", "gs", "az", "abfs", "abfss"];

/// How many bytes of an object are read for what it says of itself. Most have less.
const END: u64 = 64 << 10;

/// How many requests are under way at once.
const AT_ONCE: usize = 16;

/// How long a claim to compact is good without being renewed. The longest step between two renewals is that of one day
/// of a host.
const CLAIM: Duration = Duration::from_secs(3600);

/// The object of a claim.
const CLAIM_NAME: &str = ".compaction";

/// A place in a bucket.
#[derive(Clone)]
pub(crate) struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    bucket: Arc<dyn ObjectStore>,
    /// Without a slash at its end.
    url: String,
    prefix: Key,
    runtime: Runtime,
}

impl Debug for Objects {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        write!(to, "Objects({})", self.inner.url)
    }
}

impl Objects {
    /// Opens the place. Nothing is asked of the server yet.
    pub(crate) fn open(place: &Path) -> Result<Self, FleetError> {
        let text = place.to_string_lossy();
        let wrong = |why: &dyn ToString| FleetError::Url {
            url: isotherm_core::sanitise(&text).into_owned(),
            why: isotherm_core::sanitise(&why.to_string()).into_owned(),
        };
        let url = Url::parse(&text).map_err(|error| wrong(&error))?;
        let prefix = Key::from_url_path(url.path()).map_err(|error| wrong(&error))?;
        let bucket: Arc<dyn ObjectStore> = match url.scheme() {
            "s3" => {
                let builder = AmazonS3Builder::from_env().with_url(url.as_str()).with_retry(retries());
                Arc::new(builder.build().map_err(|error| wrong(&error))?)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str()).with_retry(retries());
                Arc::new(builder.build().map_err(|error| wrong(&error))?)
            }
            _ => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str()).with_retry(retries());
                Arc::new(builder.build().map_err(|error| wrong(&error))?)
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| wrong(&error))?;
        let url = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { inner: Arc::new(Inner { bucket, url, prefix, runtime }) })
    }

    fn key(&self, name: &str) -> Key {
        name.split('/').filter(|part| !part.is_empty()).fold(self.inner.prefix.clone(), |key, part| key.join(part))
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.inner.runtime.block_on(work)
    }

    fn error(&self, name: &str, what: &'static str, error: &Error) -> FleetError {
        FleetError::Object {
            url: self.shown(name),
            what,
            why: isotherm_core::sanitise(&reason(error)).into_owned(),
            hint: hint(error),
        }
    }

    async fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes, FleetError> {
        let read = self.inner.bucket.get_range(&self.key(name), range).await;
        read.map_err(|error| self.error(name, "read", &error))
    }
}

impl Store for Objects {
    fn shown(&self, name: &str) -> PathBuf {
        let separator = if name.is_empty() { "" } else { "/" };
        format!("{}{separator}{name}", self.inner.url).into()
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>, FleetError> {
        let Inner { bucket, prefix, .. } = &*self.inner;
        let listed = self.wait(bucket.list(Some(&self.key(folder))).try_collect::<Vec<_>>());
        let listed = listed.map_err(|error| self.error(folder, "listed", &error))?;
        let entry = |meta: object_store::ObjectMeta| {
            let parts: Vec<_> = meta.location.prefix_match(prefix)?.collect();
            let name = parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("/");
            (parts.len() == 3).then_some(Entry { name, bytes: meta.size })
        };
        Ok(listed.into_iter().filter_map(entry).collect())
    }

    fn open(&self, files: &[Entry], wanted: Wanted) -> Vec<Result<Source, FleetError>> {
        let open = |Entry { name, bytes }: Entry| async move {
            let start = if wanted == Wanted::All { 0 } else { bytes.saturating_sub(END) };
            // An empty range is refused.
            let part = if bytes == 0 { Bytes::new() } else { self.read(&name, start..bytes).await? };
            Ok(Source::Object(Object { store: self.clone(), name, bytes, start, part }))
        };
        self.wait(stream::iter(files.iter().cloned().map(open)).buffered(AT_ONCE).collect())
    }

    fn create(&self, _: &str) -> Result<Sink, FleetError> {
        Ok(Sink::Memory(Vec::new()))
    }

    fn publish(&self, name: &str, sink: Sink, replace: bool) -> Result<bool, FleetError> {
        let Sink::Memory(bytes) = sink else { return Ok(false) };
        let mode = if replace { PutMode::Overwrite } else { PutMode::Create };
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.wait(self.inner.bucket.put_opts(&self.key(name), bytes.into(), options)) {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.error(name, "written", &error)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FleetError> {
        let renamed = self.wait(self.inner.bucket.rename(&self.key(from), &self.key(to)));
        renamed.map_err(|error| self.error(from, "renamed", &error))
    }

    fn remove(&self, names: &[&str]) -> Result<(), FleetError> {
        let keys: Vec<_> = names.iter().map(|name| Ok(self.key(name))).collect();
        let removed = self.inner.bucket.delete_stream(stream::iter(keys).boxed());
        match self.wait(removed.try_collect::<Vec<_>>()) {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.error(names.first().unwrap_or(&""), "removed", &error)),
        }
    }

    #[cfg(feature = "query")]
    fn bucket(&self) -> Option<Arc<dyn ObjectStore>> {
        Some(Arc::clone(&self.inner.bucket))
    }

    fn claim(&self) -> Result<Box<dyn Claim>, FleetError> {
        let (bucket, key) = (&self.inner.bucket, self.key(CLAIM_NAME));
        let mut mode = PutMode::Create;
        loop {
            let replaces = mode != PutMode::Create;
            match self.wait(self.put_claim(mode)) {
                Ok(version) => return Ok(Box::new(ObjectClaim { store: self.clone(), version })),
                Err(Error::AlreadyExists { .. }) => {}
                // Somebody else has been faster.
                Err(Error::Precondition { .. }) if replaces => {}
                Err(error) => return Err(self.error(CLAIM_NAME, "written", &error)),
            }
            let meta = match self.wait(bucket.head(&key)) {
                // It was given back meanwhile.
                Err(Error::NotFound { .. }) => {
                    mode = PutMode::Create;
                    continue;
                }
                meta => meta.map_err(|error| self.error(CLAIM_NAME, "read", &error))?,
            };
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let since = now.saturating_sub(Duration::from_secs(meta.last_modified.timestamp().try_into().unwrap_or(0)));
            if since < CLAIM {
                let holder = format!(
                    "{} was renewed {} s ago; if nobody compacts, remove it, or wait for an hour",
                    self.shown(CLAIM_NAME).display(),
                    since.as_secs()
                );
                return Err(FleetError::Compacting { place: self.shown(""), holder });
            }
            mode = PutMode::Update(UpdateVersion { e_tag: meta.e_tag, version: meta.version });
        }
    }
}

impl Objects {
    async fn put_claim(&self, mode: PutMode) -> Result<UpdateVersion, Error> {
        let options = PutOptions { mode, ..PutOptions::default() };
        // No two have the same bytes, and so the same version.
        let text = format!("{} {:?}", std::process::id(), std::time::SystemTime::now());
        Ok(self.inner.bucket.put_opts(&self.key(CLAIM_NAME), text.into(), options).await?.into())
    }
}

/// An object that says who compacts. It is renewed before each day of a host.
struct ObjectClaim {
    store: Objects,
    version: UpdateVersion,
}

impl Claim for ObjectClaim {
    fn renew(&mut self) -> Result<(), FleetError> {
        let renewed = self.store.wait(self.store.put_claim(PutMode::Update(self.version.clone())));
        self.version = renewed.map_err(|error| match error {
            Error::Precondition { .. } => FleetError::Compacting {
                place: self.store.shown(""),
                holder: "another compaction took over, as this one had not gone on for an hour".into(),
            },
            error => self.store.error(CLAIM_NAME, "written", &error),
        })?;
        Ok(())
    }
}

impl Drop for ObjectClaim {
    fn drop(&mut self) {
        // It is still this one's. If this fails, the next compaction waits until it is old.
        if self.renew().is_ok() {
            let _ = self.store.remove(&[CLAIM_NAME]);
        }
    }
}

/// An object, and a part of it.
pub(crate) struct Object {
    store: Objects,
    name: String,
    /// The size.
    pub(crate) bytes: u64,
    start: u64,
    /// What it has from `start` on.
    part: Bytes,
}

impl Debug for Object {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        write!(to, "Object({})", self.name)
    }
}

impl Object {
    /// Reads a part.
    pub(crate) fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let end = io::Error::from(io::ErrorKind::UnexpectedEof);
        if range.start < self.start {
            return self.store.wait(self.store.read(&self.name, range)).map_err(io::Error::other);
        }
        let within = |at: u64| usize::try_from(at - self.start).ok().filter(|at| *at <= self.part.len());
        match (within(range.start), range.end.checked_sub(range.start).and_then(|_| within(range.end))) {
            (Some(from), Some(to)) => Ok(self.part.slice(from..to)),
            _ => Err(end),
        }
    }
}

/// The retries of a request: four within 15 s. Somebody may wait for the answer, and the next call goes on.
fn retries() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(200), max_backoff: Duration::from_secs(4), base: 2.0 };
    RetryConfig { backoff, max_retries: 4, retry_timeout: Duration::from_secs(15) }
}

/// The reason of an error, in one line: what the server says where it says something.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    let tag = |name: &str| Some(text.split_once(&format!("<{name}>"))?.1.split_once(&format!("</{name}>"))?.0);
    match (tag("Code"), tag("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(only), None) | (None, Some(only)) => only.into(),
        (None, None) => {
            // What the text of the whole leaves out: that a connection was refused, for example.
            let mut innermost: &dyn std::error::Error = error;
            while let Some(source) = innermost.source() {
                innermost = source;
            }
            let cause = innermost.to_string();
            if text.contains(&cause) { text } else { format!("{text}: {cause}") }
        }
    }
}

/// How to fix it.
fn hint(error: &Error) -> &'static str {
    let text = error.to_string();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match error {
        _ if has(&["NoSuchBucket"]) => "make the bucket, or name another one",
        Error::NotFound { .. } => "check the name of the bucket; or the object was removed meanwhile",
        Error::PermissionDenied { .. } => {
            "check the credentials; they must allow to list, get, put and delete what is below this URL"
        }
        Error::Unauthenticated { .. } => "check the credentials (docs/fleet.md has the variables)",
        Error::NotImplemented { .. } => "the server does not know conditional writes; use one that does",
        _ if has(&["incorrectly configured region"]) => "set AWS_REGION to that of the bucket",
        _ if has(&["169.254", "metadata", "token", "credential"]) => {
            "there are no credentials; set the variables of docs/fleet.md, or give this machine a role"
        }
        _ if has(&["error sending request"]) => "check whether the server can be reached; the next call goes on",
        _ => "nothing is lost; the next call goes on",
    }
}
