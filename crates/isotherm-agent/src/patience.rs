//! A client that does not take what is there for it is given up after a time, so that it holds no connection for ever.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection whose writes fail if the client takes nothing for a time.
pub struct Patient<T> {
    client: T,
    patience: Duration,
    /// When it is given up. `None` as long as it takes what there is.
    end: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    /// Waits so long for `client`.
    pub fn new(client: T, patience: Duration) -> Self {
        Self { client, patience, end: None }
    }
}

impl<T: AsyncWrite + Unpin> Patient<T> {
    /// What `write` returns, or an error if it has been pending for too long.
    fn within<R>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let written = write(Pin::new(&mut self.client), context);
        if written.is_ready() {
            self.end = None;
            return written;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(end.as_mut().poll(context));
        let seconds = patience.as_secs_f64();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, format!("it has taken nothing for {seconds} s"))))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_read(context, to)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.within(context, |client, context| client.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.within(context, |client, context| client.poll_write_vectored(context, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.client.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within(context, |client, context| client.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within(context, |client, context| client.poll_shutdown(context))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    #[test]
    fn a_client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let patience = Duration::from_millis(200);
            let (ours, _silent) = UnixStream::pair().unwrap();
            let error = Patient::new(ours, patience).write_all(&[0; 4 << 20]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");

            let (ours, mut slow) = UnixStream::pair().unwrap();
            let mut ours = Patient::new(ours, patience);
            let written = tokio::spawn(async move { ours.write_all(&[7; 4 << 20]).await });
            let mut bytes = vec![0; 1 << 20];
            let mut taken = 0;
            while taken < 4 << 20 {
                tokio::time::sleep(patience / 4).await;
                taken += slow.read(&mut bytes).await.unwrap();
            }
            written.await.unwrap().unwrap();
        });
    }
}
